"""Run a function on the first few ranks while the others sleep.

    result = rank_subset.first(run, 2, function)       function(part) on ranks 0 and 1

`part` is a Run of two ranks.
"""

import copy

import kit
from refgf.machine.trace import TracedComm


def first(run: kit.Run, count: int, function):
    """Run function(part) on the first `count` ranks, which keep their numbers; others return None.

    Collective on all ranks. Messages of the part are counted in run.comm too.
    """
    comm = run.plain.Split(int(run.rank >= count), run.rank)
    result = None
    if run.rank < count:
        part = copy.copy(run)
        part.plain, part.size = comm, count
        part.comm = TracedComm(run.regime.comm(comm), shared=run.comm)
        part.native = part.comm.over(lambda _: comm)
        result = function(part)
        run.opaque = run.opaque or part.opaque
    run.on_rank_0(lambda: None)  # sleep until rank 0 arrives
    comm.Free()
    return result
