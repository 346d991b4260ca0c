"""Some ranks work while the others sleep, so that they take no core from them.

    result = parts.alone(run, function)          on rank 0
    result = parts.first(run, 2, function)       function(part) on ranks 0 and 1; `part` is a Run of two ranks
"""

import copy
import time

import numpy as np

import kit
from refgf.comm.trace import TracedComm

GLANCE_S = 0.02  # a rank that waits inside MPI asks all the time, and takes a core; one that sleeps looks this often


def alone(run: kit.Run, function):
    """function() on rank 0; None on the others."""
    result = function() if run.rank == 0 else None
    wait_for_the_first(run, 1)
    return result


def first(run: kit.Run, count: int, function):
    """function(part) on the first `count` ranks, which keep their numbers; None on the others.

    What the part sends is counted in run.comm too.
    """
    comm = run.plain.Split(int(run.rank >= count), run.rank)
    result = None
    if run.rank < count:
        part = copy.copy(run)
        part.plain, part.size = comm, count
        part.comm = TracedComm(kit.linked(comm, run.options), shared=run.comm)
        result = function(part)
        run.opaque = run.opaque or part.opaque
    wait_for_the_first(run, count)
    comm.Free()
    return result


def wait_for_the_first(run: kit.Run, count: int) -> None:
    """Ranks from `count` on sleep until rank 0 has come here, the others do not wait."""
    if run.options.threads:
        run.plain.Barrier()  # a thread that waits sleeps
    elif run.rank == 0:
        for rank in range(count, run.size):
            run.plain.Send(np.empty(0), rank)
    elif run.rank >= count:
        request = run.plain.Irecv(np.empty(0), 0)
        while not request.Test():
            time.sleep(GLANCE_S)
