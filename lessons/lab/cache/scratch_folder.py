"""A temporary folder for a lesson: removed at the end, on Ctrl-C, and when its process is killed.

    with scratch_folder.folder() as path: ...

After Ctrl-C mpiexec does not wait for a rank's clean-up. Therefore a shell waits on a pipe that
only the rank holds, and removes the folder once the rank has ended for any reason. If the shell is
killed too (Slurm, an emulated cluster), the next lesson that needs a folder removes the old one. A
user of a folder holds a lock on the file `owner` in it, and the kernel releases the lock of a
killed process.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time

try:
    import fcntl
except ImportError:  # Windows has neither these locks nor a shell
    fcntl = None

PREFIX = "refgf-scratch-"
YOUNG_S = 2.0  # a younger folder's owner may not have locked it yet
# rm fails where another rank, not yet ended, writes a file into a folder that it is removing
REMOVE = 'read -r line; for s in 0.1 0.2 0.5 1 2; do rm -rf "$1" && break; sleep "$s"; done'


@contextlib.contextmanager
def folder():
    """Yields the path of a new empty folder."""
    if fcntl is None:
        with tempfile.TemporaryDirectory(prefix=PREFIX) as path:
            yield path
        return
    remove_abandoned()
    path = tempfile.mkdtemp(prefix=PREFIX)
    owner = os.open(os.path.join(path, "owner"), os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(owner, fcntl.LOCK_EX)
    cleaner = subprocess.Popen(
        ["sh", "-c", REMOVE, "sh", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,  # else the launcher would wait for it
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # else Ctrl-C would end it as well
    )
    try:
        yield path
    finally:
        cleaner.stdin.close()
        cleaner.wait()
        os.close(owner)


def remove_abandoned() -> list[str]:
    """Delete this user's folders without a living owner; returns their paths."""
    removed = []
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [
            entry.path
            for entry in entries
            if entry.name.startswith(PREFIX) and _is_old_and_mine(entry)
        ]
    for path in found:
        with contextlib.suppress(OSError):  # in use, or another lesson has removed it already
            owner = os.open(os.path.join(path, "owner"), os.O_RDWR)
            try:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
                removed.append(path)
            finally:
                os.close(owner)
    return removed


def _is_old_and_mine(entry) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return status.st_uid == os.getuid() and time.time() - status.st_mtime >= YOUNG_S
