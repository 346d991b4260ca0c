"""Ctrl-C (SIGINT) during an import ends a program at once, with one line and exit code 130.

Elsewhere it raises KeyboardInterrupt, as always in Python. During an import that becomes another
error, or is lost: of 300 interrupts of a start with NumPy, mpi4py and matplotlib, 3 ended as an
ImportError or RuntimeError, 2 crashed Python, and 1 had no effect. Programs import this module
first. A notebook and an interactive Python, which are no program, keep their own handler.
"""

import contextlib
import os
import signal
import stat
import sys
import time
from types import FrameType


def handle(number: int, frame: FrameType | None) -> None:
    """SIGINT's handler. `sys.excepthook` prints the line; in a job it ends all ranks."""
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame:
        signal.signal(number, signal.SIG_DFL)
        error = KeyboardInterrupt("interrupted while modules are imported")
        sys.excepthook(KeyboardInterrupt, error, None)
        time.sleep(0.3)  # a launcher loses the line if it has not read it when the job ends
        ask_hydra_to_abort(130)
        os.kill(os.getpid(), number)  # a launcher notices a signal even before MPI starts
    raise KeyboardInterrupt


def ask_hydra_to_abort(status: int) -> None:
    """Send Hydra an abort (PMI version 1): it lets ranks in MPI_Init wait for one that left."""
    if "MPI_LOCALNRANKS" not in os.environ or "PMI_FD" not in os.environ:
        return
    # a child process of a rank inherits the variable, but not the connection
    with contextlib.suppress(OSError, ValueError):
        connection = int(os.environ["PMI_FD"])
        if stat.S_ISSOCK(os.fstat(connection).st_mode):
            os.write(connection, f"cmd=abort exitcode={status}\n".encode())
            time.sleep(2)


if hasattr(sys.modules["__main__"], "__file__"):
    with contextlib.suppress(ValueError):  # not the main thread
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, handle)
