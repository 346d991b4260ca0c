"""Folders for one judged program; those that a killed command left go at the next start.

    with scratch.folder("refgf-case-") as path:

The kernel releases the lock on a folder when its command goes, however it goes. So a folder of this
user whose lock is free, and which is older than MIN_AGE_S, belongs to nobody.
"""

import contextlib
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: what was left stays
    fcntl = None

PREFIXES = "refgf-case-", "refgf-step-", "refgf-reveal-"
MIN_AGE_S = 10.0  # a new folder is not locked yet


@contextlib.contextmanager
def folder(prefix: str) -> Iterator[str]:
    """The path of an empty folder in the system's folder for temporary files."""
    remove_abandoned()
    new = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    with new as path, _locked(path):
        yield path


@functools.cache
def remove_abandoned() -> None:
    """Remove folders of commands that were killed; once in each process."""
    for path in map(str, Path(tempfile.gettempdir()).glob("refgf-*")):
        if fcntl and os.path.basename(path).startswith(PREFIXES):
            with contextlib.suppress(OSError), _locked(path) as status:
                age_s = time.time() - max(status.st_mtime, status.st_ctime)
                if status.st_uid == os.getuid() and age_s >= MIN_AGE_S:
                    shutil.rmtree(path, ignore_errors=True)  # follows no link


@contextlib.contextmanager
def _locked(path: str) -> Iterator[os.stat_result | None]:
    """The status of a folder of which this process has the lock; OSError: it is not free."""
    if not fcntl:
        yield None
        return
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield os.fstat(opened)
    finally:
        os.close(opened)
