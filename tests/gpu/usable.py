"""What this machine has: a GPU that CuPy reaches, PyTorch, an MPI; what of the pack it needs."""

import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SECONDS = 20  # for an answer of MPI
TORCH_SECONDS = 60  # a first import reads gigabytes
ASK_SIZE = """
import refgf.launch
from mpi4py import MPI
ranks = MPI.COMM_WORLD.allreduce(1)
if MPI.COMM_WORLD.rank == 0:  # lines of two ranks can mix
    print("ranks", ranks)
"""
ASK_TORCH = """
import torch
print("sees", torch.cuda.is_available())
"""
ASK_MPI = """
import refgf.launch
from mpi4py import MPI
from refgf.engine import staging
print("aware", staging.cuda_aware())
"""


def why_no_gpu() -> str | None:
    """What is missing; None if nothing is."""
    try:
        import cupy

        return None if cupy.cuda.runtime.getDeviceCount() else "CuPy counts no device"
    except Exception as error:  # no CuPy, no driver, no device: each has an exception of its own
        return f"{type(error).__name__}: {error}"


def keep_kernels(folder: Path) -> None:
    """CuPy keeps compiled kernels in FOLDER if it cannot in the home: without one it fails."""
    usual = os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache"
    try:
        os.makedirs(usual, exist_ok=True)
        tempfile.TemporaryFile(dir=usual).close()
    except OSError:
        os.environ["CUPY_CACHE_DIR"] = str(folder)


def prepare(wheels: Path, folder: Path) -> list[str]:
    """Unpack the wheels that this machine lacks into FOLDER, for this process and all parts.

    Returns their names. An MPI is taken with its mpi4py, where the machine's own starts no ranks.
    What was compiled for another Python is named and left.
    """
    paths = sorted(wheels.glob("*.whl"))
    names = [wheel.stem for wheel in paths if fits(wheel)]
    if left := [wheel.stem for wheel in paths if wheel.stem not in names]:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        print(
            f"gpu-check: got CPython {version}, and wheels for another one of {', '.join(left)}; "
            f"next: PYTHON=..., or make gpu-pack ARGS='--python {version}'",
            file=sys.stderr,
        )
    of_mpi = [name for name in names if name in ("mpi4py", "mpich")]
    taken = [name for name in names if not (name in of_mpi or importlib.util.find_spec(name))]
    for name in taken:
        unpack(wheels / f"{name}.whl", folder / name)
    prepend("PYTHONPATH", *(folder / name for name in taken))
    sys.path += [str(folder / name) for name in taken]
    if not of_mpi or not why_no_mpi("mpiexec"):
        return taken
    before = dict(os.environ)
    for name in of_mpi:
        unpack(wheels / f"{name}.whl", folder / name)
    prepend("PYTHONPATH", folder / "mpi4py")
    prepend("LD_LIBRARY_PATH", folder / "mpich" / "lib")
    prepend("PATH", folder / "mpich" / "bin")
    why_no_mpi.cache_clear()
    if not why_no_mpi("mpiexec"):
        return taken + of_mpi
    os.environ.clear()  # the ranks are threads, and nothing of this MPI is in their way
    os.environ.update(before)
    return taken


def fits(wheel: Path) -> bool:
    """Is what it has compiled for this Python? Most have nothing, or one file for each Python."""
    with zipfile.ZipFile(wheel) as archive:
        tags = re.findall(r"\.(cpython-\d+)", " ".join(archive.namelist()))
    return not tags or sys.implementation.cache_tag in tags


def unpack(wheel: Path, folder: Path) -> None:
    """The wheel, with its programs in bin; zipfile alone forgets that they are programs."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for data in folder.glob("*.data/data/*"):
        data.rename(folder / data.name)
    for program in folder.glob("bin/*"):
        program.chmod(0o755)


def prepend(variable: str, *folders: Path) -> None:
    rest = os.environ.get(variable)
    os.environ[variable] = os.pathsep.join([*map(str, folders), *([rest] if rest else [])])


@functools.cache
def why_no_mpi(mpiexec: str) -> str | None:
    """Why two ranks cannot start; None if they can."""
    said = asked([mpiexec, "-n", "2", sys.executable, "-c", ASK_SIZE])
    return None if "ranks 2" in said else f"no MPI: {end_of(said)}"


@functools.cache
def why_no_device_pointers(mpiexec: str) -> str | None:
    """Why MPI cannot be given device pointers; None if it says that it can."""
    said = asked([mpiexec, "-n", "1", sys.executable, "-c", ASK_MPI])
    return None if "aware True" in said else "MPI is not CUDA-aware"


def asked(command: list[str], seconds: float = SECONDS) -> str:
    """What the command prints, errors included; or why it did not end."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
        ).stdout
    except subprocess.TimeoutExpired:
        return f"no answer after {seconds} s"
    except OSError as error:
        return str(error)


def end_of(text: str) -> str:
    """In one line."""
    return " ".join(text.split())[-200:]


@functools.cache
def why_no_torch(mpiexec: str = "") -> str | None:
    """Why PyTorch cannot be the baseline on this GPU; None if it can."""
    # in a process of its own, because one that crashes or hangs must not stop the run
    said = asked([sys.executable, "-c", ASK_TORCH], TORCH_SECONDS)
    if "sees True" in said:
        return None
    if "sees False" in said:
        return "PyTorch sees no GPU (torch.cuda.is_available)"
    *_, last = said.strip().split("\n")
    return f"no PyTorch: {end_of(last)}"
