"""Decoded samples in memory that the ranks of a node share: one copy a node, not one a rank.

One file in /dev/shm for each node and job, mapped by its ranks:

    int64       slots taken
    int32 (n)   sample i: 0 not here, -1 on its way, k > 0 in slot k - 1
    slots       sample_bytes each

Its name is deleted as soon as all ranks of the node have mapped it. So the memory is the job's own, whatever else runs
beside it, and goes with the last rank, also when ranks are killed. (One killed in the moment between leaves a file that
refgf/launch/leftovers.py removes when the next job starts.)
"""

import contextlib
import fcntl
import mmap
import os
import tempfile

import numpy as np

PREFIX = "refgf_cache_"  # known to leftovers.py
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
ALIGN_BYTES = 64
ON_ITS_WAY = -1


def table_bytes(n: int) -> int:
    """What is not samples: the count and the table."""
    return -(-(8 + 4 * n) // ALIGN_BYTES) * ALIGN_BYTES


class SharedSamples:
    """get(index) -> sample or None; put(index, sample) -> is it kept? Made by all ranks together.

    nodes         ranks of each node (topology.nodes; or pretended ones)
    n, shape      samples of the data set, and the shape (H, W, C) of each, uint8
    limit_bytes   of a node's whole file: table and samples. What is kept stays; a sample that finds no slot is not kept
    expected      how many different samples this node will ask for (its shard); no more memory than that is taken
    Cost to make: two allgathers. The memory is taken at once, so that a full /dev/shm is an error here and not a SIGBUS
    in the middle of training.
    """

    def __init__(
        self, comm, nodes, n: int, shape: tuple, limit_bytes: int, expected: int | None = None
    ) -> None:
        table, sample_bytes = table_bytes(n), int(np.prod(shape))
        fitting = max(0, limit_bytes - table) // sample_bytes
        self.slots = min(fitting, n if expected is None else expected)
        self.nbytes = table + self.slots * sample_bytes if self.slots else 0
        ranks = next(node for node in nodes if comm.Get_rank() in node)
        with _shared_file(comm, ranks[0], self.nbytes) as self._lock_file:
            memory = mmap.mmap(self._lock_file, self.nbytes) if self.nbytes else b"\0" * table
            self._taken = np.frombuffer(memory, np.int64, 1)
            self._slot = np.frombuffer(memory, np.int32, n, 8)
            self._samples = np.frombuffer(
                memory, np.uint8, self.slots * sample_bytes, table if self.slots else 0
            )
            self._samples = self._samples.reshape(self.slots, *shape)

    @property
    def taken(self) -> int:
        return int(self._taken[0])

    def get(self, index: int) -> np.ndarray | None:
        """A view of the shared memory: copy it, do not write."""
        slot = self._slot[index]
        return self._samples[slot - 1] if slot > 0 else None

    def put(self, index: int, sample: np.ndarray) -> bool:
        """The slot is announced when the sample is in it: two locks, and with them the order of the writes."""
        if self._taken.flags.writeable is False or self.taken == self.slots:
            return False
        with self._lock():
            if self._slot[index] or self.taken == self.slots:
                return bool(self._slot[index])
            self._taken[0] += 1
            slot, self._slot[index] = self.taken, ON_ITS_WAY
        self._samples[slot - 1] = sample
        with self._lock():
            self._slot[index] = slot
        return True

    def close(self) -> None:
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    @contextlib.contextmanager
    def _lock(self):
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)


@contextlib.contextmanager
def _shared_file(comm, leader: int, nbytes: int):
    """This rank's own file descriptor of a new file of the node, None where nbytes is 0; without a name afterwards."""
    file, name, error = (
        _new_file(nbytes) if comm.Get_rank() == leader and nbytes else (None, "", "")
    )
    try:
        answers = comm.allgather((name, error))
        failed = next((rank for rank, (_, told) in enumerate(answers) if told), None)
        if failed is not None:
            raise ValueError(
                f"SharedSamples: rank {failed} got no {nbytes} bytes of shared memory: {answers[failed][1]}; "
                f"next: a smaller limit_bytes, or a larger {FOLDER}"
            )
        yield os.open(answers[leader][0], os.O_RDWR) if nbytes and file is None else file
        comm.allgather(None)  # every rank of the node has it
    finally:
        if name:
            os.unlink(name)


def _new_file(nbytes: int) -> tuple[int | None, str, str]:
    """(descriptor, path, "") of a file of so many zero bytes, or (None, "", why not)."""
    file, name = tempfile.mkstemp(prefix=PREFIX, dir=FOLDER)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, nbytes)  # all of it now
        else:
            os.ftruncate(file, nbytes)
    except OSError as caught:
        os.close(file)
        os.unlink(name)
        return None, "", str(caught)
    return file, name, ""
