"""Ctrl-C (SIGINT) during an import ends a program at once, with one line and exit code 130.

Elsewhere it raises KeyboardInterrupt, as always in Python. During an import that becomes another
error, or is lost: of 300 interrupts of a start with NumPy, mpi4py and matplotlib, 3 ended as an
ImportError or RuntimeError, 2 crashed Python, and 1 had no effect. Programs import this module
first. A notebook and an interactive Python, which are no program, keep their own handler.
"""

import os
import signal
import sys
from types import FrameType


def handle(number: int, frame: FrameType | None) -> None:
    """SIGINT's handler. `sys.excepthook` prints the line; in a job it ends all ranks."""
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame:
        signal.signal(number, signal.SIG_DFL)
        error = KeyboardInterrupt("interrupted while modules are imported")
        sys.excepthook(KeyboardInterrupt, error, None)
        os.kill(os.getpid(), number)  # a launcher notices a signal even before MPI starts
    raise KeyboardInterrupt


if hasattr(sys.modules["__main__"], "__file__"):
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, handle)
    except ValueError:  # not the main thread
        pass
