"""`make gpu-check`: doctor, every GPU test, the lessons and the benchmarks, on this machine's GPU.

    python tests/gpu/run.py [--mpiexec mpiexec] [--only MSTopK]

Writes results/gpu.json, the page results/gpu.md and results/gpu.txt, which has all that the parts
(parts.py) print. They grow with each part, so an interrupted run leaves what it has. A part that
fails or takes longer than its limit is a row, and the next one runs; all of them end in less than
ten minutes. Exit code 0: no part failed and no ratio missed its bar. Without a GPU this says so,
writes nothing and ends with code 1. Not yet run on a GPU.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

from tests.gpu import page
from tests.gpu.measure import benchmark, judge
from tests.gpu.parts import ALONE, LESSONS, ROOT
from tests.gpu.perform import FAILED, perform
from tests.gpu.usable import why_no_gpu

LIMIT_S = 570  # of all parts; what still runs then is ended, which takes seconds
AT_A_TIME = 3  # lessons


def main(arguments: list[str] | None = None, path: Path = ROOT / "results" / "gpu") -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--only", default="", help="only parts whose name contains this")
    options = parser.parse_args(arguments)
    if missing := why_no_gpu():
        print(
            f"gpu-check: got no GPU ({missing}); wanted CuPy and a GPU that it sees; "
            "next: python -m refgf.doctor --gpu",
            file=sys.stderr,
        )
        return 1
    alone, lessons = (
        [part for part in parts if options.only in part.name] for parts in (ALONE, LESSONS)
    )
    planned = len(alone) + len(lessons)
    if not planned:
        parser.error(f"--only {options.only!r}: no part has such a name; next: --only lesson")
    benchmark.begin()
    end_s, rows = time.monotonic() + LIMIT_S, []
    facts = page.facts(time.strftime("%Y-%m-%d %H:%M"), LIMIT_S)
    page.write(path, facts, rows, planned)
    with path.with_suffix(".txt").open("w") as text:
        for parts, at_a_time in ((alone, 1), (lessons, AT_A_TIME)):
            for row in perform(parts, options.mpiexec, end_s, at_a_time):
                rows.append(row)
                page.write(path, facts, rows, planned)
                heading = f"==== {line(row)}\n$ {row['command']}"
                print(f"{heading}\n{row['output']}", file=text, flush=True)
                print(line(row), flush=True)
    for ratio in page.judged(rows):
        if ratio["verdict"]:
            judge.tell(ratio["name"], ratio)
    print(f"{page.summary(rows, planned)} {path.with_suffix('.md')}")
    missed = any(ratio["verdict"] == "MISS" for ratio in page.judged(rows))
    return int(missed or any(row["outcome"] == FAILED for row in rows))


def line(row: dict) -> str:
    reason = f": {row['reason']}" if row["reason"] else ""
    return f"{row['outcome']:<8}{row['seconds']:>6.1f} s  {row['name']}{reason}"


if __name__ == "__main__":
    # an exit, and so the end of what runs
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
