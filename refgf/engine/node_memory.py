"""Memory that the ranks of one node share, and a barrier in it.

The memory is that of MPI 3's shared windows. Ranks that are threads share theirs anyway.
"""

import os
import sys
import time

import numpy as np

from refgf.comm.arguments import Comm

PAGE_BYTES, LINES_BYTES, FOLDER = 4096, 128, "/dev/shm"  # processors fetch two cache lines together
MESSAGE_BITS = 24  # of a barrier's counter: 1 in 17 million is missed; 39 bits count, for months
POLLS, SLEEP_S = 1000, 50e-6  # polls this many times with `sched_yield`, then sleeps between polls
yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))


class NodeMemory:
    """Rows of shared memory for all ranks of a node, with a barrier. Collective to make and free.

    Each rank increments its counter in shared memory and polls the others' until they catch up.
    If ranks share cores, that takes less than half of the time of MPI's own barrier. `Sync` keeps
    the order: what was written before the counter is read after it. The counter's lower bits are a
    message that the barrier compares. A counter has two places, used in turn, because a slow rank
    may still read the last one. Threads use their own barrier, which detects deadlocks.
    """

    def __init__(self, comm: Comm) -> None:
        if not share_memory(comm):
            raise ValueError(
                f"SharedMemory on rank {comm.Get_rank()}: got a {type(comm).__name__} of "
                f"{comm.Get_size()} ranks that do not share memory; wanted one of MPI, its ranks "
                "on one node; next: use hierarchical.py between nodes, or the ring"
            )
        self.node, self.windows = _split(comm), []
        self._threads = not type(self.node).__module__.startswith("mpi4py")
        if not self._threads:
            rank = self.node.Get_rank()
            counters = [memoryview(row[:16]).cast("q") for row in self.allocate(LINES_BYTES)]
            self.count, self.own = 0, counters[rank]
            self.others = counters[rank + 1 :] + counters[:rank]
            self.windows[0].Lock_all()

    def allocate(self, nbytes: int) -> np.ndarray:
        """Zeros (p, nbytes), uint8, that all ranks see; row r is for rank r. Collective."""
        size, rank = self.node.Get_size(), self.node.Get_rank()
        if self._threads:
            return self.node.bcast(None if rank else np.zeros((size, nbytes), np.uint8))
        self._require_room(nbytes * size)
        window = sys.modules["mpi4py.MPI"].Win.Allocate_shared(
            0 if rank else nbytes * size, 1, comm=self.node
        )
        self.windows.append(window)
        rows = np.frombuffer(window.Shared_query(0)[0], np.uint8).reshape(size, nbytes)
        rows[rank] = 0  # touched by its own rank first: long rows lie close to its processor
        self.node.Barrier()
        return rows

    def _require_room(self, nbytes: int) -> None:
        """MPI takes this memory from /dev/shm; a full one ends a process with SIGBUS."""
        if not os.path.isdir(FOLDER):
            return
        status = os.statvfs(FOLDER)
        free = self.node.bcast(status.f_bavail * status.f_frsize)  # all ranks decide alike
        if nbytes > free:
            raise ValueError(
                f"SharedMemory on rank {self.node.rank}: got {nbytes} bytes for the ranks of this "
                f"node; wanted at most what {FOLDER} has free, {free}; "
                "next: docker run --shm-size=<more>, or use the ring"
            )

    def barrier(self, message: int = 0) -> bool:
        """Wait for all ranks. Returns whether all passed the same message."""
        if self._threads:
            return len(set(self.node.allgather(message))) == 1
        self.count += 1
        place, least = self.count % 2, self.count << MESSAGE_BITS
        mine, equal = least | message % (1 << MESSAGE_BITS), True
        self.windows[0].Sync()
        self.own[place] = mine
        for other in self.others:
            polls = 0
            while (theirs := other[place]) < least:
                polls += 1
                yield_core() if polls < POLLS else time.sleep(SLEEP_S)
            equal = equal and theirs == mine
        self.windows[0].Sync()
        return equal

    def free(self) -> None:
        """Return the memory. Collective; a second call does nothing."""
        if self.windows:
            self.windows[0].Unlock_all()
        while self.windows:
            self.windows.pop().Free()
        if self.node:
            self.node.Free()
        self.node = None


def share_memory(comm: Comm) -> bool:
    """Do all ranks share memory? Collective."""
    if not hasattr(comm, "Split_type"):
        return False
    node = _split(comm)
    ranks_here = node.Get_size()
    node.Free()
    return ranks_here == comm.Get_size()


def whole(nbytes: int, unit: int = PAGE_BYTES) -> int:
    """nbytes rounded up to whole pages, or to a multiple of `unit`.

    Rows of different ranks then never share a cache line.
    """
    return -(-nbytes // unit) * unit


def _split(comm: Comm):
    mpi = sys.modules.get("mpi4py.MPI")
    return comm.Split_type(mpi.COMM_TYPE_SHARED if mpi else 0)
