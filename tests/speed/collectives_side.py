"""The ranks' side of collectives_speed.py, on the emulated cluster: python collectives_side.py OUT

The flat ring, the hierarchies and their hybrids are called in turn, `calls(n)` times for each size.
A time is the slowest rank's; the file holds {"bytes": {name: median seconds}}.
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.comm.topology import nodes
from refgf.papers.jia import hierarchical

SIZES = [1 << 10, 1 << 12, 1 << 14, 1 << 15, 1 << 16, 1 << 18, 1 << 20, 1 << 22]  # bytes
FORMS = {
    "three phases": hierarchical.three_phase,
    "log phases": hierarchical.log_phases,
}
HYBRID_BYTES = 64 << 10  # below, a hybrid takes the hierarchy


def main(out: str) -> None:
    comm = MPI.COMM_WORLD
    places = nodes(comm)
    algorithms = {"flat ring": ring.allreduce}
    for name, form in FORMS.items():
        algorithms[name] = form(places)
        algorithms[f"hybrid, {name}"] = hierarchical.hybrid(places, HYBRID_BYTES // 4, form)
    sides = {name: collective(comm, algorithm) for name, algorithm in algorithms.items()}
    found = {nbytes: in_turns(comm, sides, nbytes) for nbytes in SIZES}
    if comm.rank == 0:
        Path(out).write_text(json.dumps(found))


def in_turns(comm, sides: dict, nbytes: int) -> dict:
    """{name: median of the slowest rank's seconds}"""
    x, mine = np.zeros(nbytes // 4, np.float32), {name: [] for name in sides}
    for repeat in range(calls(nbytes) + 1):
        for name, allreduce in sides.items():
            comm.Barrier()
            start_s = time.perf_counter()
            allreduce(x)
            if repeat:
                mine[name].append(time.perf_counter() - start_s)
    every = comm.allgather(mine)
    return {
        name: statistics.median(max(call) for call in zip(*(rank[name] for rank in every)))
        for name in sides
    }


def calls(nbytes: int) -> int:
    return 7 if nbytes >= 1 << 20 else 31


if __name__ == "__main__":
    main(sys.argv[1])
