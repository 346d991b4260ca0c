"""A checkpoint on the disk: its files, what of them may be deleted, and the lock of the folder."""

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import re
import socket
import time
from pathlib import Path

import numpy

from refgf.device import to_host

MANIFEST = "manifest.json"
OWNER = "refgf-checkpoint.txt"
LOCK = "refgf.lock"
LOCK_WAIT_S = 3.0  # the ranks of a killed job may need a moment to end

_NAME = re.compile(r"step-\d{8}")
_WRITTEN = re.compile(r"manifest\.json(\.part)?|shared\.npz|rank\d+\.npz")
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


def is_named(folder: Path) -> bool:
    """Whether a checkpoint could have this name."""
    return _NAME.fullmatch(folder.name) is not None


def is_ours(folder: Path) -> bool:
    """Whether `prepare` made this folder, so that its checkpoint may be deleted."""
    return is_named(folder) and not folder.is_symlink() and (folder / OWNER).is_file()


def prepare(target: Path) -> None:
    """Make a folder with nothing but the owner file. FileExistsError if other files are there."""
    remove(target)  # damaged, and this run was resumed from the one before
    with contextlib.suppress(OSError):
        target.rmdir()  # empty: a run was killed before it wrote the owner file
    if os.path.lexists(target):
        raise FileExistsError(f"{target} has files of others, which are not deleted")
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


def write_arrays(path: Path, arrays: dict, facts: dict) -> dict:
    """Write arrays and facts (JSON) to one .npz, synced to the disk; its {"bytes", "sha256"}."""
    text = numpy.frombuffer(json.dumps(facts).encode(), numpy.uint8)
    with open(path, "wb") as file:
        numpy.savez(file, facts=text, **{name: to_host(array) for name, array in arrays.items()})
        file.flush()
        os.fsync(file.fileno())
    return _entry(path)


def read_arrays(path: Path) -> tuple[dict, dict]:
    """(arrays, facts) of `write_arrays`."""
    with numpy.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, json.loads(arrays.pop("facts").tobytes())


def _entry(path: Path) -> dict:
    with open(path, "rb") as file:
        return {
            "bytes": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def write_manifest(target: Path, about: dict) -> None:
    """Under another name first: a manifest is there completely or not at all."""
    unfinished = target / f"{MANIFEST}.part"
    with open(unfinished, "w") as file:
        json.dump(about, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(target / MANIFEST)
    for folder in (target, target.parent):
        _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    """Without this a file's name may be lost with the power although its content is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def damage(path: Path, entry: dict | None) -> str | None:
    """What is wrong with a file, compared with the manifest's entry."""
    if entry is None:
        return f"{path.name} is not in the manifest"
    try:
        got = _entry(path)
    except OSError as error:
        return str(error)
    if got["bytes"] != entry["bytes"]:
        return f"{path.name} has {got['bytes']} bytes, should have {entry['bytes']}"
    return None if got == entry else f"{path.name} has changed since it was written"


def read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        return f"not readable: {error}"


@functools.cache
def code_hash() -> str:
    """SHA-256 over the sources of this package, as they are when a run first asks."""
    root, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
