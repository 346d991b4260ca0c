"""Foreign code in this process: it must not end the process or hang it; errors name their line."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ORACLE = Path(__file__).parents[1]
CALLERS = {str(ORACLE / f"{name}.py") for name in ("foreign/guard", "foreign/ranks")}
CALLERS |= {str(ORACLE / "judge" / "implementations.py")}
RECORDS = str(ORACLE / "spec")  # which call a judged function, too


class TooLong(BaseException):
    """Not an Exception, so that an `except Exception` in foreign code does not swallow it."""


ENDS = (Exception, SystemExit, TooLong)  # what may come out of `contained`


@contextmanager
def contained(timeout_s: float | None = None) -> Iterator[None]:
    """sys.exit and os._exit become SystemExit here; after timeout_s seconds TooLong is raised.

    The time limit needs the main thread and a system with SIGALRM. It reaches Python code, but not
    a call that hangs in C, which isolation.py ends.
    """
    real, own = os._exit, os.getpid()

    def leave(code: int) -> None:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        # A child of a fork must end, and so must a failing MPI job.
        if os.getpid() != own or caller.startswith("refgf.launch"):
            real(code)
        raise SystemExit(code)

    def expired(number: int, frame: object) -> None:
        raise TooLong(f"did not end within {timeout_s:g} s")

    main = threading.current_thread() is threading.main_thread()
    limited = timeout_s and hasattr(signal, "SIGALRM") and main
    before = signal.signal(signal.SIGALRM, expired) if limited else None
    os._exit = leave
    try:
        if limited:
            signal.setitimer(signal.ITIMER_REAL, timeout_s)
        yield
    except (*ENDS, KeyboardInterrupt):
        raise
    except BaseException as error:  # as a panic of Rust's is, or pytest's skip
        text = f"{type(error).__name__}: {error}"
        raise RuntimeError(text).with_traceback(error.__traceback__) from error
    finally:
        if limited:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        os._exit = real


def describe(error: BaseException, name: str) -> str:
    """What came out of a function `name`: an exception in it, or a result unlike SPEC.md's."""
    if isinstance(error, TooLong):
        return f"{error}{_place(error)}"
    if isinstance(error, SystemExit):
        return f"tried to end the process with exit code {error.code or 0!r}{_place(error)}"
    text = f"{type(error).__name__}: {str(error)[:300]}"
    if _foreign(error):
        return f"raised {text}{_place(error)}"
    if isinstance(error, (SyntaxError, OSError)):  # of an import
        return f"failed: {text}"
    if isinstance(error, KeyError):
        return f"{name}'s report lacks {error}; wanted what SPEC.md lists"
    if isinstance(error, AttributeError) and "SimpleNamespace" in str(error):
        return f"{name} is judged together with {str(error).split()[-1]}, which the module lacks"
    return f"{name} cannot be called as SPEC.md says, or returned something else: {text}"


def _foreign(error: BaseException) -> list[traceback.FrameSummary]:
    """Frames of the traceback that are neither the oracle's callers nor NumPy's."""
    stdlib, frames = Path(os.__file__).parent, traceback.extract_tb(error.__traceback__)
    own = Path(np.__file__).parent, stdlib / "contextlib", stdlib / "importlib"
    packages = "<frozen", RECORDS, *map(str, own)
    return [f for f in frames if f.filename not in CALLERS and not f.filename.startswith(packages)]


def _place(error: BaseException) -> str:
    ours = str(ORACLE), str(ORACLE.parent / "launch")  # refgf.launch calls sys.exit too
    frames = [f for f in _foreign(error) if not f.filename.startswith(ours)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
