"""The user's side of a cluster: one child in new namespaces, and a lifeline, so that nothing survives this process."""

import json
import os
import subprocess
import sys

from refgf.cluster import check
from refgf.cluster.settings import Settings

INTERRUPTED = 130


def start(settings: Settings, mpiexec: str, mpi: str, program: list[str]) -> int:
    """Run the program on a new cluster; return its exit code. CannotRun where there can be no cluster.

    Only this process holds the writing end of the lifeline, so it closes when this process ends, even by SIGKILL.
    """
    prefix = check.unshare_command(latency=settings.latency_s > 0)
    reading, writing = os.pipe()
    order = {"settings": settings.to_json(), "mpiexec": mpiexec, "mpi": mpi, "program": program}
    order = json.dumps(order | {"lifeline": reading})
    child = subprocess.Popen(
        [*prefix, sys.executable, "-m", "refgf.cluster", "_inside", order],
        env=os.environ | {"PATH": check.search_path()},
        pass_fds=[reading],
        start_new_session=True,  # Ctrl-C comes to this process alone, which then ends all the others at once
    )
    os.close(reading)
    try:
        code = child.wait()
    except KeyboardInterrupt:
        os.close(writing)
        child.wait()
        return INTERRUPTED
    return as_shells_say(code)


def as_shells_say(returncode: int) -> int:
    """Exit code for subprocess's returncode: 137 for -9, a process that SIGKILL has ended."""
    return returncode if returncode >= 0 else 128 - returncode
