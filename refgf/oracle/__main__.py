"""python -m refgf.oracle: golden cases, and a checker for implementations. Exit code 0 right, 1 wrong, 2 cannot judge."""

import argparse
import difflib
import fnmatch
import json
import os
import sys
from pathlib import Path

import numpy as np

from refgf.oracle.judge.cases import GOLDEN, load_folder, load_tensors, save_by_letter, save_folder
from refgf.oracle.judge.files import BadFile
from refgf.oracle.judge.functions import FUNCTIONS


def export(options):
    """Write the golden cases, or more of one kind."""
    from refgf.oracle.seeded.generate import golden_cases
    from refgf.oracle.seeded.generate.sums import seeded_case

    if options.ranks is None:
        cases = golden_cases()
        save_by_letter(cases, options.folder)
    else:
        if options.ranks < 1 or options.size < 0:
            raise ValueError(
                f"export: got {options.ranks} ranks, size {options.size}; wanted at least 1 and 0"
            )
        settings = options.ranks, options.size, options.dtype, options.family, options.wire
        cases = [
            seeded_case(options.order, *settings, seed)
            for seed in range(options.seed, options.seed + options.count)
        ]
        for case, seed in zip(cases, range(options.seed, options.seed + options.count)):
            case.name += f"-seed{seed}"
        save_folder(cases, options.folder)
    print(f"{len(cases)} cases in {options.folder}")
    return 0


def verify(options):
    """Judge an implementation, or a trace alone."""
    from refgf.oracle.judge import report
    from refgf.oracle.judge.profiles import in_order
    from refgf.oracle.judge.verify import verify as verify_cases

    if options.trace:
        return verify_trace(options)
    writable(options.json, options.junit)
    every, judged = load_folder(options.cases), implementation(options)
    if options.files:
        refuse_unknown(judged, every)
    cases = [case for case in every if selected(case, options.only)]
    if not cases:
        raise ValueError(
            f"verify: no case matches {options.only}; next: a statement (R2), its letter, or a name (ring-*)"
        )
    if options.order:
        cases = [case for case in (in_order(case, options.order) for case in cases) if case]
    try:
        verdicts = verify_cases(cases, judged, options.profile, not options.no_diagnosis)
    finally:
        judged.close()
    if all(v.status == "absent" for v in verdicts):
        raise ValueError(
            "verify: no function or file of that name; wanted one of "
            + ", ".join(sorted(FUNCTIONS))
        )
    for path, write in ((options.json, report.as_json), (options.junit, report.as_junit)):
        if path:
            Path(path).write_text(write(verdicts, options.profile))
    print(report.as_text(verdicts, options.profile))
    return 1 if any(v.status == "fail" for v in verdicts) else 0


def writable(*paths):
    """Before anything is judged, so that no result is lost at the end."""
    for path in filter(None, paths):
        if Path(path).is_dir() or not os.access(Path(path).absolute().parent, os.W_OK):
            raise ValueError(
                f"got {path}; wanted a file in a folder that is there and may be written to"
            )


def refuse_unknown(files, cases):
    """A misspelt result would otherwise count as one that nobody wrote."""
    unknown = files.unknown(cases)
    if unknown:
        near = difflib.get_close_matches(
            unknown[0], [f"{case.name}.safetensors" for case in cases], 1
        )
        meant = (
            f"did you mean {near[0]}?" if near else "take it out, or name its cases with --cases"
        )
        raise ValueError(
            f"verify: got {len(unknown)} files that are results of no case, first {unknown[0]}; "
            f"wanted NAME.safetensors of a case; next: {meant}"
        )


def verify_trace(options):
    from refgf.oracle.judge.trace import check_trace, read_trace

    told = check_trace(
        read_trace(options.trace), options.ranks, options.size, options.algorithm, options.dtype
    )
    print("\n".join(told) or "the trace is right")
    return 1 if told else 0


def selected(case, patterns):
    names = [case.name, case.function, *case.statements, *{s[0] for s in case.statements}]
    return not patterns or any(
        fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns
    )


def implementation(options):
    from refgf.oracle.judge.implementations import Command, Files
    from refgf.oracle.judge.isolation import IsolatedModule

    given = [value for value in (options.python, options.command, options.files) if value]
    if len(given) != 1:
        raise ValueError(f"verify: got {len(given)} of --python, --command, --files; wanted one")
    if not 0 < options.timeout < float("inf"):
        raise ValueError(f"verify: got --timeout {options.timeout}; wanted seconds, more than 0")
    if options.python:
        return IsolatedModule(options.python, options.timeout)
    return Command(options.command, options.timeout) if options.command else Files(options.files)


def explain(options):
    """Name the orders of summation that give a result."""
    from refgf.oracle.judge.explain import explain as explain_arrays

    tensors, _ = load_tensors(options.file)
    x = tensors.get("in.x", np.empty(0))
    if "out.x" not in tensors or x.ndim != 2 or x.dtype.kind != "f" or len(x) == 0:
        raise BadFile(
            f"{options.file}: wanted tensors in.x (p, n), p at least 1, and out.x (n,) or (p, n), floating-point"
        )
    print("\n".join(explain_arrays(list(tensors["in.x"]), tensors["out.x"])))
    return 0


def grade(options):
    """Marks for a student's file."""
    from refgf.oracle.judge.grade import grade as grade_file

    writable(options.json)
    marks = grade_file(options.student, options.lesson, load_folder(GOLDEN))
    print("\n".join(map(str, marks)))
    if options.json:
        Path(options.json).write_text(
            json.dumps({mark.what: mark.failure for mark in marks}, indent=1)
        )
    return 1 if any(mark.failure for mark in marks) else 0


def parser():
    top = argparse.ArgumentParser(prog="python -m refgf.oracle", description=__doc__)
    commands = top.add_subparsers(required=True)
    sub = commands.add_parser(
        "export", help="write the golden cases, or with --ranks other cases of one allreduce"
    )
    sub.set_defaults(run=export)
    sub.add_argument("folder")
    sub.add_argument("--order", choices=("ring", "direct"), default="ring")
    sub.add_argument("--ranks", type=int)
    sub.add_argument("--size", type=int, default=1000)
    sub.add_argument(
        "--dtype", choices=("float16", "bfloat16", "float32", "float64"), default="float32"
    )
    sub.add_argument("--wire", choices=("float16", "bfloat16", "float32"))
    sub.add_argument(
        "--family",
        choices=("invariant", "sensitive", "provenance", "special", "denormal"),
        default="sensitive",
    )
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--count", type=int, default=1)
    sub = commands.add_parser("verify", help="judge an implementation")
    sub.set_defaults(run=verify)
    sub.add_argument("--python", help="a module: its name, or a path that ends in .py")
    sub.add_argument("--command", help="a program: './prog {case} {out}'")
    sub.add_argument("--files", help="a folder with results that are already there")
    sub.add_argument(
        "--cases", default=GOLDEN, help="a folder with cases (default: the golden ones)"
    )
    sub.add_argument(
        "--only",
        nargs="+",
        metavar="PATTERN",
        help="statements (R2), letters (R), functions or case names",
    )
    sub.add_argument("--profile", choices=("bits", "sum", "agreement"), default="bits")
    sub.add_argument(
        "--order",
        choices=("ring", "direct", "doubling", "halving-far", "tree"),
        help="bits of this order of summation, for allreduce(xs, wire=None) or ring_allreduce",
    )
    sub.add_argument("--json")
    sub.add_argument("--junit")
    sub.add_argument("--timeout", type=float, default=60.0, help="seconds per case")
    sub.add_argument("--no-diagnosis", action="store_true")
    sub.add_argument("--trace", help="check this trace alone")
    sub.add_argument("--ranks", type=int, help="of the trace")
    sub.add_argument("--size", type=int, help="elements of the trace")
    sub.add_argument(
        "--algorithm",
        choices=("ring", "direct"),
        help="whose messages and elements the trace must have",
    )
    sub.add_argument(
        "--dtype",
        choices=("float16", "bfloat16", "float32", "float64"),
        help="of the trace's messages",
    )
    sub = commands.add_parser("explain", help="name the orders of summation that give a result")
    sub.set_defaults(run=explain)
    sub.add_argument("file", help="safetensors with in.x (p, n) and out.x")
    sub = commands.add_parser("grade", help="marks for a student's file")
    sub.set_defaults(run=grade)
    sub.add_argument("student")
    sub.add_argument("--lesson", required=True)
    sub.add_argument("--json")
    return top


def main(arguments=None):
    options = parser().parse_args(arguments)
    try:
        code = options.run(options)
        sys.stdout.flush()
        return code
    except (
        BrokenPipeError
    ):  # somebody reads the first lines only; nothing may be written at the end either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except (BadFile, ValueError, ImportError, OSError) as error:
        print(f"refgf.oracle: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
