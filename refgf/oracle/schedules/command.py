"""python -m refgf.oracle schedule: judge foreign schedules, or write refgf's own."""

import argparse
import re
from pathlib import Path

from refgf.oracle.foreign.untrusted import BadFile, read_bytes
from refgf.oracle.schedules import chakra, draw, mscclpp, verdict
from refgf.oracle.schedules.form import (
    LARGEST_BUFFER,
    LARGEST_FILE,
    LARGEST_RANKS,
    Plan,
    require_size,
)
from refgf.oracle.schedules.own import own_plan
from refgf.predict.cost import Link

LARGEST_EXPORT = 128  # ranks
TRACE = re.compile(r"(.*)\.(\d{1,4})\.et")
Options = argparse.Namespace


def run(options: Options) -> int:
    """0 if every file is right."""
    if bool(options.files) == bool(options.export):
        got = "both" if options.export else "neither"
        raise ValueError(f"schedule: got {got}; wanted either FILE... or --export ALGORITHM")
    if options.export:
        return export(options)
    if options.bytes < 1 or (options.draw and len(options.files) > 1):
        got = f"--bytes {options.bytes}, {len(options.files)} files"
        raise ValueError(f"schedule: got {got}; wanted at least 1 byte, and one FILE for --draw")
    link, codes, seen = Link(options.alpha, options.beta, options.gamma), [], set()
    for file in options.files:
        name = plan_name(file)
        if name in seen:
            continue
        seen.add(name)
        try:
            plan = read_plan(file)
            judged = verdict.judge(plan, link, options.bytes)
        except BadFile as error:
            print(f"{error}")
            codes.append(2)
            continue
        print("\n".join(verdict.as_lines(name, plan, judged)))
        codes.append(0 if judged.kind == "right" else 2 if judged.kind == "no value" else 1)
        if options.draw:
            print("\n".join(draw.table(judged.transfers, plan.unit)))
            drawing = draw.svg(plan.name or file, len(plan.ranks), judged.transfers)
            Path(options.draw).write_text(drawing)
    return 1 if 1 in codes else max(codes)


def plan_name(file: str) -> str:
    """The traces of one plan have one name."""
    trace = TRACE.fullmatch(file)
    return f"{trace[1]}.*.et" if trace else file


def read_plan(file: str) -> Plan:
    """The plan of a file, by the ending of its name. Raises BadFile."""
    from refgf.oracle.schedules import msccl  # its parser is not in every Python

    if file.endswith(".xml"):
        return require_size(file, msccl.parse(file, read_bytes(file, LARGEST_FILE)))
    if file.endswith(".json"):
        return require_size(file, mscclpp.parse(file, read_bytes(file, LARGEST_FILE)))
    trace = TRACE.fullmatch(file)
    if not trace:
        raise BadFile(
            f"{file[:200]}: got a name of another kind; wanted .xml (MSCCL), .json (MSCCL++) or "
            "NAME.0.et (Chakra); next: rename it"
        )
    read = read_bytes(file, LARGEST_FILE)
    names = [f"{trace[1]}.{rank}.et" for rank in range(LARGEST_RANKS + 1)]
    there = [rank for rank, name in enumerate(names) if Path(name).exists()]
    missing = next(rank for rank in range(len(names) + 1) if rank not in there)
    last = max([int(trace[2]), *there])
    if missing < last:
        raise BadFile(
            f"{names[missing]} is missing: got the trace of rank {last}; wanted those of all "
            f"ranks, 0 to {last}; next: put them in one folder"
        )
    files, total = [], len(read)
    for name in names[:missing]:
        files.append(read_bytes(name, LARGEST_FILE))
        total += len(files[-1])
        if total > 4 * LARGEST_FILE:
            raise BadFile(f"{file}: got traces of {total} bytes; wanted at most {4 * LARGEST_FILE}")
    return require_size(plan_name(file), chakra.parse(plan_name(file), files))


def export(options: Options) -> int:
    """Write a plan of refgf's own; its verdict is `right`."""
    size, chunks = options.ranks, options.chunks or options.ranks
    if not 1 <= size <= LARGEST_EXPORT or not 1 <= chunks <= LARGEST_BUFFER:
        wanted = f"1 to {LARGEST_EXPORT} ranks and 1 to {LARGEST_BUFFER} chunks"
        raise ValueError(f"schedule: got {size} ranks, {chunks} chunks; wanted {wanted}")
    folder = Path(options.output)
    if not folder.is_dir():
        raise ValueError(f"schedule: got --output {folder}; wanted a folder that exists")
    plan = own_plan(options.export, size, options.format, chunks, options.ranks_per_node)
    require_size(options.export, plan)
    files = plan_files(plan, f"{options.export}-p{size}")
    notes: tuple[str, ...] = ()
    if options.format == "mscclpp-json":
        notes = runnable(*files.items())
    for name, data in files.items():
        (folder / name).write_bytes(data)
        print(f"wrote {folder / name}")
    print("".join(f"  {note}\n" for note in notes), end="")
    return 0


def runnable(file: tuple[str, bytes]) -> tuple[str, ...]:
    """The notes of a plan that MSCCL++'s executor has room for. ValueError for another one."""
    plan = mscclpp.parse(*file)
    if plan.found:
        raise ValueError(f"schedule: {plan.found[0]}; next: fewer ranks, or another format")
    return plan.notes


def plan_files(plan: Plan, stem: str) -> dict[str, bytes]:
    """{name: contents} of a plan in its own format."""
    from refgf.oracle.schedules import msccl

    if plan.format == "chakra":
        return {f"{stem}.{rank}.et": data for rank, data in enumerate(chakra.dump(plan))}
    if plan.format == "mscclpp-json":
        return {f"{stem}.json": mscclpp.dump(plan)}
    return {f"{stem}.xml": msccl.dump(plan)}
