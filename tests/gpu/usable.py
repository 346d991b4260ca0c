"""Is there a GPU that CuPy reaches? What else parts of `make gpu-check` need: PyTorch, MPI."""

import functools
import subprocess
import sys

SECONDS = 30
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


@functools.cache
def why_no_torch(mpiexec: str = "") -> str | None:
    """Why PyTorch cannot be the baseline on this GPU; None if it can."""
    try:
        import torch
    except Exception as error:  # not installed, or for another CUDA
        return f"no PyTorch ({error})"
    return None if torch.cuda.is_available() else "PyTorch sees no GPU (torch.cuda.is_available)"


@functools.cache
def why_no_device_pointers(mpiexec: str) -> str | None:
    """Why MPI cannot be given device pointers; None if it says that it can."""
    command = [mpiexec, "-n", "1", sys.executable, "-c", ASK_MPI]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"MPI did not answer ({error})"
    return None if "aware True" in asked.stdout else "MPI is not CUDA-aware"
