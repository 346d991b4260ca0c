"""Judged code and its children end with the command, in whatever session they are (Linux).

    verify ---- keeper ---- judged process ---- its children

A process group ends the children in it, but not one that started a session of its own. And a
command that gets SIGKILL ends nothing. So a keeper stands between them: the kernel gives it the
orphans among its descendants as children and tells it when the command goes. Then, or when the
judged process has ended, it ends all of them.

The command itself is a subreaper too (`adopt`), for what is left where a keeper was killed. It owns
its process, which a test that calls `verify` does not: without `adopt`, `end_children` does
nothing.
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


def die_with_parent() -> None:
    """The kernel ends this process when its parent ends (Linux)."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def keep(command: int) -> None:
    """Return in a child, which will be judged. This process becomes its keeper, with its exit code.

    command: the number of the process that started this one. To be called while this process is
    small: the keeper stays as large as it is now, and all memory is copied that either one changes.
    """
    if not sys.platform.startswith("linux"):
        return
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    judged = os.fork()
    if not judged:
        die_with_parent()  # if somebody kills the keeper
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        return
    try:
        _wait(command, judged)
    finally:
        os._exit(1)


def _wait(command: int, judged: int) -> None:
    """Until one of them has ended; end all others, and this process as `judged` ended."""
    global _adopted
    _adopted, ended = True, None
    for file in os.listdir("/proc/self/fd"):  # the pipes: the command waits for their end
        with contextlib.suppress(OSError):
            os.close(int(file) if int(file) > 2 else -1)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.getppid() == command and not (ended := os.waitid(os.P_PID, judged, how)):
        signal.sigwait({signal.SIGCHLD, signal.SIGTERM})
    end_children()
    if ended and ended.si_code != os.CLD_EXITED:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(ended.si_status, signal.SIG_DFL)
        os.kill(os.getpid(), ended.si_status)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.si_status})
    os._exit(ended.si_status if ended else 1)


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
