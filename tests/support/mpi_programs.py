"""Small programs for p ranks as data, run on threads or under MPI: the same calls on both.

    execute(comm, code)              what a rank ends with: its arrays, results of collectives
    python mpi_programs.py FOLDER    under mpiexec: the programs of FOLDER/programs.json, in turn

A program is {"ranks": p, "code": [calls of each rank], "wrong": names of the mistakes in it}.
"""

import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

LIMIT_S = 4.0  # a program takes milliseconds


def array(n, dtype, seed, kind):
    """Numbers that no rounding hides, in memory as `kind` says."""
    x = ((np.arange(n) * 0.3 + seed * 1000.1) % 199).astype(dtype)
    if kind == "strided":
        return np.stack([x, x], axis=1)[:, 0]
    if kind == "reversed":
        return x[::-1]
    if kind == "objects":
        return x.astype(object)
    if kind == "list":
        return x.tolist()
    if kind == "swapped":
        return x.astype(x.dtype.newbyteorder())
    if kind == "table":  # Fortran's order, which is one block of memory too
        return np.asfortranarray(x.reshape(-1, 1) if n % 2 else x.reshape(2, -1))
    x.flags.writeable = kind != "read-only"
    return x


def execute(comm, code):
    """-> [sha256 of each array, result of each collective]"""
    arrays, requests, told = {}, {}, []

    def part(name, start=None, stop=None):
        return arrays[name] if start is None else arrays[name][start:stop]

    for call, *arguments in code:
        if call == "array":
            name, *how = arguments
            arrays[name] = array(*how)
        elif call in ("Send", "Recv"):
            buf, keywords = arguments
            getattr(comm, call)(part(*buf), **keywords)
        elif call in ("Isend", "Irecv"):
            request, buf, keywords = arguments
            requests[request] = getattr(comm, call)(part(*buf), **keywords)
        elif call == "Sendrecv":
            out, into, keywords = arguments
            comm.Sendrecv(part(*out), recvbuf=part(*into), **keywords)
        elif call == "Wait":
            requests[arguments[0]].Wait()
        elif call == "Waitall":
            type(requests[arguments[0]]).Waitall([requests[name] for name in arguments])
        elif call == "Test":
            end_s = time.monotonic() + LIMIT_S / 2
            while not requests[arguments[0]].Test():
                if time.monotonic() > end_s:
                    raise TimeoutError("Test is never true")
        elif call == "write":
            part(*arguments[0])[...] = arguments[1]
        else:
            told.append(getattr(comm, call)(*arguments[0]))
    numbers = [np.asarray(x).astype("c16").tobytes() for x in arrays.values()]
    return [hashlib.sha256(data).hexdigest() for data in numbers], told


def main(folder):
    """Each rank appends a line for each program: how it has ended. The first mistake ends all."""
    import refgf.launch  # noqa: F401  ranks that wait give way to others

    from mpi4py import MPI  # isort: skip

    world = MPI.COMM_WORLD
    pair = world.Split(world.rank < 2)
    out = open(Path(folder, f"{world.rank}.jsonl"), "a")  # noqa: SIM115
    for program in json.loads(Path(folder, "programs.json").read_text()):
        comm = (pair if program["ranks"] == 2 else world).Dup()
        world.Barrier()
        watchdog = threading.Timer(program.get("limit_s", LIMIT_S), os._exit, [4])
        watchdog.start()
        if world.rank < program["ranks"]:
            try:
                ended = ["ends", execute(comm, program["code"][world.rank])]
            except BaseException as error:  # MPI's errors and mpi4py's
                ended = ["raises", f"{type(error).__name__}: {error}"]
            out.write(json.dumps([program["number"], *ended]) + "\n")
            out.flush()
            if ended[0] == "raises":
                os._exit(3)
        world.Barrier()
        watchdog.cancel()
    os._exit(0)  # what a wrong program has left may stop MPI_Finalize


if __name__ == "__main__":
    main(sys.argv[1])
