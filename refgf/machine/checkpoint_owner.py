"""The owner of a folder of checkpoints: its lock, and what in it may be deleted.

folder/refgf.lock        locked by rank 0 while it lives: a second job in the folder is refused
folder/step-00000120/
    refgf-checkpoint.txt    written first: only a folder that has it is ever deleted
"""

import contextlib
import errno
import os
import re
import socket
import time
from pathlib import Path

from refgf.machine.checkpoint_files import MANIFEST

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

OWNER = "refgf-checkpoint.txt"
LOCK = "refgf.lock"
LOCK_WAIT_S = 3.0  # the ranks of a killed job may need a moment to end

_NAME = re.compile(r"step-\d{8}")
_WRITTEN = re.compile(r"manifest\.json(\.part)?|(shared|rank\d+)\.safetensors")
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
_held: dict[tuple[int, int], int] = {}  # (device, inode) of a lock file: its open descriptor


def hold(folder: Path) -> tuple[str, str]:
    """Lock `folder` for as long as this process lives; ("", "") if this process holds the lock.

    Returns (holder, "") if another process holds it, ("", reason) if the file system has no locks.
    The operating system releases the lock when the process ends, by whatever signal, so a killed
    job leaves nothing to clean up. Errors: OSError if the folder or the lock file cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    if path.exists() and _identity(path.stat()) in _held:
        return "", ""  # closing a second descriptor of the file would release the lock
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        holder, reason = _lock(file)
        if not holder and not reason:
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            _held[_identity(os.fstat(file))] = file
        return holder, reason
    finally:
        if file not in _held.values():
            os.close(file)


def _lock(file: int) -> tuple[str, str]:
    if fcntl is None:
        return "", "this system has no POSIX locks"
    deadline_s = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return "", ""
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return "", str(error)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        if time.monotonic() > deadline_s:
            holder = os.pread(file, 200, 0).decode(errors="replace").strip()
            return holder or "another process", ""
        time.sleep(0.05)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def complete(folder: Path) -> list[Path]:
    """The checkpoints in `folder` that have a manifest, newest first."""
    found = (manifest.parent for manifest in folder.glob(f"step-*/{MANIFEST}"))
    return sorted((path for path in found if _NAME.fullmatch(path.name)), reverse=True)


def remove_old(folder: Path, keep: int) -> None:
    """Delete our complete checkpoints but for the newest `keep`, and all incomplete ones."""
    whole = complete(folder)
    partial = [path for path in folder.glob("step-*") if path not in whole]
    for old in [path for path in whole if is_ours(path)][keep:] + partial:
        remove(old)


def is_ours(folder: Path) -> bool:
    """Whether `prepare` made this folder, so that its checkpoint may be deleted."""
    named = _NAME.fullmatch(folder.name) is not None
    return named and not folder.is_symlink() and (folder / OWNER).is_file()


def prepare(target: Path) -> None:
    """Make a folder with nothing but the owner file. FileExistsError if other files are there."""
    remove(target)  # damaged, and this run was resumed from the one before
    with contextlib.suppress(OSError):
        target.rmdir()  # empty: a run was killed before it wrote the owner file
    if os.path.lexists(target):
        raise FileExistsError(f"{target} has files that refgf did not write and does not delete")
    target.mkdir(parents=True)
    (target / OWNER).write_text(
        "A checkpoint of refgf: refgf may delete it while this file exists.\n"
    )


def remove(folder: Path) -> None:
    """Delete the checkpoint in `folder` if it is ours; files that no checkpoint writes stay.

    The manifest goes first, so that a half-deleted checkpoint does not count. The owner file goes
    last, so that the next call can finish.
    """
    if not is_ours(folder):
        return
    with contextlib.suppress(OSError):
        (folder / MANIFEST).unlink(missing_ok=True)
        for path in folder.iterdir():
            if _WRITTEN.fullmatch(path.name):
                path.unlink()
        (folder / OWNER).unlink()
        folder.rmdir()
