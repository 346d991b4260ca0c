"""What this machine has: a GPU that CuPy reaches, PyTorch, an MPI; what of the pack it needs."""

import functools
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

SECONDS = 20
ASK_SIZE = """
import refgf.launch
from mpi4py import MPI
ranks = MPI.COMM_WORLD.allreduce(1)
if MPI.COMM_WORLD.rank == 0:  # lines of two ranks can mix
    print("ranks", ranks)
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


def prepare(wheels: Path, folder: Path) -> list[str]:
    """Unpack the wheels that this machine lacks into FOLDER, for this process and all parts.

    Returns their names. An MPI is taken with its mpi4py, where the machine's own starts no ranks.
    """
    names = [wheel.stem for wheel in sorted(wheels.glob("*.whl"))]
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
    return None if "ranks 2" in said else f"no MPI: {said.strip()[-200:]}"


@functools.cache
def why_no_device_pointers(mpiexec: str) -> str | None:
    """Why MPI cannot be given device pointers; None if it says that it can."""
    said = asked([mpiexec, "-n", "1", sys.executable, "-c", ASK_MPI])
    return None if "aware True" in said else "MPI is not CUDA-aware"


def asked(command: list[str]) -> str:
    """What the command prints, errors included; or why it did not end."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


@functools.cache
def why_no_torch(mpiexec: str = "") -> str | None:
    """Why PyTorch cannot be the baseline on this GPU; None if it can."""
    try:
        import torch
    except Exception as error:  # not installed, or for another CUDA
        return f"no PyTorch ({error})"
    return None if torch.cuda.is_available() else "PyTorch sees no GPU (torch.cuda.is_available)"
