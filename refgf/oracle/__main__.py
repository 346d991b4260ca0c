"""python -m refgf.oracle: golden cases, and a checker for implementations.

Exit code 0 right, 1 wrong, 2 cannot judge.
"""

import refgf.interrupt  # noqa: F401  first

# isort: split

import argparse
import contextlib
import difflib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from refgf import program
from refgf.oracle.foreign import orphans
from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.judge.cases import (
    GOLDEN,
    load_folder,
    load_tensors,
    save_by_letter,
    save_folder,
    selected,
)
from refgf.oracle.reveal.command import add_parser as reveal_parser
from refgf.oracle.schedules.options import add_command as schedule_parser
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.families import FAMILIES
from refgf.oracle.spec.fresh import fresh_cases, large_cases
from refgf.oracle.spec.plain_sums import seeded_case
from refgf.oracle.spec.statement import FUNCTIONS, golden_cases
from refgf.oracle.step.command import add_step

Options = argparse.Namespace
DTYPES = ("float16", "bfloat16", "float32", "float64")
MOST_RANDOM = 10_000  # fresh cases of a function: they are all made before the first is judged
SUGGESTED = 2  # functions in the place of a name that matches none
ORDERS = ("ring", "direct", "doubling", "halving-far", "tree")


def export(options: Options) -> int:
    """Write the golden cases, or other cases of one allreduce."""
    if options.ranks is None:
        Path(options.folder).mkdir(parents=True, exist_ok=True)  # before 15 s of work
        cases = golden_cases()
        save_by_letter(cases, options.folder)
    else:
        if options.ranks < 1 or options.size < 0:
            got = f"{options.ranks} ranks, size {options.size}"
            raise ValueError(f"export: got {got}; wanted at least 1 rank and size 0")
        settings = options.ranks, options.size, options.dtype, options.family, options.wire
        cases = []
        for seed in range(options.seed, options.seed + options.count):
            case = seeded_case(options.order, *settings, seed)
            case.name += f"-seed{seed}"
            cases.append(case)
        save_folder(cases, options.folder)
    print(f"{len(cases)} case{'s' * (len(cases) != 1)} in {options.folder}")
    return 0


def verify(options: Options) -> int:
    """Judge an implementation, or a trace alone."""
    from refgf.oracle.foreign.report import unsafe
    from refgf.oracle.judge import page, report
    from refgf.oracle.judge.profiles import in_order
    from refgf.oracle.judge.verify import verify as verify_cases

    if options.trace:
        return verify_trace(options)
    report.require_writable(options.json, options.junit, options.html)
    every, judged = load_folder(options.cases), implementation(options)
    if options.files:
        refuse_unknown(judged, every)
    cases = [case for case in every if selected(case, options.only)]
    cases += drawn_cases(options)
    if options.order:
        cases = [case for case in (in_order(case, options.order) for case in cases) if case]
    if not cases:
        order = f" with --order {options.order}" * bool(options.order)
        raise ValueError(
            f"verify: got --only {' '.join(options.only)}{order}, which matches no case; wanted a "
            f"statement (R2), its letter, a function, or a case (ring-*); next: {near(options)}"
        )
    try:
        verdicts = verify_cases(cases, judged, options.profile, not options.no_diagnosis)
    finally:
        judged.close()
    if all(v.status == "absent" for v in verdicts):
        names = ", ".join(dict.fromkeys(v.case.function for v in verdicts))
        given = options.python or options.command or options.files
        got = f"{given}, which has no function or file to judge"
        raise ValueError(f"verify: got {got}; wanted one of {names}; next: name the functions so")
    writers = {"json": report.as_json, "junit": report.as_junit, "html": page.as_html}
    for name, write in writers.items():
        if path := getattr(options, name):
            Path(path).write_text(write(verdicts, options.profile))
    print(report.as_text(verdicts, options.profile))
    if options.python and judged.still_open:
        print(unsafe(judged.still_open, "verdicts on code that means harm are"))
    return 1 if any(v.status == "fail" for v in verdicts) else 0


def near(options: Options) -> str:
    """The functions whose names are like what --only asks for."""
    for pattern in options.only:
        found = [name for name in FUNCTIONS if pattern.lower() in name]
        found = found or difflib.get_close_matches(pattern, FUNCTIONS)
        if found:
            return f"--only {' '.join(found[:SUGGESTED])}"
    return "--only R"


def drawn_cases(options: Options) -> list[Case]:
    """Fresh cases; by default three of each function, next to the golden cases only."""
    golden = not options.files and Path(options.cases) == GOLDEN
    count = (3 if golden else 0) if options.random is None else options.random
    if not 0 <= count <= MOST_RANDOM or (count and options.files):
        raise ValueError(
            f"verify: got --random {count}{' with --files' * bool(options.files)}; wanted a number "
            f"from 0 to {MOST_RANDOM}, and --python or --command, because results of fresh cases "
            "cannot exist yet"
        )
    seed = int.from_bytes(os.urandom(3)) if options.seed is None else options.seed

    def wanted(case: Case) -> bool:
        return selected(case, options.only)

    cases = list(fresh_cases(count, seed, wanted))
    cases += large_cases(seed, wanted) if count else []
    if cases:
        print(f"with random cases; to repeat them: --random {count} --seed {seed}")
    return cases


def refuse_unknown(files: Any, cases: list[Case]) -> None:
    """A misspelt result would otherwise count as a missing one."""
    unknown = files.unknown(cases)
    if unknown:
        names = [f"{case.name}.safetensors" for case in cases]
        near = difflib.get_close_matches(unknown[0], names, 1)
        hint = f"did you mean {near[0]}?" if near else "remove it, or name its cases with --cases"
        raise ValueError(
            f"verify: got {len(unknown)} files that belong to no case, first {unknown[0]}; "
            f"wanted NAME.safetensors of a case; next: {hint}"
        )


def verify_trace(options: Options) -> int:
    from refgf.oracle.judge.trace import check_trace, compared, read_trace

    if options.algorithm and options.size is None:
        raise ValueError(
            f"verify: got --algorithm {options.algorithm} without --size; wanted both, because the "
            "slices depend on the elements; next: --size 100"
        )
    events = read_trace(options.trace)
    if not events and not options.algorithm:
        raise ValueError(
            f"verify: got {shown(options.trace)} without events; wanted a line for each; "
            "next: SPEC.md, Traces"
        )
    settings = options.size, options.algorithm, options.dtype
    problems = check_trace(events, options.ranks, *settings)
    print("\n".join(problems or compared(events, *settings)))
    return 1 if problems else 0


def implementation(options: Options) -> Any:
    from refgf.oracle.judge.implementations import Command, Files
    from refgf.oracle.judge.isolation import IsolatedModule

    given = [value for value in (options.python, options.command, options.files) if value]
    if len(given) != 1:
        raise ValueError(f"verify: got {len(given)} of --python, --command, --files; wanted one")
    if not 0 < options.timeout < float("inf"):
        raise ValueError(f"verify: got --timeout {options.timeout}; wanted seconds, more than 0")
    if options.python:
        return IsolatedModule(options.python, options.timeout, [str(options.cases)])
    return Command(options.command, options.timeout) if options.command else Files(options.files)


def explain(options: Options) -> int:
    """Name the orders of summation that give a result."""
    from refgf.oracle.judge.explain import explained

    tensors, _ = load_tensors(options.file)
    x = tensors.get("in.x", np.empty(0))
    if "out.x" not in tensors or x.ndim != 2 or x.dtype.kind != "f" or len(x) == 0:
        raise BadFile(
            f"explain: got {options.file} with other tensors; wanted floating-point in.x (p, n), "
            "p at least 1, and out.x (n,) or (p, n)"
        )
    lines, right = explained(list(tensors["in.x"]), tensors["out.x"])
    print("\n".join(lines))
    return 0 if right else 1


def grade(options: Options) -> int:
    """Marks for students' files."""
    from refgf.oracle.foreign.report import unsafe
    from refgf.oracle.grade import counter, report
    from refgf.oracle.grade.marking import STILL_OPEN, answered, in_short
    from refgf.oracle.grade.marking import grade as grade_file
    from refgf.oracle.grade.sandbox import workers
    from refgf.oracle.judge.report import require_writable

    require_writable(options.json, options.csv)

    def graded(file: str) -> tuple[str, list]:
        return file, grade_file(file, options.lesson, options.seed)

    rows, several = [], len(options.files) > 1
    with counter.Counter(len(options.files)) as screen, ThreadPoolExecutor(workers()) as pool:
        for file, marks in pool.map(graded, options.files):
            rows.append((file, marks))
            screen.says(f"{file}\n" * several + report.as_text(marks))
    if STILL_OPEN:
        print(unsafe(STILL_OPEN, "marks are"))
    if options.json:
        found = [report.as_data(marks, options.lesson, file) for file, marks in rows]
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    if options.csv:
        asked = in_short(options.lesson)
        table = [(file, marks, answered(Path(file)), asked) for file, marks in rows]
        text = report.as_csv(table, options.seed)
        Path(options.csv).write_text(text, encoding="utf-8")
    return 1 if any(mark.points < mark.of for _, marks in rows for mark in marks) else 0


def parser() -> argparse.ArgumentParser:
    called = "refgf" if sys.argv[0].startswith("refgf ") else "python -m refgf.oracle"
    top = argparse.ArgumentParser(prog=called, description=__doc__.partition(": ")[2])
    commands = top.add_subparsers(required=True)
    about = "write the golden cases, or with --ranks other cases of one allreduce"
    sub = commands.add_parser("export", help=about)
    sub.set_defaults(run=export)
    sub.add_argument("folder")
    sub.add_argument("--order", choices=("ring", "direct"), default="ring")
    sub.add_argument("--ranks", type=int)
    sub.add_argument("--size", type=int, default=1000)
    sub.add_argument("--dtype", choices=DTYPES, default="float32")
    sub.add_argument("--wire", choices=("float16", "bfloat16", "float32"))
    sub.add_argument("--family", choices=FAMILIES, default="sensitive")
    sub.add_argument("--seed", type=seed, default=0)
    sub.add_argument("--count", type=int, default=1)
    sub = commands.add_parser("verify", help="judge an implementation")
    sub.set_defaults(run=verify)
    sub.add_argument("--python", help="a module: its name, or a path that ends in .py")
    sub.add_argument("--command", help="a program: './prog {case} {out}'")
    sub.add_argument("--files", help="a folder with existing results")
    sub.add_argument("--cases", default=GOLDEN, help="a folder with cases (default: golden)")
    about = "statements (R2), letters (R), functions or case names"
    sub.add_argument("--only", nargs="+", metavar="PATTERN", help=about)
    about = "fresh cases of each function, with other p and n each time (default: 3; 0: none)"
    sub.add_argument("--random", type=int, metavar="N", help=about)
    sub.add_argument("--seed", type=seed, help="of the random cases, to repeat a failure")
    sub.add_argument("--profile", choices=("bits", "sum", "agreement"), default="bits")
    about = "bits of this order of summation, for allreduce(xs, wire=None) or ring_allreduce"
    sub.add_argument("--order", choices=ORDERS, help=about)
    sub.add_argument("--json")
    sub.add_argument("--junit")
    sub.add_argument("--html", help="the report as one page")
    sub.add_argument("--timeout", type=float, default=60.0, help="seconds per case")
    sub.add_argument("--no-diagnosis", action="store_true")
    sub.add_argument("--trace", help="check this trace alone")
    sub.add_argument("--ranks", type=int, help="of the trace")
    sub.add_argument("--size", type=int, help="elements of the trace")
    about = "whose messages, elements, operations, places and order the trace must have"
    sub.add_argument("--algorithm", choices=("ring", "direct"), help=about)
    sub.add_argument("--dtype", choices=DTYPES, help="of the trace's messages")
    about = "name the orders of summation that give a result"
    sub = commands.add_parser("explain", help=about)
    sub.set_defaults(run=explain)
    sub.add_argument("file", help="safetensors with in.x (p, n) and out.x")
    sub = commands.add_parser(
        "grade",
        help="marks for students' files",
        description="Marks for students' files: points, and what is wrong, for each exercise. "
        "Each file runs in processes of its own, behind a wall that the kernel keeps, with limits.",
    )
    sub.set_defaults(run=grade)
    sub.add_argument("lesson", help="its number: 01")
    sub.add_argument("files", nargs="+", metavar="FILE", help="lessons/student/01.py, filled in")
    sub.add_argument("--seed", type=seed, help="the teacher's: judge other cases, too")
    sub.add_argument("--json", help="the marks for programs")
    sub.add_argument("--csv", help="a line a file, for a class")
    add_step(commands)
    reveal_parser(commands)
    schedule_parser(commands)
    return top


def main(arguments: list[str] | None = None) -> int:
    with contextlib.suppress(AttributeError):  # stdout may be another object, in a notebook
        sys.stdout.reconfigure(errors="backslashreplace")  # a name of a file may be no text
    options = parser().parse_args(arguments)
    worded = ValueError, ImportError, OSError, MemoryError

    def said(error: Exception) -> str:
        return f"refgf.oracle: {sentence(error)}"

    return program.ended(lambda: options.run(options), said, *worded)


def sentence(error: Exception) -> str:
    """The error in one line; where it does not say what to try, with something to try."""
    text = str(error)
    if "; wanted " in text or "next: " in text:
        return text
    if isinstance(error, OSError) and error.filename:
        name = shown(str(error.filename))
        return f"got {name}: {error.strerror}; wanted a file that can be used; next: check the path"
    if isinstance(error, MemoryError):
        return f"{text or 'got too little memory'}; wanted less; next: smaller numbers"
    if isinstance(error, UnicodeEncodeError):
        return f"got {shown(error.object)}; wanted text in UTF-8; next: rename the file"
    return f"{text or type(error).__name__}; next: --help says what is wanted"


def shown(text: str) -> str:
    """A text in full, or the beginning of a long one."""
    return text if len(text) <= 200 else f"{text[:200]}..."


def seed(text: str) -> int:
    """The value of an option --seed: NumPy takes no negative one."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {shown(text)}; wanted a whole number, at least 0")
    return int(text)


if __name__ == "__main__":
    np.seterr(all="ignore")
    orphans.adopt()
    try:
        sys.exit(main())
    finally:
        orphans.end_children()
