"""Real MPI jobs in tests: `run_job` starts mpiexec, waits at most `timeout`, and leaves nothing."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MARK = "REFGF_TEST_JOB"  # a variable of every process of a job, whatever its parent is by now
OF_A_LAUNCHER = ("PMI_", "PMIX_", "HYDI_", "MPI_LOCAL")
OF_A_LAUNCHER += ("OMPI_COMM_", "OMPI_UNIVERSE_", "PRTE_LAUNCHED")
EVERYWHERE = {  # Open MPI refuses root and more ranks than cores; MPICH does not read these
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "true",  # its name in Open MPI 4
}


@dataclass(frozen=True)
class Ended:
    code: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool
    left: list[int]  # processes still there when the launcher had ended; killed since

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


def mpiexec() -> str | None:
    """The launcher next to this Python, else the first on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return beside if os.access(beside, os.X_OK) else shutil.which("mpiexec")


def _why_no_jobs() -> str | None:
    if mpiexec() is None:
        return "no mpiexec next to this Python or on PATH; next: pip install mpich"
    if any(name.startswith(OF_A_LAUNCHER) for name in os.environ):
        return "already inside an MPI job, which cannot start another one"
    return None


needs_mpiexec = pytest.mark.skipif(_why_no_jobs() is not None, reason=str(_why_no_jobs()))


def clean_environment(env: dict | None = None) -> dict[str, str]:
    """This process's environment without the variables of a launcher and of refgf.launch.

    env is added; None as a value removes a variable.
    """
    launch = sys.modules.get("refgf.launch")
    settings = launch.settings if launch else []
    ours = {setting.name for setting in settings if setting.by != "user"}
    kept = [name for name in os.environ if not name.startswith(OF_A_LAUNCHER) and name not in ours]
    result = {name: os.environ[name] for name in kept}
    path = os.pathsep.join(filter(None, [ROOT, result.get("PYTHONPATH")]))
    result = EVERYWHERE | result | {"PYTHONPATH": path} | (env or {})
    return {k: str(v) for k, v in result.items() if v is not None}


def run_job(
    ranks: int, program: str | list, timeout: float = 60, env: dict | None = None, options=()
) -> Ended:
    """Run `program` and return how it ended.

    ranks     0: one Python without mpiexec
    program   Python source as one string, or a list of arguments for python
    timeout   seconds until the launcher and every process of the job are killed; timed_out is True
    options   arguments for mpiexec
    """
    python = [sys.executable, *(["-c", program] if isinstance(program, str) else map(str, program))]
    command = [mpiexec(), *options, "-n", str(ranks), *python] if ranks else python
    mark = uuid.uuid4().hex
    # not pipes, which would wait for every process
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            env=clean_environment(env) | {MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code, timed_out = process.wait(timeout), False
        except subprocess.TimeoutExpired:
            code, timed_out = -signal.SIGKILL, True
        finally:
            seconds = time.monotonic() - start
            left = [] if process.returncode is None else _still_there(mark)
            _kill(process, mark)
        return Ended(code, _read(out), _read(err), seconds, timed_out, left)


def processes(mark: str) -> list[int]:
    """Processes of the job `mark` that are alive (Linux; empty elsewhere)."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"{MARK}={mark}".encode() in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


def _still_there(mark: str, patience_s: float = 2.0) -> list[int]:
    """Processes left after patience_s: the launcher may return just before its ranks are gone."""
    end = time.monotonic() + patience_s
    while (left := processes(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def _kill(process: subprocess.Popen, mark: str) -> None:
    """SIGKILL to the launcher's process group, then to the ranks, which have their own groups."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    while left := processes(mark):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def _read(file) -> str:
    file.seek(0)
    text = file.read().decode(errors="replace")
    return text.replace("\0", "")  # Open MPI pads its messages with zero bytes


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    """Ask until it is so; an assertion fails if it is not within so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def command_line(pid: int) -> str:
    """Of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""
