"""Starts a program that is attacked, sees how it ends, and judges that (Linux).

    fate = fate_of([python, ...] or a function, folder, strike=..., limit_s=5)
    broken = judge(fate, lost=True)

A fork of this process calls a function, with its modules already loaded, so a case takes
milliseconds. Every program has a session of its own. This process adopts what a program leaves, so
nothing escapes: what still runs PATIENCE_S after the program's end was left behind, and is killed.
"""

import contextlib
import ctypes
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.jobs import clean_environment

GONE_S = 5.0  # how soon after its cause a program must have ended
PATIENCE_S = 2.0
MEMORY_BYTES = 6 << 30  # of one process
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SENTENCE = re.compile(r"next:|; wanted |usage: ")
RAW = "Fatal error in |Message truncated|Other MPI error|Fatal Python error|Segmentation fault"
RAW = re.compile(f"{RAW}|Assertion failed|can't start new thread|MemoryError")
TRACEBACK = "Traceback (most recent call last)"

prctl = ctypes.CDLL(None).prctl


@dataclass(frozen=True)
class Fate:
    code: int | None  # None: still ran at its limit; -9: ended by SIGKILL
    out: str
    err: str
    seconds: float  # from the cause to the end
    left: list[str]  # names of processes that were left behind


def judge(
    fate: Fate, *, lost: bool | None = True, says: bool = True, own: bool = False
) -> list[str]:
    """What is broken.

    lost  True: the exit code must not be 0. False: it must be. None: either
    says  an exit code that is not 0 needs a sentence that says what to try
    own   the code of a user raised: its traceback is welcome
    """
    last, raw = fate.err.strip().rpartition("\n")[2][-150:], RAW.search(fate.err)
    silent = fate.code and says and not SENTENCE.search(fate.err)
    found = {
        f"still ran {fate.seconds:.0f} s after its cause": fate.code is None,
        f"left behind: {', '.join(fate.left)}": fate.left,
        "exit code 0 although something was lost": fate.code == 0 and lost,
        f"exit code {fate.code} although nothing was wrong: {last}": fate.code and lost is False,
        f"no sentence that says what to try: {last}": silent,
        f"a raw error: {raw and raw[0]}": (
            says and raw and not SENTENCE.search(fate.err, raw.end())
        ),
        f"a bare traceback: {last}": TRACEBACK in fate.err and not own,
    }
    return [text for text, is_so in found.items() if is_so]


def fate_of(
    program: list[str] | Callable,
    folder: Path,
    *,
    strike: Callable[[int, float], object] = lambda pid, seconds: True,
    limit_s: float = GONE_S,
    env: dict | None = None,
) -> Fate:
    """Run the program in `folder`, until limit_s after its cause, by default its start.

    strike  called with the process and the seconds so far until it is true: this is the cause
    env     more variables
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    before, environment = set(family()), clean_environment({"TMPDIR": str(folder)} | (env or {}))
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid, left = os.fork() or _become(program, folder, environment, (out, err)), []
        try:
            start_s = cause_s = time.monotonic()
            while not (has_ended(pid) or strike(pid, cause_s - start_s)):
                time.sleep(0.002)
                cause_s = time.monotonic()
            while not (done := has_ended(pid)) and time.monotonic() < cause_s + limit_s:
                time.sleep(0.005)
            end_s = time.monotonic()
            while done and (left := _alive(before | {pid})):
                if time.monotonic() > end_s + PATIENCE_S:
                    break
                time.sleep(0.02)
        finally:
            code = _end(pid, before)
            prctl(PR_SET_CHILD_SUBREAPER, 0)
        texts = [stream.seek(0) or stream.read().decode(errors="replace") for stream in (out, err)]
    return Fate(code if done else None, *texts, end_s - cause_s, left)


def several(text: str, between: str | None = None) -> list[str]:
    """The words of a text, or what stands between two marks."""
    return [one.strip() for one in text.split(between)]


def has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def family(root: int = 0) -> dict[int, tuple[str, str, int]]:
    """{process: (name, state, parent)} of all descendants of `root`, 0: of this process."""
    found, members = {}, {root or os.getpid()}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # ended meanwhile
            head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            found[int(pid)] = head.partition("(")[2], tail.split()[0], int(tail.split()[1])
    while more := {pid for pid, (*_, parent) in found.items() if parent in members} - members:
        members |= more
    return {pid: found[pid] for pid in members & found.keys() if pid != (root or os.getpid())}


def _become(program: list[str] | Callable, folder: Path, environment: dict, streams: tuple) -> int:
    """In the fork: run the program, and exit with the code that Python would have."""
    code = 1
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # all of it dies with this process
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0].fileno(), 1)
        os.dup2(streams[1].fileno(), 2)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        errors = {1: "strict", 2: "backslashreplace"}  # as Python starts: a message is never lost
        sys.stdout, sys.stderr = (
            os.fdopen(number, "w", errors=how, closefd=False) for number, how in errors.items()
        )
        if not callable(program):
            os.execve(program[0], program, environment)
        program()
        code = 0
    except SystemExit as left:
        code = print(left, file=sys.stderr) or 1 if isinstance(left.code, str) else left.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


def _alive(known: set[int]) -> list[str]:
    found = {pid: about for pid, about in family().items() if pid not in known}
    return sorted(name for name, state, _ in found.values() if state != "Z")


def _end(pid: int, before: set[int]) -> int:
    """Kill what is left of the program; its exit code."""
    status = 0
    while rest := set(family()) - before:
        for one in rest:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # not ours yet
                os.kill(one, signal.SIGKILL)
                ended, found = os.waitpid(one, os.WNOHANG)
                status = found if ended == pid else status
        time.sleep(0.002)
    return os.waitstatus_to_exitcode(status)
