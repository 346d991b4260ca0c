"""Ends the whole job when one rank fails, with its rank and its traceback.

By default Python ends only the failing process. MPI_Finalize then waits for ranks that wait for
this one, for ever. `refgf.launch` installs one `Abort`. Its methods replace sys.excepthook,
threading.excepthook and sys.exit. In a job of several ranks the built-in
name SystemExit means `_Exit`, so that `raise SystemExit(3)`, `exit(3)` and `quit(3)` end the job
too. In a process that is the only rank all of them do what Python does.
"""

import array
import builtins
import contextlib
import os
import socket
import sys
import threading
import time
import traceback
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from refgf.interrupt import ask_hydra_to_abort
from refgf.launch import watchdog

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = termios = None  # type: ignore[assignment]  # asked for before use

PAUSE_S = 0.5  # rank 0 prints first; rank r waits this and r * 0.1 s
LONGEST_PAUSE_S = 2.5
PythonsExit = SystemExit  # what C code raises, whatever the name SystemExit means
leave_at_once = os._exit


def running_mpi() -> ModuleType | None:
    """mpi4py.MPI while MPI runs, else None. It looks in sys.modules, so MPI never starts here."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    started = getattr(mpi, "Is_initialized", None)  # None while mpi4py.MPI is still being imported
    return mpi if started and started() and not mpi.Is_finalized() else None


class Abort:
    """Ends the job. rank, size: from the launcher; once MPI runs, MPI's own numbers are used."""

    def __init__(self, rank: int, size: int) -> None:
        self._launched_as = rank, size
        self._failing = threading.Lock()  # taken by the first thread that fails, never released

    def install(self) -> None:
        """Replace the hooks of `sys` and `threading`, sys.exit, and in a job SystemExit."""
        sys.excepthook, threading.excepthook = self.excepthook, self.thread_excepthook
        sys.exit, os._exit = self.exit, self.leave
        self._process = os.getpid()
        _Exit.abort = self
        # `python -m mpi4py` ends the job itself, and catches Python's own class
        if self._launched_as[1] > 1 and "mpi4py.run" not in sys.modules:
            builtins.SystemExit = _Exit  # type: ignore[misc]  # what user code then names

    def rank_and_size(self) -> tuple[int, int]:
        """This process's (rank, size) in the job."""
        mpi = running_mpi()
        return (mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size) if mpi else self._launched_as

    def excepthook(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Takes the place of sys.excepthook."""
        if self.rank_and_size()[1] == 1:
            sys.__excepthook__(kind, error, trace)
        else:
            self._failed(error, trace, threading.current_thread().name)

    def thread_excepthook(self, args: threading.ExceptHookArgs) -> None:
        """Takes the place of threading.excepthook."""
        if issubclass(args.exc_type, PythonsExit):  # ends its own thread only, as always in Python
            return
        if self.rank_and_size()[1] == 1:
            threading.__excepthook__(args)
        else:
            name = args.thread.name if args.thread else "without a name"
            self._failed(args.exc_value or args.exc_type(), args.exc_traceback, name)

    def exit(self, status: object = None, /) -> NoReturn:
        """Raise SystemExit(status). With an error status every rank of the job ends."""
        raise _Exit(status)

    def leave(self, status: int) -> NoReturn:
        """os._exit. A launcher does not notice that a rank with status 0 leaves others waiting."""
        rank, size = self.rank_and_size()
        if status == 0 and size > 1 and running_mpi() and os.getpid() == self._process:
            text = f"rank {rank} of {size} left by os._exit(0) while MPI ran; the job ends; "
            self.end(text + "next: let the program reach its end\n", 1)
        leave_at_once(status)

    def end_after_exit(self, status: object) -> None:
        """End the job because the interpreter exits with this SystemExit status or message."""
        rank, size = self.rank_and_size()
        if size > 1 and isinstance(status, int):
            text = f"rank {rank} of {size} left with exit status {status}; the job ends.\n"
            self.end(text, status & 0xFF or 1)
        elif size > 1:
            self.end(f"{status}\n", 1)

    def end(self, text: str, status: int, pause_s: float = 0.0) -> None:
        """Print `text` and end all ranks.

        If all ranks fail alike, only rank 0 prints: the others end before their pause is over.
        """
        self._failing.acquire()
        try:
            rank, _ = self.rank_and_size()
            time.sleep(pause_s + (min(PAUSE_S + 0.1 * rank, LONGEST_PAUSE_S) if rank else 0))
            _print(text)
        finally:  # even after an interrupt or a failed write, because the other ranks wait
            _abort(status)

    def end_late(self, why: str) -> None:
        """Print where each thread waits and end the job: the watchdog's last act."""
        rank, size = self.rank_and_size()
        _print(
            f"\nrank {rank} of {size}: {why}; its threads are here:\n{watchdog.stacks()}"
            "next: compare what the ranks wait for; a lesson with --threads 2 names a deadlock "
            "at once; to wait longer, set REFGF_STALL_S or REFGF_TIMEOUT_S to more seconds, or to "
            "off\n"
        )
        time.sleep(1)  # the other ranks print too
        _abort(1)

    def _failed(self, error: BaseException, trace: Any, thread: str) -> None:
        rank, size = self.rank_and_size()
        where = f"rank {rank} of {size} on {socket.gethostname()}"
        if isinstance(error, KeyboardInterrupt):
            self.end(f"\n{where} was interrupted\n", 130)
        lines = "".join(traceback.format_exception(type(error), error, trace))
        mpi = running_mpi()
        # an MPI exception is often the consequence of another rank's error, which is printed first
        echo = mpi is not None and isinstance(error, mpi.Exception)
        self.end(f"\n{where} failed in thread {thread}; the job ends.\n{lines}", 1, PAUSE_S * echo)


class _Exit(PythonsExit):
    """A SystemExit. If nothing catches it, the interpreter itself reads `code`."""

    abort: Abort

    @property
    def code(self) -> Any:  # type: ignore[override]  # a property there, too
        status = PythonsExit.code.__get__(self)  # type: ignore[union-attr]
        uncaught = sys._getframe().f_back is None  # no Python frame reads it
        if status not in (None, 0) and uncaught:
            self.abort.end_after_exit(status)
        return status


def _print(text: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        # a stream may have lost its reader (OSError), be closed (ValueError), or be None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.write(text if stream is sys.stderr else "")
            stream.flush()
    try:
        sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        # a buffer, as torch.distributed puts there: it ends with this process
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.__stderr__.write(text)  # type: ignore[union-attr]
            sys.__stderr__.flush()  # type: ignore[union-attr]


def _wait_for_reader(at_most_s: float = 2.0) -> None:
    """Wait until the launcher has read our stderr: output in flight is lost when a job aborts.

    Without this wait, up to 15 of 100 jobs ended without a message (measured with Hydra).
    """
    if fcntl is None:
        time.sleep(0.2)
        return
    end, unread = time.monotonic() + at_most_s, array.array("i", [1])
    while unread[0] and time.monotonic() < end:
        time.sleep(0.01)
        try:
            fcntl.ioctl(2, termios.FIONREAD, unread)  # bytes still in the pipe
        except OSError:  # not a pipe, so no reader
            break
    time.sleep(0.2)


def _abort(status: int) -> None:
    """End all ranks. This process ends even if that fails, which a launcher takes for a failure."""
    try:
        _wait_for_reader()
        mpi = running_mpi()
        if mpi:
            with contextlib.suppress(OSError):  # no more files can be opened
                silence = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silence, 2)  # MPICH prints about the abort, and our message shall be last
            mpi.COMM_WORLD.Abort(status)
        ask_hydra_to_abort(status)
    finally:
        leave_at_once(status)
