"""Allreduce of device arrays, float32, between ranks of one GPU or more: the ring and MPI's own.

    mpiexec -n 4 python tests/gpu/speed_allreduce.py [results.json]

Both are staged through pinned host memory, and take device pointers where MPI takes them. Rows
compare the ring with MPI's own, and device pointers with staging. Sides take turns; a time is that
of the slowest rank, until its GPU has finished. Several ranks of one GPU share its copy engines:
that says nothing about a cluster, so no row has a bar.
"""

import refgf.launch  # noqa: F401, I001  before MPI starts

import contextlib
import functools
import statistics
import sys
from collections.abc import Callable

import numpy as np
from tests.gpu.measure import TURNS, alternate, judge, over, save
from mpi4py import MPI

from refgf import device
from refgf.comm import ring
from refgf.comm.native import mpi_allreduce
from refgf.comm.schedule import collective
from refgf.engine import staging

SIZES = [1 << 20, 1 << 24, 1 << 28]  # bytes: 1, 16 and 256 MiB
MAKERS = {"ring": functools.partial(collective, algorithm=ring.allreduce), "MPI": mpi_allreduce}
STAGED, DIRECT = "staged", "device pointers"


def main(arguments: list[str] | None = None) -> None:
    arguments, comm = sys.argv[1:] if arguments is None else arguments, MPI.COMM_WORLD
    with contextlib.redirect_stdout(None) if comm.rank else contextlib.nullcontext():
        rows = measure(comm)
    save(rows, arguments[0] if arguments and comm.rank == 0 else None)


def measure(comm, sizes: list[int] = SIZES, turns: int = TURNS) -> list[dict]:
    """The rows, the same on all ranks. Collective."""
    cupy, number = device.module("gpu"), device.select(refgf.launch.job.local_rank)
    gpus = len(set(comm.allgather((MPI.Get_processor_name(), number))))
    print(f"allreduce, {comm.size} ranks on {gpus} GPU; ms of the slowest rank, median of {turns}")
    ways = {STAGED: False} | ({DIRECT: True} if staging.cuda_aware() else {})
    sides = {
        (name, way): bound(make(comm), aware)
        for way, aware in ways.items()
        for name, make in MAKERS.items()
    }
    check(comm, cupy, sides)
    return [row for nbytes in sizes for row in compared(comm, cupy, sides, nbytes, turns)]


def compared(comm, cupy, sides: dict, nbytes: int, turns: int) -> list[dict]:
    x, title = cupy.zeros(nbytes // 4, np.float32), f"{nbytes >> 20} MiB"
    steps = {side: functools.partial(sum_of, x) for side, sum_of in sides.items()}  # 0 stays 0
    seconds = slowest(comm, steps, turns)
    for (name, way), times_s in seconds.items():
        print(f"{title}: {name}, {way} {1e3 * statistics.median(times_s):.2f} ms")
    pairs = [((name, DIRECT), (name, STAGED)) for name in MAKERS]
    pairs += [(("ring", way), ("MPI", way)) for way in (STAGED, DIRECT)]
    return [
        judge.ratio(f"{title}: {', '.join(one)} over {', '.join(other)}", ratios)
        for one, other in pairs
        if one in seconds and other in seconds
        for ratios in [over(seconds[one], seconds[other])]
    ]


def bound(allreduce: Callable, aware: bool) -> Callable:
    """The allreduce, with or without device pointers whatever the library says."""

    def sum_of(x) -> None:
        staging.cuda_aware = lambda: aware
        allreduce(x)
        device.synchronize(x)

    return sum_of


def check(comm, cupy, sides: dict) -> None:
    """ValueError on the rank whose sum is wrong."""
    wanted = comm.size * (comm.size + 1) / 2
    for (name, way), sum_of in sides.items():
        x = cupy.full(1003, comm.rank + 1, np.float32)
        sum_of(x)
        if not bool((x == wanted).all()):
            raise ValueError(
                f"{name}, {way}, on rank {comm.rank}: got {device.to_host(x)}; wanted {wanted:g} "
                "in each of the 1003 elements, the sum of 1 to p; "
                "next: python -m refgf.doctor --gpu"
            )


def slowest(comm, steps: dict, turns: int) -> dict:
    """Seconds of each side and turn, of the slowest rank."""
    own = alternate(steps, turns, begin=comm.Barrier)
    return {side: np.max(comm.allgather(mine), axis=0).tolist() for side, mine in own.items()}


if __name__ == "__main__":
    main()
