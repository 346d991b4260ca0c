"""Decoded samples in memory that the ranks of a node share: one copy a node, not one a rank.

Each node and job has one file in /dev/shm, which its ranks map:

    int64       slots in use
    int32 (n)   sample i: 0 absent, -1 being written, k > 0 in slot k - 1
    slots       sample_bytes each

Its name is deleted as soon as all ranks of the node have mapped it. So no other job sees the
memory, and the kernel frees it with the last rank, even after a kill. If a rank is killed before
the name is deleted, refgf/launch/leftovers.py removes the file when the next job starts.
"""

import contextlib
import mmap
import os
import tempfile

import numpy as np

from refgf.arguments import checked, require
from refgf.comm.arguments import Comm
from refgf.papers.datacache import locks
from refgf.papers.datacache.locks import exclusive

PREFIX = "refgf_cache_"  # known to leftovers.py
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
ALIGN_BYTES = 64
BEING_WRITTEN = -1


def table_bytes(n: int) -> int:
    """Size of the count and the table for n samples, before the first slot."""
    return -(-(8 + 4 * n) // ALIGN_BYTES) * ALIGN_BYTES


@checked
class SharedSamples:
    """One rank's access to its node's shared samples. Collective to make.

    nodes         ranks of each node (topology.nodes, or any partition of the ranks)
    n, shape      samples of the data set, and the shape (H, W, C) of each, uint8
    limit_bytes   of a node's file, table and samples; samples are never removed for others
    expected      number of samples this node will read (its shard); no further memory is taken

    Cost: two allgathers of a few bytes. All memory is allocated at the start, so a full /dev/shm is
    a ValueError here and not a SIGBUS during training.
    """

    def __init__(
        self,
        comm: Comm,
        nodes: list[list[int]],
        n: int,
        shape: tuple[int, ...],
        limit_bytes: int,
        expected: int | None = None,
    ) -> None:
        locks.require(comm)
        ranks = _node_of(comm, nodes)
        require(
            0 <= n < 1 << 31 and min(shape, default=0) > 0 and limit_bytes >= 0,
            f"SharedSamples on rank {comm.Get_rank()}",
            f"n={n}, shape={shape}, limit_bytes={limit_bytes}",
            "n below 2^31, limit_bytes of 0 or more, and a shape (H, W, C) of numbers above 0",
            "the shape of the data set's images",
        )
        table, sample_bytes = table_bytes(n), int(np.prod(shape))
        fitting = max(0, limit_bytes - table) // sample_bytes
        self.n = n
        self.slots = min(fitting, n if expected is None else expected)
        self.nbytes = table + self.slots * sample_bytes if self.slots else 0
        with _shared_file(comm, ranks[0], self.nbytes) as self._lock_file:
            memory = mmap.mmap(self._lock_file, self.nbytes) if self.nbytes else b"\0" * table
            self._taken = np.frombuffer(memory, np.int64, 1)
            self._slot = np.frombuffer(memory, np.int32, n, 8)
            start = table if self.slots else 0
            samples = np.frombuffer(memory, np.uint8, self.slots * sample_bytes, start)
            self._samples = samples.reshape(self.slots, *shape)

    @property
    def taken(self) -> int:
        """Slots in use."""
        return int(self._taken[0])

    def get(self, index: int) -> np.ndarray | None:
        """The sample as a view of the shared memory (copy it, do not write), or None."""
        slot = self._slot[index]
        return self._samples[slot - 1] if slot > 0 else None

    def put(self, index: int, sample: np.ndarray) -> bool:
        """Store a sample; return whether the memory has it now.

        The slot is published after the sample is in it. The two locks order these writes.
        """
        if self._taken.flags.writeable is False or self.taken == self.slots:
            return False
        with self._lock():
            if self._slot[index] or self.taken == self.slots:
                return bool(self._slot[index])
            self._taken[0] += 1
            slot, self._slot[index] = self.taken, BEING_WRITTEN
        self._samples[slot - 1] = sample
        with self._lock():
            self._slot[index] = slot
        return True

    def close(self) -> None:
        """Close the lock's file; the mapping ends with its last user."""
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _lock(self):
        return exclusive(self._lock_file)


def _node_of(comm: Comm, nodes: list[list[int]]) -> list[int]:
    """The ranks of this rank's node; ValueError unless every rank of comm is on one node."""
    ranks = sorted(rank for node in nodes for rank in node)
    require(
        ranks == list(range(comm.Get_size())),
        f"SharedSamples on rank {comm.Get_rank()}",
        f"nodes {nodes}",
        f"each rank 0 to {comm.Get_size() - 1} on one node",
        "topology.nodes(comm)",
    )
    return next(node for node in nodes if comm.Get_rank() in node)


@contextlib.contextmanager
def _shared_file(comm: Comm, leader: int, nbytes: int):
    """This rank's descriptor of a new file of the node, without a name; None for 0 bytes."""
    file, name, error = None, "", ""
    if comm.Get_rank() == leader and nbytes:
        file, name, error = _allocate_file(nbytes)
    try:
        answers = comm.allgather((name, error))
        for rank, (_, failure) in enumerate(answers):
            if failure:
                raise ValueError(
                    f"SharedSamples on rank {rank}: got {failure}; wanted {nbytes} bytes of shared "
                    f"memory; next: a smaller limit_bytes, or a larger {FOLDER}"
                )
        yield os.open(answers[leader][0], os.O_RDWR) if nbytes and file is None else file
        comm.allgather(None)  # every rank of the node has it
    finally:
        if name:
            os.unlink(name)


def _allocate_file(nbytes: int) -> tuple[int | None, str, str]:
    """(descriptor, path, "") of a new file of nbytes zeros, or (None, "", reason)."""
    file, name = tempfile.mkstemp(prefix=PREFIX, dir=FOLDER)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, nbytes)
        else:
            os.ftruncate(file, nbytes)
    except OSError as caught:
        os.close(file)
        os.unlink(name)
        return None, "", str(caught)
    return file, name, ""
