"""Ends a job that no longer moves, and says where each rank waits.

    REFGF_STALL_S=300      end when no rank has moved for so long, or for a thirtieth of it once a
                           rank has left (300 is the default; off: never)
    REFGF_TIMEOUT_S=3600   end after so long in any case (unset: never)

A rank stands still when each of its threads has been in the same waiting call (WAITS) for so long.
A rank that computes, reads, sleeps or asks its user moves, however slow it is. So does one that
makes the same waiting call again and again: a number among its variables has changed. A job ends
only when *all* its ranks stand still or have left: if one works for hours while the others wait,
nothing happens. While the whole job is stopped (Ctrl-Z), its time does not pass. The ranks tell
each other through a file of 8 bytes a rank, so a job on several machines is not watched.

A rank that leaves with status 0 while others wait is no error by itself, because the others may
still exchange messages among themselves. So its job ends by this deadline, REFGF_STALL_S / 30, and
not at once, as it does after an error, a signal, another status or os._exit. Until then the rank
waits before MPI_Finalize. Inside it, with another rank that still waits for a message, 1 of 4 jobs
of MPICH 5.0.2 ended at once, with exit code 0 or 9 and without a word; why is not known.
"""

import contextlib
import faulthandler
import linecache
import mmap
import os
import re
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

PREFIX = "refgf_progress_"
FOLDERS = "/dev/shm", "/tmp"
SAMPLE_S = 1.0
POLL_S = 0.005
ENDING_S = 5.0  # the watchdog's own last act
WAITS = re.compile(  # calls of MPI and of threads
    r"\b(i?(all)?(send|recv|sendrecv|bcast|gather|scatter|reduce|toall)\w*|wait\w*|barrier|probe"
    r"|dup|split\w*|free|fence|lock|create\w*|acquire|join|get|put|synchronize)\(",
    re.IGNORECASE,
)


class Progress:
    """The time at which each rank of a job has moved last; negative once it has left."""

    def __init__(self, path: str, rank: int, size: int) -> None:
        self.rank, self.path, self._process = rank, path, os.getpid()
        self.has_left, self._writing = False, threading.Lock()
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(path, flags, 0o600)
        try:
            status = os.fstat(file)
            ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
            if not ours or status.st_nlink > 1:  # or another file of ours, linked to this name
                raise OSError(f"{path}: wanted a file of this user with one name")
            os.ftruncate(file, 8 * size)
            self._moved_at = memoryview(mmap.mmap(file, 8 * size)).cast("d")
        finally:
            os.close(file)
        self.moved()

    def moved(self) -> None:
        """This rank has moved."""
        with self._writing:
            if not self.has_left:
                self._moved_at[self.rank] = time.monotonic()

    def leave(self, mpi_runs: Callable[[], Any], stall_s: float) -> None:
        """This rank ends: the file loses its name, and the rank waits until all others end, too.

        It goes on if MPI does not run, or if the others stand still and their watchdogs do nothing:
        one that calls MPI.Finalize() itself holds the GIL there.
        """
        if os.getpid() != self._process:  # a fork of this rank
            return
        with self._writing:
            self.has_left = True
            self._moved_at[self.rank] = -time.monotonic()
        with contextlib.suppress(OSError):  # another rank has removed it
            os.unlink(self.path)
        limit_s = 2 * left_limit_s(stall_s) + ENDING_S
        while (mpi := mpi_runs()) and max(self._moved_at) > 0:  # 0: a rank without this file
            if self.still_s() > limit_s:
                break
            mpi.COMM_WORLD.Iprobe()  # MPI may still have to send what this rank has sent
            time.sleep(POLL_S)

    def still_s(self) -> float:
        """Seconds for which no rank has moved."""
        return time.monotonic() - max(map(abs, self._moved_at))

    def left(self) -> list[int]:
        """The ranks that have left."""
        return [rank for rank, at in enumerate(self._moved_at) if at < 0]


def sample_s_of(stall_s: float) -> float:
    """Seconds between two looks at this rank's threads."""
    return min(SAMPLE_S, stall_s / 8)


def left_limit_s(stall_s: float) -> float:
    """Seconds that a job may stand still once a rank has left."""
    return max(stall_s / 30, 4 * sample_s_of(stall_s))


def watch_progress(progress: Progress, stall_s: float, end: Callable[[str], None]) -> None:
    """Start a thread that calls `end` with a sentence when the job stands still."""
    sample_s = sample_s_of(stall_s)
    left_s = left_limit_s(stall_s)

    def watch() -> None:
        here = numbers = None
        limit_s = stall_s
        while (still_s := progress.still_s()) <= limit_s:
            asked_s = time.monotonic()
            time.sleep(sample_s)
            if progress.has_left:
                return
            was_stopped = time.monotonic() - asked_s > limit_s / 2
            before, counted = here, numbers
            here, numbers = places(), counters() if still_s > limit_s / 2 else None
            counts = None not in (counted, numbers) and counted != numbers
            if here != before or counts or was_stopped:
                progress.moved()
            limit_s = left_s if progress.left() else stall_s
        left = "".join(f"; rank {rank} has left" for rank in progress.left())
        end(f"no rank has moved for {progress.still_s():.0f} s{left}")

    threading.Thread(target=watch, name="watchdog", daemon=True).start()


def watch_start(stall_s: float, mpi_runs: Callable[[], Any]) -> None:
    """End this rank, with its traceback, after so many seconds inside MPI_Init.

    A rank that ended before it loaded this module leaves the others waiting there. Hydra tells them
    within 0.1 s after a signal, but never after an exit code, which SIGINT causes in 6 of the 50 ms
    that Python takes to start. mpi4py holds the GIL in MPI_Init, so only a timer of C can end it: a
    thread postpones it until MPI runs, or the GIL is gone.
    """

    def watch() -> None:
        with contextlib.suppress(AttributeError, RuntimeError, OSError):  # stderr may be no file
            while not mpi_runs():
                stderr: Any = sys.__stderr__
                faulthandler.dump_traceback_later(stall_s, exit=True, file=stderr)
                time.sleep(min(SAMPLE_S, stall_s / 4))
            faulthandler.cancel_dump_traceback_later()

    threading.Thread(target=watch, name="watchdog", daemon=True).start()


def progress_file(environ: Mapping[str, str]) -> str:
    """One path for all ranks, named by an emulated cluster or after the launcher's process."""
    folder = next(filter(os.path.isdir, FOLDERS))
    return environ.get("REFGF_PROGRESS") or os.path.join(folder, f"{PREFIX}{os.getppid()}")


def watch_time(seconds: float, end: Callable[[str], None]) -> None:
    """Start a thread that calls `end` with a sentence after so many seconds."""

    def watch() -> None:
        time.sleep(seconds)
        end(f"still runs after REFGF_TIMEOUT_S={seconds:g} s")

    threading.Thread(target=watch, name="watchdog", daemon=True).start()
    faulthandler.dump_traceback_later(seconds + 5, exit=True)  # in case C code holds the GIL


def places() -> dict[int, object]:
    """{thread: where it waits}"""
    return {thread: _place(frame) for thread, frame in threads()}


def counters() -> dict[int, list[float]]:
    """{thread: the numbers among the variables of its calls}

    Python before 3.13 may keep the other variables, too, for as long as such a call lasts. So this
    is asked only of a job that has stood still for half of its time.
    """
    found: dict[int, list[float]] = {}
    for thread, innermost in threads():
        numbers = found[thread] = []
        frame: FrameType | None = innermost
        while frame:
            values = list(frame.f_locals.values())
            numbers += [value for value in values if type(value) in (int, float)]
            frame = frame.f_back
    return found


def threads() -> list[tuple[int, FrameType]]:
    """(thread, innermost frame) of this process's other threads.

    Without this thread's own frame, which would hold the list that holds the frame: until the next
    garbage collection all frames and their arrays would stay in memory.
    """
    frames = sys._current_frames()
    del frames[threading.get_ident()]
    return list(frames.items())


def stacks() -> str:
    """Where the other threads are, and what the step of a schedule among their calls waits for."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = ""
    for ident, frame in threads():
        text += f"  thread {names.get(ident, ident)}{_waits(frame)}\n"
        text += "".join(traceback.format_stack(frame))
    return text


def _place(frame: FrameType) -> object:
    """Where a thread waits; something new each time if it does not wait."""
    if frame.f_code.co_name == "Wait":  # it polls
        return id(frame)
    number = frame.f_lineno or 0  # None between two lines
    line = linecache.getline(frame.f_code.co_filename, number)
    waits = not line or WAITS.search(line)  # there is no line of a program given with -c
    return (id(frame), frame.f_lasti) if waits else object()


def _waits(frame: FrameType | None) -> str:
    """' waits to send to rank 2 and to receive from rank 0' inside `comm.schedule.exchange`."""
    while frame and frame.f_code.co_qualname != "exchange":
        frame = frame.f_back
    step = frame and frame.f_locals.get("step")
    if not step:
        return ""
    ends = {"to send to": step.send_to, "to receive from": step.receive_from}
    return " waits " + " and ".join(f"{w} rank {r}" for w, r in ends.items() if r is not None)
