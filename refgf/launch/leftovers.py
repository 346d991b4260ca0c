"""Removes files that killed MPI jobs left behind in /dev/shm and /tmp.

An MPI job that ends normally deletes its files in /dev/shm. A killed job does not: MPICH leaves
1 to 8 MB (`mpich_shm_...`), Open MPI 16 MB a rank (`sm_segment...`). Once the memory is full, the
next job dies with SIGBUS. MPICH's launcher leaves 6 kB in /tmp on each node (`hydra_hwloc_...`).

`remove()` deletes a file only if all of this holds: MPI libraries or our cache use its name, it
belongs to this user, it is older than MIN_AGE_S, and no process has it mapped or open. A job that
is just starting always has its file open or mapped, so the age is only a margin. Inside a user
namespace (`unshare --user`, rootless containers) this user's processes outside of it cannot be
inspected; if there is one, nothing is deleted. Processes that share /dev/shm but not /proc, such as
those of two containers with the host's IPC, are not detected: start one job at a time there.
"""

import os
import time
from collections.abc import Iterable

FOLDER = "/dev/shm"
FOLDERS = FOLDER, "/tmp"
PREFIXES = (
    "mpich_shm_",  # MPICH 4 and 5
    "mpich_shar_",  # MPICH 3
    "sm_segment.",  # Open MPI 5
    "vader_segment.",  # Open MPI 4
    "open_mpi.",  # Open MPI, backing files
    "osc_sm.",  # Open MPI, shared windows
    "Intel_MPI_",  # Intel MPI
    "ucx_shm_posix_",  # UCX, below MPICH and Open MPI
    "refgf_cache_",  # refgf/papers/datacache/memory.py; its file has a name only for a moment
    "refgf_progress_",  # refgf/launch/watchdog.py
    "hydra_hwloc_xmlfile_",  # MPICH's launcher keeps it open; in /tmp, whatever TMPDIR says
)
MIN_AGE_S = 2.0
RANK_BYTES = 1_100_000  # what MPICH 5 takes in /dev/shm for each rank of a node when it starts


def candidates(folder: str = FOLDER, now_s: float | None = None) -> dict[str, int]:
    """{name: bytes} of this user's MPI files in `folder` of at least MIN_AGE_S; {} without it."""
    now_s = time.time() if now_s is None else now_s
    found = {}
    for name in _list_folder(folder):
        if not name.startswith(PREFIXES):
            continue
        try:
            status = os.lstat(os.path.join(folder, name))
        except OSError:  # its job has just ended
            continue
        age_s = now_s - max(status.st_mtime, status.st_ctime)
        if status.st_uid == os.getuid() and age_s >= MIN_AGE_S:
            found[name] = status.st_size
    return found


def find_used(names: Iterable[str], proc: str = "/proc") -> set[str]:
    """The names that a process has mapped or open; all of them if that cannot be determined.

    File descriptors are read before mappings, because a job opens its file, maps and closes it.
    """
    names, used = set(names), set()
    for pid in filter(str.isdigit, _list_folder(proc)):
        process = os.path.join(proc, pid)
        try:
            if os.stat(os.path.join(process, "maps")).st_uid != os.getuid():
                continue  # another user's process cannot map this user's private files
            text = _open_files(process) + _mappings(process)
        except (FileNotFoundError, ProcessLookupError):  # the process has ended
            continue
        except PermissionError:
            if _in_user_namespace(proc):
                return names
            continue  # not inspectable, like ssh-agent; MPI ranks are
        used |= {name for name in names if name in text}
    return used


def remove(folders: Iterable[str] = FOLDERS, proc: str = "/proc") -> dict[str, int]:
    """Delete the candidates that no process uses; return their {name: bytes}."""
    removed = {}
    for folder in folders:
        found = candidates(folder)
        used = find_used(found, proc) if found else set()
        for name in found.keys() - used:
            try:
                os.unlink(os.path.join(folder, name))
            except OSError:  # another job of this user has deleted it
                continue
            removed[name] = found[name]
    return removed


def shortage(ranks: int, folder: str = FOLDER) -> str | None:
    """A sentence if `folder` has no room for MPI to start so many ranks on this node, else None.

    To be called on the node's first rank before MPI starts, because MPI would die with SIGBUS.
    """
    try:
        space = os.statvfs(folder)
    except OSError:  # no such folder: MPI takes another way
        return None
    free, wanted = space.f_bavail * space.f_frsize, ranks * RANK_BYTES
    if free >= wanted:
        return None
    return (
        f"{folder}: got {free / 1e6:.1f} MB free; wanted {wanted / 1e6:.1f} MB, which MPI takes "
        f"for {ranks} ranks on one node; next: ls -l {folder} and delete what no program uses, "
        "or start fewer ranks"
    )


def _in_user_namespace(proc: str) -> bool:
    with open(os.path.join(proc, "self", "uid_map")) as file:
        mapping = file.read().split()
    return mapping != ["0", "0", "4294967295"]  # the initial namespace maps users to themselves


def _open_files(process: str) -> str:
    links = []
    for number in os.listdir(os.path.join(process, "fd")):
        try:
            links.append(os.readlink(os.path.join(process, "fd", number)))
        except FileNotFoundError:  # just closed
            continue
    return "\n".join(links)


def _mappings(process: str) -> str:
    with open(os.path.join(process, "maps"), errors="replace") as file:
        return file.read()


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
