"""Collects facts about this machine and this process without starting MPI in it."""

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
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import refgf.launch as launch  # before NumPy, which `device` imports
from refgf import device
from refgf.doctor import checks_mpi, load, site

OF_MPI = ("HYDRA_", "MPIEXEC_", "MPIR_", "PMIX_MCA_", "PRTE_MCA_", "OMPI_MCA_", "UCX_", "FI_")
ENVIRONMENT = (
    *("MPI", "OMPI_", "PRTE_", "I_MPI_", "SLURM_", "OPENBLAS_", "OMP_", "MKL_", "REFGF_"),
    "LOADEDMODULES",
)
TRIAL_SECONDS = 60
ROOT = Path(launch.__file__).resolve().parents[2]  # the folder of refgf
LIBRARY = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
try:
    paths = [line.split()[-1] for line in open("/proc/self/maps") if "/libmpi" in line]
except OSError:
    paths = []
version = MPI.Get_library_version().strip(chr(0)).strip().splitlines()[0]
print(json.dumps([version, paths[0] if paths else None]))
"""


def collect(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The facts known without starting MPI; keys that need a running MPI are None."""
    job, first = launch.job, shutil.which("mpiexec")
    own = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    mpiexec = own if os.access(own, os.X_OK) else first
    affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    facts = {
        "python": sys.executable,
        "prefix": sys.prefix,
        "version": platform.python_version(),
        "environ": {name: value for name, value in environ.items() if name.startswith(ENVIRONMENT)},
        "uid": os.getuid(),
        "mpi_variables": _users_mpi_variables(environ),
        "mpiexec": mpiexec,
        "mpiexec_on_path": first,
        "mpiexec_version": run([mpiexec, "--version"])[1] if mpiexec else "",
        "launcher": job.launcher,
        "size": job.size,
        "on_machine": job.on_machine,
        "cores": job.cores,
        "own_cores": len(os.sched_getaffinity(0)) if affinity else job.cores,
        "load": None if job.launcher else load.now(),  # a job's own ranks are no others
        "removed": launch.removed,
        "shm": _shared_memory(),
        "cpu_flags": _cpu_flags(),
        "autogroup": _autogroup(),
        "gpu_asked": False,
        **dict.fromkeys(("started", "mpi_size", "thread_level", "cuda_aware", "device_trial")),
    }
    return facts | _library() | _blas() | _host() | _gpus()


def _users_mpi_variables(environ: Mapping[str, str]) -> list[str]:
    """The names of the variables of MPI's own that the user has set."""
    ours = {setting.name for setting in launch.settings if setting.by != "user"}
    return sorted(name for name in environ if name.startswith(OF_MPI) and name not in ours)


def run(command: list[str]) -> tuple[int, str]:
    """Run a command; return its exit code and its output, stdout and stderr together.

    A Python among them imports nothing from the folder where the user stands.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=TRIAL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout.replace("\0", "").strip()  # Open MPI pads with zero bytes


def _library() -> dict[str, Any]:
    """Loads the library in a child process, because a wrong one may end the process."""
    version = _version("mpi4py")
    text = run([sys.executable, "-P", "-W", "ignore", "-c", LIBRARY])[1] if version else ""
    mpi, path = json.loads(text) if text.startswith("[") else (None, None)
    error = re.sub(r"\s+", " ", text.splitlines()[-1] if text else "no output")
    if mpi:  # "MPICH Version:      5.0.2" -> "MPICH Version 5.0.2"
        mpi = mpi.split(", package")[0].replace(":\t", " ").replace(":", "").replace("      ", " ")
    return {
        "mpi4py": version,
        "mpi": mpi,
        "family": checks_mpi.family(mpi or ""),
        "libmpi": path,
        "mpi_error": error,
        "link": site.has_link(),
        "debian_mpich": site.debian_mpich() if version and not mpi else None,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _blas() -> dict[str, Any]:
    try:
        import numpy
        import threadpoolctl
    except ImportError:
        return {"numpy": _version("numpy"), "blas": None}
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return {
        "numpy": numpy.__version__,
        "blas": [{k: p.get(k) for k in ("num_threads", "architecture")} for p in pools],
    }


def _cpu_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo") as file:
            found = re.search(r"^flags\s*:(.*)$", file.read(), re.MULTILINE)
    except OSError:
        return set()
    return set(found[1].split()) if found else set()  # some processors have no flags there


def _autogroup(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> bool:
    """Does Linux divide the cores among sessions? Not if the control group has its own share."""
    try:
        enabled = (proc / "sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
        lines = [line.split(":", 2) for line in (proc / "self/cgroup").read_text().splitlines()]
    except OSError:
        return False
    for _, controllers, path in lines:
        if "cpu" in controllers.split(",") and path != "/":  # version 1
            return False
        places = (Path(path), *Path(path).parents) if not controllers else ()  # version 2
        if any((groups / place.relative_to("/") / "cpu.weight").exists() for place in places):
            return False  # the root group has no cpu.weight
    return enabled


def _shared_memory() -> tuple[int, int] | None:
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return None
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _host() -> dict[str, Any]:
    host = socket.gethostname()
    try:
        return {"host": host, "address": socket.gethostbyname(host)}
    except OSError:
        return {"host": host, "address": None}


def _gpus_of_cupy(cupy: ModuleType) -> list[str]:
    """Containers may have a GPU without nvidia-smi."""
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
        return [runtime.getDeviceProperties(i)["name"].decode() for i in range(count)]
    except RuntimeError:  # CuPy's error: no driver, no device
        return []


def _gpus() -> dict[str, Any]:
    listed = run(["nvidia-smi", "-L"])[1] if shutil.which("nvidia-smi") else ""
    gpus = re.findall(r"^GPU \d+: (.*?) \(UUID", listed, re.MULTILINE)
    facts: dict[str, Any] = {"gpus": gpus, "cupy": None, "cupy_error": None}
    if importlib.util.find_spec("cupy"):
        try:
            cupy = device.module("gpu")
            facts["cupy"] = cupy.__version__
        except ValueError as error:
            facts["cupy_error"] = str(error)
        else:
            facts["gpus"] = gpus or _gpus_of_cupy(cupy)
    return facts
