"""Another user of this machine takes our names in /dev/shm and /tmp first, and looks in (as root).

A job of this user must end as if alone, or be refused; the other user's things stay as they are.
While it runs, its files are closed to others, and its ranks listen on the loopback only. (MPICH's
launcher itself listens everywhere, and has no option against it.)
"""

import contextlib
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

from refgf.launch import leftovers
from tests.attack.fate import family, fate_of, judge
from tests.support.jobs import mpiexec

NOBODY, PIDS_AHEAD, LIMIT_S = 65534, 400, 60.0
PREFIXES = (*leftovers.PREFIXES, "refgf-scratch-")  # of lessons/lab/cache/scratch_folder.py
LOOPBACK = "0100007F", "0" * 24 + "01000000"  # in /proc/net/tcp and tcp6
JOB = """
import refgf.launch, time
import numpy as np
from mpi4py import MPI
from refgf.engine.shared import SharedMemory
with SharedMemory(MPI.COMM_WORLD) as allreduce:
    allreduce(np.ones(1000, np.float32))
    time.sleep(0.3)
"""
THINGS = {
    "file": lambda path, target: os.mknod(path, 0o100666),
    "pipe": lambda path, target: os.mknod(path, 0o010666),
    "socket": lambda path, target: os.mknod(path, 0o140666),
    "folder": lambda path, target: os.mkdir(path, 0o777),
    "link": lambda path, target: os.symlink(target, path),
}


def take(thing: str, target: Path, made: list[str]) -> None:
    """As the other user: names that a job which starts now may take or clean away."""
    last, mask = int(Path("/proc/loadavg").read_text().split()[-1]), os.umask(0)
    names = [f"/dev/shm/refgf_progress_{last + ahead}" for ahead in range(PIDS_AHEAD)]
    names += [f"{folder}/{prefix}taken" for folder in leftovers.FOLDERS for prefix in PREFIXES]
    os.seteuid(NOBODY)
    try:
        for path in names:
            with contextlib.suppress(FileExistsError):  # of a job that runs
                THINGS[thing](path, target)
                made.append(path)
    finally:
        os.seteuid(0)
        os.umask(mask)


def state(path: str) -> tuple | None:
    """Type, owner and size of what has this name."""
    return os.lstat(path)[:7] if os.path.lexists(path) else None


def exposed(launcher: int) -> set[str]:
    """Files that others may use; where ranks listen beyond the loopback, unless they inherit it."""
    found, sockets, inherited = set(), {}, opened(launcher)
    for path in (Path(folder, name) for folder in leftovers.FOLDERS for name in os.listdir(folder)):
        with contextlib.suppress(OSError):  # it has gone
            status = path.lstat()
            ours = path.name.startswith(PREFIXES) and status.st_uid == os.getuid()
            if ours and status.st_mode & 0o077:
                found.add(f"{path} is open to others")
    tables = "".join(Path("/proc/net", name).read_text() for name in ("tcp", "tcp6"))
    for words in map(str.split, tables.splitlines()):
        if words[3] == "0A" and not words[1].startswith(LOOPBACK):
            sockets[f"socket:[{words[9]}]"] = f"listens on {words[1]}"
    ranks = opened(*family(launcher)) - inherited - opened(launcher)  # it may close one meanwhile
    return found | {sockets[link] for link in ranks & sockets.keys()}


def opened(*pids: int) -> set[str]:
    """What these processes have open."""
    links = set()
    for folder in (f"/proc/{pid}/fd" for pid in pids):
        with contextlib.suppress(OSError):  # it has ended
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):  # closed meanwhile
                    links.add(os.readlink(f"{folder}/{name}"))
    return links


def case(rng: random.Random) -> tuple[str, Callable]:
    thing, ranks = rng.choice(list(THINGS)), rng.choice((2, 3, 5))

    def attack(folder: Path) -> list[str]:
        if os.getuid():
            return []  # only root can be two users
        victim, seen, taken = folder / "victim", set(), []
        victim.write_text("kept")
        victim.chmod(0o666)

        def look(launcher: int, seconds: float) -> bool:
            seen.update(exposed(launcher))
            return seconds > LIMIT_S

        try:
            take(thing, victim, taken)
            before = [*map(state, taken)]
            command = [mpiexec(), "-n", str(ranks), sys.executable, "-c", JOB]
            wrong = judge(fate_of(command, folder, strike=look), lost=False)
            if [*map(state, taken)] != before or victim.read_text() != "kept":
                wrong.append("the other user's things have changed")
        finally:
            for path in filter(os.path.lexists, taken):
                os.rmdir(path) if thing == "folder" else os.unlink(path)
        return wrong + sorted(seen)

    return f"the names of a job of {ranks} ranks are taken: each is a {thing}", attack
