"""The run on a GPU: doctor, tests, lessons and benchmarks in stages of bounded time.

    sh run.sh                                       the folder of `make gpu-pack`
    python tests/gpu/run.py [--minutes 4] [--only MSTopK]      in a checkout: make gpu-check

Writes gpu.json, the page gpu.md and gpu.txt, which has all that the parts (parts.py) print. They
grow with each part, so an interrupted run leaves what it has. A part that fails or takes longer
than its limit is a row, and the next one runs; fewer minutes leave out the last stages. Exit code
0: no part failed and no ratio missed its bar. Without a GPU this says so, writes nothing and ends
with code 1. figures/gpu has a run.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.gpu import page, usable
from tests.gpu.measure import benchmark, judge
from tests.gpu.parts import ROOT, STAGES
from tests.gpu.perform import FAILED, perform

MPI_ENVIRONMENT = {  # Open MPI refuses root, and more ranks than cores
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "true",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def main(arguments: list[str] | None = None) -> int:
    start_s = time.monotonic()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="of all parts (default: 9)")
    parser.add_argument("--output", type=Path, default=ROOT / "results", help="default: results")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--only", default="", help="only parts whose name contains this")
    options = parser.parse_args(arguments)
    os.environ.update(MPI_ENVIRONMENT | os.environ)
    unpacked = tempfile.TemporaryDirectory(prefix="refgf-gpu-")
    usable.keep_kernels(Path(unpacked.name, "kernels"))
    taken = usable.prepare(ROOT / "wheels", Path(unpacked.name))
    if missing := usable.why_no_gpu():
        print(
            f"gpu-check: got no GPU ({missing}) with {sys.executable}; wanted CuPy and a GPU that "
            "it sees; next: PYTHON=... of another one, or python -m refgf.doctor --gpu",
            file=sys.stderr,
        )
        return 1
    planned = sum(options.only in part.name for stage in STAGES for part in stage.parts)
    if not planned:
        parser.error(f"--only {options.only!r}: no part has such a name; next: --only lesson")
    benchmark.begin()
    options.output.mkdir(parents=True, exist_ok=True)
    rows, path = [], options.output / "gpu"
    mpi = usable.why_no_mpi(options.mpiexec) or "MPI " + ("of the pack" if "mpich" in taken else "")
    facts = page.facts(time.strftime("%Y-%m-%d %H:%M"), 60 * options.minutes, mpi.strip())
    page.write(path, facts, rows, planned)
    with path.with_suffix(".txt").open("w") as text:
        for row in staged(options, start_s + 60 * options.minutes):
            rows.append(row)
            page.write(path, facts, rows, planned)
            print(f"==== {line(row)}\n$ {row['command']}\n{row['output']}", file=text, flush=True)
            print(line(row), flush=True)
    for ratio in page.judged(rows):
        if ratio["verdict"]:
            judge.tell(ratio["name"], ratio)
    print(f"{page.summary(rows, planned)} {path.with_suffix('.md')}")
    missed = any(ratio["verdict"] == "MISS" for ratio in page.judged(rows))
    return int(missed or any(row["outcome"] == FAILED for row in rows))


def staged(options: argparse.Namespace, end_s: float) -> Iterator[dict]:
    """The rows of all parts. A stage that ends early leaves its time to no other."""
    for stage in STAGES:
        parts = [part for part in stage.parts if options.only in part.name]
        stage_end_s = min(end_s, time.monotonic() + stage.limit_s)
        for row in perform(parts, options.mpiexec, stage_end_s, stage.at_a_time):
            yield {"stage": stage.name} | row


def line(row: dict) -> str:
    reason = f": {row['reason']}" if row["reason"] else ""
    return f"{row['outcome']:<8}{row['seconds']:>6.1f} s  {row['name']}{reason}"


if __name__ == "__main__":
    # an exit, and so the end of what runs
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
