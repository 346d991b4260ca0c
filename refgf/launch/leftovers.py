"""Shared-memory files that killed MPI jobs left behind.

An MPI job that ends normally deletes its files in /dev/shm. One that is killed does not: MPICH leaves 1 to 8 MB
(`mpich_shm_...`), Open MPI 16 MB a rank (`sm_segment...`), until the memory is full and the next job dies with SIGBUS.

`remove()` deletes such a file only if all of this holds: its name is one that MPI libraries or our cache give, it
belongs to this user, it is older than MIN_AGE_S, and no process has it mapped or open. A job that is just starting
always has its file open or mapped, so the age is only a margin. Inside a user namespace (`unshare --user`, rootless
containers) this user's processes outside of it cannot be looked into: where there is one, nothing is deleted. Not seen
are processes that share /dev/shm without sharing /proc, as of two containers with the host's IPC: start one job at a
time there.
"""

import os
import time

FOLDER = "/dev/shm"
PREFIXES = (
    "mpich_shm_",  # MPICH 4 and 5
    "mpich_shar_",  # MPICH 3
    "sm_segment.",  # Open MPI 5
    "vader_segment.",  # Open MPI 4
    "open_mpi.",  # Open MPI, backing files
    "osc_sm.",  # Open MPI, shared windows
    "Intel_MPI_",  # Intel MPI
    "ucx_shm_posix_",  # UCX, below MPICH and Open MPI
    "refgf_cache_",  # refgf/papers/datacache/memory.py; has a name for a moment only
)
MIN_AGE_S = 2.0


def candidates(folder: str = FOLDER, now_s: float | None = None) -> dict[str, int]:
    """{name: bytes} of this user's MPI files in `folder` that are old enough; empty where there is no such folder."""
    now_s = time.time() if now_s is None else now_s
    found = {}
    for name in _listing(folder):
        if not name.startswith(PREFIXES):
            continue
        try:
            status = os.lstat(os.path.join(folder, name))
        except OSError:  # gone meanwhile: its job has just ended
            continue
        if status.st_uid == os.getuid() and now_s - max(status.st_mtime, status.st_ctime) >= MIN_AGE_S:
            found[name] = status.st_size
    return found


def in_use(names, proc: str = "/proc") -> set[str]:
    """Those of `names` that some process has mapped or open; all of them where that cannot be found out.

    File descriptors are read before mappings: a job opens its file, maps it, and only then closes it.
    """
    names, used = set(names), set()
    for pid in filter(str.isdigit, _listing(proc)):
        process = os.path.join(proc, pid)
        try:
            if os.stat(os.path.join(process, "maps")).st_uid != os.getuid():
                continue  # another user's process cannot map this user's private files
            text = _open_files(process) + _mappings(process)
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        except PermissionError:
            if _in_user_namespace(proc):
                return names
            continue  # closed to inspection, as ssh-agent is; MPI ranks are not
        used |= {name for name in names if name in text}
    return used


def remove(folder: str = FOLDER, proc: str = "/proc") -> dict[str, int]:
    """Delete what `candidates` finds and nobody uses; {name: bytes} of what was deleted."""
    found = candidates(folder)
    used = in_use(found, proc) if found else set()
    removed = {}
    for name in found.keys() - used:
        try:
            os.unlink(os.path.join(folder, name))
        except OSError:  # another job of this user was quicker
            continue
        removed[name] = found[name]
    return removed


def _in_user_namespace(proc: str) -> bool:
    with open(os.path.join(proc, "self", "uid_map")) as file:
        return file.read().split() != ["0", "0", "4294967295"]  # the initial one maps all users to themselves


def _open_files(process: str) -> str:
    links = []
    for number in os.listdir(os.path.join(process, "fd")):
        try:
            links.append(os.readlink(os.path.join(process, "fd", number)))
        except FileNotFoundError:  # closed meanwhile
            continue
    return "\n".join(links)


def _mappings(process: str) -> str:
    with open(os.path.join(process, "maps"), errors="replace") as file:
        return file.read()


def _listing(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
