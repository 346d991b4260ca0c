"""A rank that fails ends the whole job, with its rank and its traceback, so that no other rank waits for it for ever.

Left alone, Python ends the failing process and MPI_Finalize then waits for ranks that wait for this one. `refgf.launch`
installs one `Abort`, whose methods take the place of sys.excepthook, threading.excepthook and sys.exit, and which runs
the watchdog. In a process that turns out to be the only rank all of them do what Python does.

What cannot be seen from here is a SystemExit that is raised by hand on one rank while others wait: say `sys.exit`.
"""

import array
import contextlib
import faulthandler
import fcntl
import os
import socket
import stat
import sys
import termios
import threading
import time
import traceback

PAUSE_S = 0.5  # how long rank 1 lets rank 0 speak first; each higher rank 0.1 s longer
LONGEST_PAUSE_S = 2.5


def running_mpi():
    """mpi4py.MPI while MPI runs, else None. Looked up in sys.modules, so that asking never starts MPI."""
    mpi = sys.modules.get("mpi4py.MPI")
    started = getattr(mpi, "Is_initialized", None)  # None while mpi4py.MPI is still being imported
    return mpi if started and started() and not mpi.Is_finalized() else None


class Abort:
    """Ends the job of `rank` of `size` (what the launcher says; MPI's own answer goes first once it runs)."""

    def __init__(self, rank: int, size: int) -> None:
        self._launched_as = rank, size
        self._failing = threading.Lock()  # taken by the first thread that fails, never released

    def install(self) -> None:
        sys.excepthook, threading.excepthook, sys.exit = self.excepthook, self.thread_excepthook, self.exit

    def rank_and_size(self) -> tuple[int, int]:
        mpi = running_mpi()
        return (mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size) if mpi else self._launched_as

    def excepthook(self, kind, error, trace) -> None:
        if self.rank_and_size()[1] == 1:
            sys.__excepthook__(kind, error, trace)
        else:
            self._failed(error, trace, threading.current_thread().name)

    def thread_excepthook(self, args) -> None:
        if issubclass(args.exc_type, SystemExit):  # ends its own thread only, as always in Python
            return
        if self.rank_and_size()[1] == 1:
            threading.__excepthook__(args)
        else:
            name = args.thread.name if args.thread else "without a name"
            self._failed(args.exc_value or args.exc_type(), args.exc_traceback, name)

    def exit(self, status=None, /) -> None:
        """Exit the interpreter by raising SystemExit(status). With an error status every rank of the job ends."""
        leaving = _Exit(status)
        leaving.abort = self
        raise leaving

    def left(self, status) -> None:
        """The interpreter is about to end with this SystemExit status, an int or a last message."""
        rank, size = self.rank_and_size()
        if size > 1 and isinstance(status, int):
            self.end(f"rank {rank} of {size} left with exit status {status}; the job ends.\n", status & 0xFF or 1)
        elif size > 1:
            self.end(f"{status}\n", 1)

    def end(self, text: str, status: int, pause_s: float = 0.0) -> None:
        """Say `text` and end all ranks. If all fail alike, rank 0 speaks and the others are gone before they do."""
        self._failing.acquire()
        try:
            rank, _ = self.rank_and_size()
            time.sleep(pause_s + (min(PAUSE_S + 0.1 * rank, LONGEST_PAUSE_S) if rank else 0))
            _say(text)
        finally:  # interrupted, or nothing to say it to: the others must not wait
            _abort(status)

    def watch(self, seconds: float) -> None:
        """Start the watchdog: after so many seconds all ranks print where their threads are, then the job ends."""
        threading.Thread(target=self._watch, args=(seconds,), name="watchdog", daemon=True).start()
        faulthandler.dump_traceback_later(seconds + 5, exit=True)  # if C code holds the interpreter and nothing can run

    def _watch(self, seconds: float) -> None:
        time.sleep(seconds)
        rank, size = self.rank_and_size()
        late = f"rank {rank} of {size} still runs after REFGF_TIMEOUT_S={seconds:g} s"
        _say(f"\n{late}; its threads are here:\n{_stacks()}")
        time.sleep(1)  # for the other ranks to say where they are
        _abort(1)

    def _failed(self, error: BaseException, trace, thread: str) -> None:
        rank, size = self.rank_and_size()
        where = f"rank {rank} of {size} on {socket.gethostname()}"
        if isinstance(error, KeyboardInterrupt):
            self.end(f"\n{where} was interrupted\n", 130)
        lines = "".join(traceback.format_exception(type(error), error, trace))
        mpi = running_mpi()
        echo = mpi is not None and isinstance(error, mpi.Exception)  # of another rank's error, which goes first
        self.end(f"\n{where} failed in thread {thread}; the job ends.\n{lines}", 1, PAUSE_S * echo)


class _Exit(SystemExit):
    """What `sys.exit` raises. If nobody catches it the interpreter itself reads `code`: then no Python frame calls."""

    abort: Abort

    @property
    def code(self):
        status = SystemExit.code.__get__(self)
        if status not in (None, 0) and sys._getframe().f_back is None:
            self.abort.left(status)
        return status


def _stacks() -> str:
    """Where each thread of this process is, but the one that asks."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = ""
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            text += f"  thread {names.get(ident, ident)}\n" + "".join(traceback.format_stack(frame))
    return text


def _say(text: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads it any more, closed, or None
            stream.write(text if stream is sys.stderr else "")
            stream.flush()


def _wait_until_heard(at_most_s: float = 2.0) -> None:
    """Give the launcher time to read our stderr and to pass it on: once a job aborts, what is under way is lost.
    (Without this, up to 15 of 100 jobs ended without a word; measured with Hydra.)"""
    end, unread = time.monotonic() + at_most_s, array.array("i", [1])
    while unread[0] and time.monotonic() < end:
        time.sleep(0.01)
        try:
            fcntl.ioctl(2, termios.FIONREAD, unread)  # bytes still in the pipe
        except OSError:  # not a pipe, and nobody to wait for
            break
    time.sleep(0.2)


def _abort(status: int) -> None:
    """End all ranks; whatever goes wrong here, this process ends, which a launcher takes for a failure too."""
    try:
        _wait_until_heard()
        mpi = running_mpi()
        if mpi:
            with contextlib.suppress(OSError):  # no more files can be opened
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # so that our message is the last, not MPICH's about the abort
            mpi.COMM_WORLD.Abort(status)
        _ask_hydra_to_abort(status)
    finally:
        os._exit(status)


def _ask_hydra_to_abort(status: int) -> None:
    """Hydra lets the others wait in MPI_Init for a rank that left before it: ask in its own words (PMI version 1)."""
    if "MPI_LOCALNRANKS" not in os.environ or "PMI_FD" not in os.environ:
        return
    with contextlib.suppress(OSError, ValueError):  # a rank's child inherits the variable, but not the connection
        connection = int(os.environ["PMI_FD"])
        if stat.S_ISSOCK(os.fstat(connection).st_mode):
            os.write(connection, f"cmd=abort exitcode={status}\n".encode())
            time.sleep(2)
