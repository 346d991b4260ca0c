"""The user's side of a cluster: one child in new namespaces, which ends with this process."""

import json
import os
import subprocess
import sys

from refgf.cluster import check
from refgf.cluster.settings import Settings

INTERRUPTED = 130


def start(settings: Settings, mpiexec: str, mpi: str, program: list[str]) -> int:
    """Run the program on a new cluster; return its exit code. CannotRun if no cluster can run.

    Only this process holds the writing end of the lifeline, so it closes when this process ends,
    even by SIGKILL.
    """
    prefix = check.unshare_command(latency=settings.latency_s > 0)
    reading, writing = os.pipe()
    order = {"settings": settings.to_json(), "mpiexec": mpiexec, "mpi": mpi, "program": program}
    order = json.dumps(order | {"lifeline": reading})
    with os.fdopen(reading) as childs_end, os.fdopen(writing, "w") as lifeline:
        child = subprocess.Popen(
            [*prefix, sys.executable, "-m", "refgf.cluster", "_inside", order],
            env=os.environ | {"PATH": check.search_path()},
            pass_fds=[reading],
            start_new_session=True,  # Ctrl-C reaches only this process, which then ends all others
        )
        childs_end.close()
        try:
            return shell_code(child.wait())
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            lifeline.close()
            child.wait()


def shell_code(returncode: int) -> int:
    """A shell's exit code for subprocess's returncode: 137 for -9 (SIGKILL)."""
    return returncode if returncode >= 0 else 128 - returncode
