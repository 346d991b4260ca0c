"""What every benchmark does: it measures alone, and nothing that it started outlives it (Linux).

    begin()                  exit with a sentence if another benchmark measures on this machine
    run(command, ...)        subprocess.run; if the command was interrupted, so is this process
    Popen(..., preexec_fn=tied())

The kernel sends what was started SIGTERM when the process that started it ends, by whatever signal.
"""

import ctypes
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import partial

PR_SET_PDEATHSIG = 1
PRCTL = getattr(ctypes.CDLL(None), "prctl", None)  # None: not Linux
# exit codes: subprocess's, a shell's, and that of MPICH's mpiexec after SIGTERM
INTERRUPTS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
INTERRUPTED = {code for n in INTERRUPTS for code in (-n, 128 + n)} | {int(signal.SIGTERM)}
# A name in the kernel, not a file: it is free when its process has ended, and another user's file
# or link cannot stand in its place.
LOCK, NAME = socket.socket(socket.AF_UNIX), "\0refgf benchmark"
BEGUN = "REFGF_BENCHMARK"  # set for all that a benchmark starts


def begin(name: str = NAME) -> None:
    """Exit with a sentence if another benchmark of this project measures on this machine."""
    if BEGUN in os.environ or PRCTL is None:
        return
    try:
        LOCK.bind(name)
        LOCK.listen()
    except OSError:
        sys.exit(
            f"{sys.argv[0]}: process {_holder(name)} is another benchmark of this project, and the "
            "two would measure each other; next: wait until it has ended, or end it"
        )
    os.environ[BEGUN] = str(os.getpid())


def _holder(name: str) -> int | str:
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(name)
        except OSError:  # it has just ended, or has not listened yet
            return "unknown"
        form = struct.Struct("iii")  # process, user, group
        return form.unpack(caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))[0]


def run(command: list[str], check: bool = False, **options) -> subprocess.CompletedProcess:
    """subprocess.run of a command that ends with this process.

    If the command was interrupted, this process exits too, even where it ignores SIGINT.
    """
    done = subprocess.run(command, preexec_fn=tied(), **options)
    if done.returncode in INTERRUPTED:
        print(f"interrupted: {' '.join(map(str, command))}", file=sys.stderr)
        sys.exit(done.returncode if done.returncode > 0 else 128 - done.returncode)
    if check:
        done.check_returncode()
    return done


def tied() -> Callable[[], None] | None:
    """For Popen's preexec_fn: the new process ends when the thread that starts it has ended."""
    return partial(_follow, os.getpid()) if PRCTL else None


def _follow(parent: int) -> None:
    PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it went before the kernel was asked
        os._exit(128 + signal.SIGTERM)
