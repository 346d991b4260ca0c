"""The user's side of a cluster: one child in new namespaces, which ends with this process."""

import json
import os
import shlex
import subprocess
import sys
from typing import Any

from refgf.cluster import check, launcher
from refgf.cluster.settings import Settings

INTERRUPTED = 130
TRIAL_S = 60


def start(settings: Settings, mpiexec: str, mpi: str, program: list[str]) -> int:
    """Run the program on a new cluster; return its exit code. CannotRun if no cluster can run.

    Only this process holds the writing end of the lifeline, so it closes when this process ends,
    even by SIGKILL.
    """
    prefix = check.unshare_command(latency=settings.latency_s > 0)
    reading, writing = os.pipe()
    order = {"settings": settings.to_json(), "mpiexec": mpiexec, "mpi": mpi, "program": program}
    message = json.dumps(order | {"lifeline": reading})
    with os.fdopen(reading) as childs_end, os.fdopen(writing, "w") as lifeline:
        child = subprocess.Popen(
            [*prefix, *launcher.PYTHON, "-m", "refgf.cluster", "_inside", message],
            env=os.environ | {"PATH": check.search_path(), "PYTHONPATH": launcher.python_path()},
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


def trial(mpiexec: str, mpi: str) -> None:
    """Start a program on two nodes. CannotRun with what was printed last if that fails."""
    check.unshare_command()  # says which setting of this machine forbids it
    command = [*launcher.PYTHON, "-m", "refgf.cluster", "run", "--nodes", "2"]
    command += ["--mpiexec", mpiexec, "--", sys.executable, "-c", ""]
    environment = os.environ | {"PYTHONPATH": launcher.python_path()}
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    streams["stdin"] = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, **streams) as started:
        try:
            output, code = started.communicate(timeout=TRIAL_S)[0], started.returncode
        except subprocess.TimeoutExpired:
            started.kill()
            output, code = b"", f"none within {TRIAL_S} s"
    if code != 0:
        lines = output.decode(errors="replace").strip().splitlines() or ["no output"]
        raise check.CannotRun(
            f"two nodes with {mpi}: got exit code {code} ({lines[0][:300]}); wanted 0; "
            f"next: {shlex.join(command[3:])} shows more"
        )


def shell_code(returncode: int) -> int:
    """A shell's exit code for subprocess's returncode: 137 for -9 (SIGKILL)."""
    return returncode if returncode >= 0 else 128 - returncode
