"""The ranks' side of cluster_speed.py, on the emulated cluster: python cluster_side.py OUT

Raw TCP between two nodes, the ring as it is taught and pipelined, the two-level ring where nodes
have several ranks, the call measured fastest for the size (MPI's own is among them), and MPI's own
Allreduce take turns. Calls follow each other without a pause until every link has transferred
BURSTS times what its shaper gives on credit, or for MAX_CALLS calls. Times are the slowest rank's.
A tensor below SMALL elements is small.
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from refgf.cluster.probe import measure as probe
from refgf.cluster.settings import Settings
from refgf.engine.selection import Fastest, candidates, measure
from refgf.papers.scaling.workloads import resnet50

SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 250_000_000]  # bytes
MAX_CALLS = 500
LONG = 1 << 26  # bytes; messages of 32 MiB are slower than their bytes say, in MPI's own too
REPEATS, SMALL = 5, 32_768
BURSTS = 250  # credit flatters by 0.4 % at most


def main(out: str) -> None:
    comm = MPI.COMM_WORLD
    ours = candidates(comm)
    short, long = measure(comm, ours), measure(comm, ours, [LONG], [(1, 1.0)])
    fastest = Fastest(ours, {name: short[name] + long[name] for name in ours})

    def own(x) -> None:
        """Measured twice: how much two equal sides differ."""
        comm.Allreduce(MPI.IN_PLACE, x)

    sides = {
        "plain ring": ours["ring"],
        "ring": ours["pipelined ring"],
        "fastest": fastest,
        "own": own,
        "own again": own,
    }
    if "two-level ring" in ours:  # knows the nodes, as MPI's own does
        sides["ring by nodes"] = ours["two-level ring"]
    rows = [size_row(comm, sides, nbytes) for nbytes in SIZES]
    found = {"sizes": [row | {"chosen": fastest.chosen[row["bytes"]]} for row in rows]}
    small = [tensor.elements for tensor in resnet50().tensors if tensor.elements < SMALL]
    found["small"] = lazy_rows(comm, ours["ring"], small)
    if comm.rank == 0:
        Path(out).write_text(json.dumps(found))


def size_row(comm, sides: dict, nbytes: int) -> dict:
    x = np.zeros(nbytes // 4, np.float32)
    sent_bytes = round(2 * nbytes * (comm.size - 1) / comm.size)
    calls = min(MAX_CALLS, max(1, -(-BURSTS * burst_bytes() // sent_bytes)))
    row = {"bytes": nbytes, "calls": calls, "raw": []} | {name: [] for name in sides}
    for repeat in range(repeats(nbytes)):
        row["raw"].append(probe(comm, [(0, 1)])[0]["raw"])
        for name in rotated(list(sides), repeat):  # no side always follows the probe
            allreduce = sides[name]
            allreduce(x)  # warm: a TCP connection that has rested starts slowly
            total_s = seconds(comm, lambda: [allreduce(x) for _ in range(calls)])  # noqa: B023
            row[name].append(total_s / calls)
    return row


def repeats(nbytes: int) -> int:
    """From 16 KiB to 16 MiB all sides fill the link, and only many repeats tell them apart."""
    return 21 if nbytes <= 1 << 24 else REPEATS if nbytes < SIZES[-1] else 3


def rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]


def lazy_rows(comm, allreduce, counts: list[int]) -> dict:
    """ResNet-50's small tensors: one call each, and one call for all."""
    tensors, pool = [np.zeros(n, np.float32) for n in counts], np.zeros(sum(counts), np.float32)
    eager, lazy = lambda: [allreduce(x) for x in tensors], lambda: allreduce(pool)
    rows = [(seconds(comm, eager), seconds(comm, lazy)) for _ in range(REPEATS + 1)][1:]
    return {"tensors": len(counts)} | dict(zip(("eager", "lazy"), zip(*rows)))


def burst_bytes() -> int:
    cluster = json.loads(os.environ["REFGF_CLUSTER"])
    rate, mtu = cluster["rate_bytes_per_s"], cluster["mtu"]
    return Settings(cluster["nodes"], rate=rate, mtu=mtu).burst_bytes(0)


def seconds(comm, work) -> float:
    comm.Barrier()
    start_s = time.perf_counter()
    work()
    return max(comm.allgather(time.perf_counter() - start_s))


if __name__ == "__main__":
    main(sys.argv[1])
