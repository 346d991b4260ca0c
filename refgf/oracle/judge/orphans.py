"""Children that judged code leaves behind are ended with it, in whatever session (Linux).

A process group ends the children in it, but not one that started a session of its own. So the
command makes itself the subreaper: the kernel then gives it the orphans among its descendants as
children, and it ends these. It owns its process, which a test that calls `verify` does not:
without `adopt` the other functions do nothing.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIMIT_S = 5.0  # for code that starts processes faster than they are ended
_adopted = False


def _prctl(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def adopt() -> None:
    """From now on orphans among the descendants become children of this process.

    SIGTERM and SIGHUP then raise SystemExit, so that they are ended before this process goes.
    """
    global _adopted
    _adopted = _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, frame: sys.exit(128 + received))


def follow_parent(parent: int) -> None:
    """This process gets SIGKILL when its parent goes, and goes at once if that has happened."""
    if _prctl(PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def children() -> list[int]:
    """Process numbers of the children of all threads of this process."""
    found = []
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended
            found += map(int, file.read_text().split())
    return found


def end_children() -> None:
    """SIGKILL for all children, and for theirs, which become children when their parents end."""
    stop_s = time.monotonic() + LIMIT_S
    while _adopted and (pids := children()) and time.monotonic() < stop_s:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
