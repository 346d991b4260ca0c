"""Exclusive locks on open files: between processes, and between the threads of one.

    with exclusive(file): ...       waits for the lock of a file descriptor

Systems without POSIX locks (Windows) have locks between threads only: `require` refuses a job of
several processes there.
"""

import collections
import contextlib
import os
import threading
from collections.abc import Iterator

from refgf.comm.arguments import Comm

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_locks: dict[tuple[int, int], threading.Lock] = collections.defaultdict(threading.Lock)


@contextlib.contextmanager
def exclusive(file: int) -> Iterator[None]:
    """Hold the lock of this file. Two descriptors of one file exclude each other."""
    if fcntl is None:
        with _lock_in_this_process(file):
            yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def require(comm: Comm) -> None:
    """Raise OSError if ranks of `comm` are processes that cannot lock files for each other."""
    if fcntl is None and comm.Get_size() > 1 and not getattr(comm, "host_only", False):
        raise OSError(
            f"file lock on rank {comm.Get_rank()}: got a system without POSIX locks and "
            f"{comm.Get_size()} processes; wanted threads of one; next: --threads, or WSL 2"
        )


def _lock_in_this_process(file: int) -> threading.Lock:
    status = os.fstat(file)
    return _locks[status.st_dev, status.st_ino]
