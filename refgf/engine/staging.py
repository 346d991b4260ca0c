"""Messages from and to device memory: pinned host memory, or device pointers if MPI is CUDA-aware.

Rules for device arrays (mpi4py tutorial; `python -m refgf.doctor --gpu` shows a machine's case):

- before every MPI call on a CuPy array its stream is synchronised: MPI does not know streams;
- unless the MPI library is CUDA-aware, and between threads, bytes go through pinned host memory;
- never a non-blocking collective on a device array (most libraries crash).

`REFGF_CUDA_AWARE=1` says that MPI takes device pointers, `0` that it does not, `auto` (default)
asks the library.
"""

import ctypes
import functools
import os
import sys

import numpy as np
from numpy.typing import DTypeLike

from refgf import ops
from refgf.comm.arguments import Comm
from refgf.device import Array, is_device, module, synchronize


@functools.cache
def cuda_aware() -> bool:
    """Does MPI take a device pointer?"""
    wanted = os.environ.get("REFGF_CUDA_AWARE", "auto")
    if wanted not in ("auto", "0", "1"):
        raise ValueError(
            f"REFGF_CUDA_AWARE: got {wanted!r}; wanted auto, 0 or 1; next: unset it to ask MPI"
        )
    return wanted == "1" if wanted != "auto" else _library_says_cuda()


def _library_says_cuda() -> bool:
    """MPI 4.1's info key first, then the older query function; no answer counts as no."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized():
        return False
    for kind in (mpi.COMM_WORLD.Get_info().Get("mpi_memory_alloc_kinds") or "").split(","):
        name, *only = kind.split(":")  # "cuda" means all kinds, "cuda:host" only host memory
        if name == "cuda":
            return not only or "device" in only
    vendor, version = mpi.get_vendor()
    if vendor == "MPICH" and version < (4,):  # there the query itself ends the process
        return False
    try:
        return bool(ctypes.CDLL(mpi.__file__).MPIX_Query_cuda_support())
    except (OSError, AttributeError):
        return False


HostBuffers = ops.Buffers


def buffers(
    x: Array, wire: DTypeLike, scratch: dict | None = None, comm: Comm = None
) -> HostBuffers:
    """The buffers that x needs: staged ones for device arrays only."""
    return (StagedBuffers if is_device(x) else HostBuffers)(x, wire, scratch, comm)


class StagedBuffers(HostBuffers):
    """`ops.Buffers` that stage device arrays through pinned host memory where MPI needs it.

    `comm` decides that too: messages between threads lie in host memory.
    """

    def __init__(self, x, wire, scratch: dict | None = None, comm: Comm = None) -> None:
        super().__init__(x, wire, scratch, comm)
        host_only = getattr(comm, "host_only", False)
        self.through_host = is_device(x) and (host_only or not cuda_aware())
        self.in_place = self.in_place and not self.through_host

    def outgoing(self, view: Array) -> Array:
        if not self.through_host:
            return super().outgoing(view)
        if view.dtype != self.wire:
            device = self._memory("outgoing", view.size)
            ops.cast(view, device)
            view = device
        host = self._pinned("outgoing", view.size)
        view.get(out=host)  # returns when the copy has ended
        return host

    def incoming(self, n: int) -> Array:
        if not self.through_host:
            return super().incoming(n)
        return self._pinned("incoming", n)

    def arrived(self, buffer: Array) -> Array:
        if not self.through_host:
            return buffer
        device = self._memory("arrived", buffer.size)
        device.set(buffer)
        # the copy may still read the buffer, which others may write: the next message, or, once
        # the scratch is freed, the next owner of that memory in CuPy's pool
        synchronize(self.x)
        return device

    def _pinned(self, name: str, n: int) -> np.ndarray:
        """Pinned host memory, which the GPU copies from and to directly."""
        key = "pinned " + name, self.wire
        if key not in self._scratch or self._scratch[key].size < n:
            cuda = module("gpu").cuda
            memory = cuda.alloc_pinned_memory(max(1, n) * self.wire.itemsize)
            self._scratch[key] = np.frombuffer(memory, self.wire, n)
        return self._scratch[key][:n]
