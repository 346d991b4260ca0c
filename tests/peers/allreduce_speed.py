"""Allreduce beside its peers, 8 ranks on this machine, float32, in one run.

    mpiexec -n 8 python tests/peers/allreduce_speed.py [results.json]

Ours: the ring, and the one of several algorithms that was measured to be the fastest for its size (`comm/select.py`).
Peers: the Allreduce of the MPI that runs this, of the other MPI in a second job, and gloo, as far as they are installed.
All sides take turns. A turn is a row of calls, as many as 64 MiB hold, at most MOST_CALLS, after a row that is not timed:
ranks that have slept meanwhile first have to spread over the cores again. A time is the mean of a row on the slowest rank,
the median over the repeats; a ratio (below 1: ours is faster) is the median of the pairs' ratios, with its range. `memory`
is what the ring holds beside the vector, in slices of n/p elements. An absolute time here says nothing about another machine.
"""

import refgf.launch  # noqa: F401  before MPI starts

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from gloo_side import gloo_allreduce
from mpi4py import MPI
from openmpi_side import OtherMPI, row

from refgf.comm import ring
from refgf.comm.native import mpi_allreduce
from refgf.comm.schedule import collective, execute
from refgf.comm.select import Fastest, candidates, measure
from refgf.comm.slices import length, slices

RANKS = 8
SIZES = [1 << k for k in range(10, 29, 2)]  # bytes: 1 KiB to 256 MiB
SECONDS_A_SIZE, MOST_CALLS = 6.0, 20
LONG, HALF = 64 << 20, 0.5  # from 64 MiB at most half of the best peer's time
OTHER = Path(__file__).resolve().parents[2] / ".venv-openmpi"


def main(arguments: list[str]) -> None:
    comm = MPI.COMM_WORLD
    vendor, version = MPI.get_vendor()
    own = f"{vendor} {'.'.join(map(str, version))}"
    ours = candidates(comm)
    fastest = Fastest(ours, measure(comm, ours))
    sides = {"ring": timed(comm, collective(comm, ring.allreduce)), "fastest": timed(comm, fastest)}
    peers, other = find_peers(comm, own)
    say(comm, f"allreduce, {comm.size} ranks, {refgf.launch.job.cores} cores; ms of the slowest rank, median")
    say(comm, line("bytes", "chosen", sides | peers, "fastest/best", "range", "ring/best", "memory"))
    rows = [row for nbytes in SIZES for row in size_rows(comm, sides, peers, nbytes, fastest)]
    other.close()
    if arguments and comm.rank == 0:
        Path(arguments[0]).write_text(json.dumps({"ranks": comm.size, "mpi": own, "rows": rows}, indent=1) + "\n")


def line(nbytes, chosen: str, cells, ratio: str, spread: str, on_ring: str, memory: str) -> str:
    middle = "".join(f"{cell[:12]:>13}" for cell in cells)
    return f"{nbytes:>10} {chosen:<18}{middle}{ratio:>13}  {spread:<13}{on_ring:>9} {memory:>7}"


def find_peers(comm, own: str) -> tuple[dict, OtherMPI]:
    """{name: x -> this rank's seconds}, and the other job, to be closed in the end."""
    peers, gloo, other = {own: timed(comm, mpi_allreduce(comm))}, gloo_allreduce(comm), OtherMPI(comm, OTHER)
    if gloo:
        peers["gloo"] = timed(comm, gloo)
    else:
        say(comm, "gloo left out: PyTorch is not installed")
    if other.missing:
        say(comm, f"the other MPI left out: {other.missing}; next: make .venv-openmpi")
    else:
        peers[other.library] = lambda x: other.seconds(x.size, calls_of(x))
    return peers, other


def timed(comm, allreduce):
    return lambda x: row(comm, lambda: allreduce(x), calls_of(x))


def calls_of(x) -> int:
    return max(1, min(MOST_CALLS, LONG // x.nbytes))


def say(comm, text: str) -> None:
    if comm.rank == 0:
        print(text, flush=True)


def size_rows(comm, sides: dict, peers: dict, nbytes: int, fastest: Fastest) -> list[dict]:
    """Ours against the best peer: one row for the fastest, which has a bar, and one for the ring."""
    times_s = slowest_times(comm, sides | peers, nbytes)
    medians_ms = {name: 1e3 * float(np.median(times)) for name, times in times_s.items()}
    best = min(peers, key=medians_ms.get)
    rows, memory = [], scratch_slices(comm, nbytes // 4)
    for name in sides:
        ratios = (times_s[name] / times_s[best]).tolist()
        rows.append({"name": f"{name} / {best}, {nbytes} bytes", "ratio": statistics.median(ratios),
                     "ratio_min": min(ratios), "ratio_max": max(ratios), "repeats": len(ratios), "best": best,
                     "milliseconds": medians_ms})  # fmt: skip
    on_ring, chosen = rows
    chosen["wanted"] = ["at most", HALF if nbytes >= LONG else 1.0]
    on_ring["memory_slices"] = memory
    spread = f"{chosen['ratio_min']:.2f} to {chosen['ratio_max']:.2f}"
    cells, ratios = [f"{ms:.3f}" for ms in medians_ms.values()], [f"{row['ratio']:.2f}" for row in (chosen, on_ring)]
    say(comm, line(nbytes, fastest.chosen[nbytes], cells, ratios[0], spread, ratios[1], f"{memory:.2f}"))
    return rows


def slowest_times(comm, sides: dict, nbytes: int) -> dict[str, np.ndarray]:
    """Alternate the sides until SECONDS_A_SIZE have gone by, at least 5 and at most 200 times."""
    x, times = np.zeros(nbytes // 4, np.float32), {name: [] for name in sides}
    for seconds in sides.values():
        seconds(x)  # warm up
    end_s, go_on = time.perf_counter() + SECONDS_A_SIZE, True
    while go_on:
        for name, seconds in sides.items():
            times[name].append(seconds(x))
        repeats = len(times["ring"])
        go_on = comm.bcast(repeats < 5 or (repeats < 200 and time.perf_counter() < end_s))
    return {name: np.max(comm.allgather(mine), axis=0) for name, mine in times.items()}


def scratch_slices(comm, n: int) -> float:
    """Elements that the ring allocates beside x, over the longest slice."""
    scratch = {}
    execute(comm, ring.allreduce(comm.rank, comm.size, n), np.zeros(n, np.float32), scratch=scratch)
    return sum(buffer.size for buffer in scratch.values()) / max(1, length(slices(n, comm.size)[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
