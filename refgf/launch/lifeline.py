"""A rank goes when its launcher's process on this node goes, even by SIGKILL (Linux).

    mpiexec -> hydra_pmi_proxy -> rank

Without it ranks that wait in shared memory spin for ever after the proxy was killed: nobody is left
who could tell them.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
LAUNCHERS = "hydra", "mpiexec", "orted", "prte", "slurmstepd"  # how their processes' names begin


def follow_launcher() -> bool:
    """Ask the kernel for SIGKILL when the parent goes, if the parent is a launcher."""
    if not sys.platform.startswith("linux"):
        return False
    parent = os.getppid()
    try:
        name = Path(f"/proc/{parent}/comm").read_text()
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):  # another process namespace, or no such function
        return False
    if not name.startswith(LAUNCHERS):
        return False
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)
    return True
