"""Allreduce of device arrays, float32, 4 ranks on one GPU or more: the ring and MPI's own.

    mpiexec -n 4 python tests/gpu/speed_allreduce.py [results.json]

Both through pinned host memory, and both with device pointers where MPI takes them. Sides take
turns; a time is that of the slowest rank, until its GPU has finished; a ratio is the median of the
turns' ratios ring / MPI, with its range. Several ranks of one GPU share its copy engines: that says
nothing about a cluster. Not part of `make peers`. Not yet run on a GPU.
"""

import refgf.launch  # noqa: F401, I001  before MPI starts

import functools
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from refgf import device
from refgf.comm import ring
from refgf.comm.native import mpi_allreduce
from refgf.comm.schedule import collective
from refgf.engine import staging

SIZES = [1 << k for k in range(20, 29, 2)]  # bytes: 1 MiB to 256 MiB
TURNS = 10


def main(arguments: list[str]) -> None:
    comm, cupy = MPI.COMM_WORLD, device.module("gpu")
    number = device.select(refgf.launch.job.local_rank)
    ways = {"staged": False} | ({"device pointers": True} if staging.cuda_aware() else {})
    makers = {"ring": functools.partial(collective, algorithm=ring.allreduce), "mpi": mpi_allreduce}
    sides = {
        (way, name): bound(make(comm), aware)
        for way, aware in ways.items()
        for name, make in makers.items()
    }
    gpus = len(set(comm.allgather((MPI.Get_processor_name(), number))))
    say(
        comm,
        f"allreduce, {comm.size} ranks on {gpus} GPU; ms of the slowest rank, median of {TURNS}; "
        "ratio ring / MPI",
    )
    check(comm, cupy, sides)
    rows = []
    for nbytes in SIZES:
        times_s = alternate(comm, sides, cupy.zeros(nbytes // 4, np.float32))
        for way in ways:
            ours, theirs = (times_s[way, name] for name in makers)
            ratios = [a / b for a, b in zip(ours, theirs)]
            rows.append(
                {
                    "name": f"ring / MPI, {way}, {nbytes} bytes",
                    "ratio": statistics.median(ratios),
                    "ratio_min": min(ratios),
                    "ratio_max": max(ratios),
                }
            )
            ours_ms, theirs_ms = (1e3 * statistics.median(times) for times in (ours, theirs))
            say(
                comm,
                f"{nbytes:>10}  {way:<16}ring {ours_ms:9.2f}  MPI {theirs_ms:9.2f}  "
                f"ratio {rows[-1]['ratio']:.2f} [{min(ratios):.2f}..{max(ratios):.2f}]",
            )
    if arguments and comm.rank == 0:
        Path(arguments[0]).write_text(
            json.dumps({"ranks": comm.size, "gpus": gpus, "rows": rows}, indent=1) + "\n"
        )


def bound(allreduce, aware: bool):
    """The allreduce, with or without device pointers whatever the library says."""

    def call(x) -> None:
        staging.cuda_aware = lambda: aware
        allreduce(x)
        device.synchronize(x)

    return call


def check(comm, cupy, sides: dict) -> None:
    for side, allreduce in sides.items():
        x = cupy.full(1003, comm.rank + 1, np.float32)
        allreduce(x)
        if not bool((x == comm.size * (comm.size + 1) / 2).all()):
            raise ValueError(
                f"{side} on rank {comm.rank}: got {device.to_host(x)}; wanted the sum of 1 to p"
                "wanted the sum of the ranks' numbers; next: python -m refgf.doctor --gpu"
            )


def alternate(comm, sides: dict, x) -> dict:
    """Seconds of the slowest rank, per side and turn, without the first two, which allocate."""
    times = {side: [] for side in sides}
    for _ in range(2 + TURNS):
        for side, allreduce in sides.items():
            comm.Barrier()
            start_s = time.perf_counter()
            allreduce(x)
            times[side].append(time.perf_counter() - start_s)
    return {side: np.max(comm.allgather(mine), axis=0).tolist()[2:] for side, mine in times.items()}


def say(comm, text: str) -> None:
    if comm.rank == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
