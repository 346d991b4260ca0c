"""What `python -m refgf.doctor` finds out about this machine and this process without starting MPI here."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import refgf.launch as launch  # before NumPy, which `device` imports
from refgf import device
from refgf.doctor import checks_mpi

ENVIRONMENT = ("MPI", "OMPI_", "PRTE_", "I_MPI_", "SLURM_", "OPENBLAS_", "OMP_", "MKL_", "REFGF_")
TRIAL_SECONDS = 60
LIBRARY = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
try:
    paths = [line.split()[-1] for line in open("/proc/self/maps") if "/libmpi" in line]
except OSError:
    paths = []
print(json.dumps([MPI.Get_library_version().strip(chr(0)).strip().splitlines()[0], paths[0] if paths else None]))
"""


def collect(environ=os.environ) -> dict:
    """What is known without starting MPI; the keys that only a running MPI can fill are None."""
    job, beside, first = launch.job, os.path.join(os.path.dirname(sys.executable), "mpiexec"), shutil.which("mpiexec")
    mpiexec = beside if os.access(beside, os.X_OK) else first
    facts = {
        "python": sys.executable,
        "prefix": sys.prefix,
        "version": platform.python_version(),
        "environ": {name: value for name, value in environ.items() if name.startswith(ENVIRONMENT)},
        "uid": os.getuid(),
        "mpiexec": mpiexec,
        "mpiexec_on_path": first,
        "mpiexec_version": output([mpiexec, "--version"])[1] if mpiexec else "",
        "launcher": job.launcher,
        "size": job.size,
        "on_machine": job.on_machine,
        "cores": job.cores,
        "own_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else job.cores,
        "removed": launch.removed,
        "shm": _shared_memory(),
        "cpu_flags": _cpu_flags(),
        "autogroup": _autogroup(),
        **dict.fromkeys(("started", "mpi_size", "thread_level", "cuda_aware", "device_trial")),
    }
    return facts | _library() | _blas() | _host() | _gpus()


def output(command: list[str]) -> tuple[int, str]:
    """Exit code of a command, and what it said on both channels."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=TRIAL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout.replace("\0", "").strip()  # Open MPI pads its messages with zero bytes


def _library() -> dict:
    """Asked in a child process: a library that does not fit may end the process that loads it."""
    version = _version("mpi4py")
    said = output([sys.executable, "-W", "ignore", "-c", LIBRARY])[1] if version else ""
    mpi, path = json.loads(said) if said.startswith("[") else (None, None)
    error = re.sub(r"\s+", " ", said.splitlines()[-1] if said else "no output")
    return {
        "mpi4py": version,
        "mpi": mpi and mpi.split(", package")[0].replace(":\t", " ").replace(":", "").replace("      ", " "),
        "family": checks_mpi.family(mpi or ""),
        "libmpi": path,
        "mpi_error": error,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _blas() -> dict:
    try:
        import numpy
        import threadpoolctl
    except ImportError:
        return {"numpy": _version("numpy"), "blas": None}
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return {"numpy": numpy.__version__, "blas": [{k: p.get(k) for k in ("num_threads", "architecture")} for p in pools]}


def _cpu_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo") as file:
            return set(re.search(r"^flags\s*:(.*)$", file.read(), re.MULTILINE)[1].split())
    except (OSError, TypeError):  # no such file, or a processor that has no flags there
        return set()


def _autogroup(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> bool:
    """Does Linux share the cores out among sessions? It does not among processes whose control group has a share of its own."""
    try:
        enabled = (proc / "sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
        lines = [line.split(":", 2) for line in (proc / "self/cgroup").read_text().splitlines()]
    except OSError:
        return False
    places = [place for _, controllers, path in lines if not controllers for place in (Path(path), *Path(path).parents)]
    shares = [path for _, controllers, path in lines if "cpu" in controllers.split(",") and path != "/"]  # version 1
    shares += [place for place in places if (groups / place.relative_to("/") / "cpu.weight").exists()]  # 2; the root has none
    return enabled and not shares


def _shared_memory() -> tuple[int, int] | None:
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return None
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _host() -> dict:
    host = socket.gethostname()
    try:
        return {"host": host, "address": socket.gethostbyname(host)}
    except OSError:
        return {"host": host, "address": None}


def _gpus() -> dict:
    listed = output(["nvidia-smi", "-L"])[1] if shutil.which("nvidia-smi") else ""
    facts = {"gpus": re.findall(r"^GPU \d+: (.*?) \(UUID", listed, re.MULTILINE), "cupy": None, "cupy_error": None}
    if importlib.util.find_spec("cupy"):
        try:
            facts["cupy"] = device.module("gpu").__version__
        except ValueError as error:
            facts["cupy_error"] = str(error)
    return facts
