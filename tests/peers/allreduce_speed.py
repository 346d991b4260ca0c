"""The ring beside MPI's own Allreduce, 8 ranks on this machine, float32, in one run.

    mpiexec -n 8 python tests/peers/allreduce_speed.py [results.json]

The two sides alternate, call by call. A time is that of the slowest rank, the median over the repeats; the ratio (below 1:
the ring is faster) is the median of the pairs' ratios, with its range. `memory` is what the ring holds beside the vector,
in slices of n/p elements. An absolute time here says nothing about another machine.
"""

import refgf.launch  # noqa: F401  before MPI starts

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from refgf.comm import ring
from refgf.comm.native import mpi_allreduce
from refgf.comm.schedule import collective, execute
from refgf.comm.slices import length, slices

RANKS = 8
SIZES = [1 << k for k in range(10, 29, 2)]  # bytes: 1 KiB to 256 MiB
SECONDS_A_SIZE = 4.0


def main(arguments: list[str]) -> None:
    comm = MPI.COMM_WORLD
    sides = {"ring": collective(comm, ring.allreduce), "own": mpi_allreduce(comm)}
    library = MPI.Get_library_version().splitlines()[0].split("\t")[0].strip()
    say(comm, f"ring against the Allreduce of {library}, {comm.size} ranks, {refgf.launch.job.cores} cores")
    header = ["bytes", "ring ms", "own ms", "ring/own", "range", "repeats", "memory"]
    say(comm, "{:>12} {:>10} {:>10} {:>9}   {:<14} {:>7} {:>7}".format(*header))
    rows = []
    for nbytes in SIZES:
        row = measure(comm, sides, nbytes) | {"memory_slices": scratch_slices(comm, nbytes // 4)}
        rows.append(row)
        spread = f"{row['ratio_min']:.2f} to {row['ratio_max']:.2f}"
        times = f"{1e3 * row['ring_s']:>10.3f} {1e3 * row['own_s']:>10.3f}"
        say(comm, f"{nbytes:>12} {times} {row['ratio']:>9.2f}   {spread:<14} {row['repeats']:>7} {row['memory_slices']:>7.2f}")
    if arguments and comm.rank == 0:
        Path(arguments[0]).write_text(json.dumps({"ranks": comm.size, "mpi": library, "rows": rows}, indent=1) + "\n")


def say(comm, text: str) -> None:
    if comm.rank == 0:
        print(text, flush=True)


def measure(comm, sides: dict, nbytes: int) -> dict:
    """Alternate the sides until SECONDS_A_SIZE have gone by, at least 5 and at most 200 times."""
    x, times = np.zeros(nbytes // 4, np.float32), {name: [] for name in sides}
    for allreduce in sides.values():
        allreduce(x)  # warm up
    end_s = time.perf_counter() + SECONDS_A_SIZE
    go_on = True
    while go_on:
        for name, allreduce in sides.items():
            comm.Barrier()
            start_s = time.perf_counter()
            allreduce(x)
            times[name].append(time.perf_counter() - start_s)
        repeats = len(times["ring"])
        go_on = comm.bcast(repeats < 5 or (repeats < 200 and time.perf_counter() < end_s))
    slowest = {name: np.max(comm.allgather(mine), axis=0) for name, mine in times.items()}
    ratios = slowest["ring"] / slowest["own"]
    return {"bytes": nbytes, "ring_s": float(np.median(slowest["ring"])), "own_s": float(np.median(slowest["own"])),
            "ratio": statistics.median(ratios.tolist()), "ratio_min": float(ratios.min()), "ratio_max": float(ratios.max()),
            "repeats": len(ratios)}  # fmt: skip


def scratch_slices(comm, n: int) -> float:
    """Elements that the ring allocates beside x, over the longest slice."""
    scratch = {}
    execute(comm, ring.allreduce(comm.rank, comm.size, n), np.zeros(n, np.float32), scratch=scratch)
    return sum(buffer.size for buffer in scratch.values()) / max(1, length(slices(n, comm.size)[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
