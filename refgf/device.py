"""NumPy or CuPy, and what MPI may touch. The one file that knows CuPy, but for the kernels of `fused_gpu.py`.

Rules for device buffers (mpi4py tutorial; `python -m refgf.doctor --gpu` shows which case a machine is):

- before every MPI call on a CuPy array its stream is synchronised: MPI does not know streams;
- unless the MPI library is CUDA-aware, and where ranks are threads, the bytes go through pinned host memory;
- never a non-blocking collective on a device buffer (most libraries crash).

`REFGF_CUDA_AWARE=1` says that the MPI takes device pointers, `0` that it does not, `auto` (default) asks the library.
The CuPy half of this file has not run on a GPU yet: see "Not yet run" in the README.
"""

import ctypes
import functools
import os
import sys
import threading

import numpy

from refgf.engine.half import cast

_thread = threading.local()  # each thread's own stream


def module(name: str):
    """The array library for "cpu" (NumPy) or "gpu" (CuPy)."""
    if name == "cpu":
        return numpy
    if name == "gpu":
        try:
            import cupy
        except ImportError as error:
            raise ValueError(
                f"device: got {name!r}, but CuPy does not load ({error}); "
                "next: pip install 'refgf[gpu]', or use 'cpu'"
            ) from error
        return cupy
    raise ValueError(f"device: got {name!r}; wanted 'cpu' or 'gpu'")


def array_module(x):
    """The library that made the array x: numpy or cupy."""
    return numpy if isinstance(x, numpy.ndarray) else sys.modules["cupy"]


def is_device(x) -> bool:
    return array_module(x) is not numpy


def synchronize(x) -> None:
    """Wait until everything queued on x's current stream is done. Nothing to do for NumPy."""
    if is_device(x):
        array_module(x).cuda.get_current_stream().synchronize()


def to_host(x) -> numpy.ndarray:
    """x as a NumPy array; itself if it is one."""
    return array_module(x).asnumpy(x) if is_device(x) else x


def select(local_rank: int) -> int:
    """Make GPU number local_rank (mod their count) the calling thread's device, and return its number.

    The current device belongs to a thread: a communication thread must call this too.
    """
    cupy = module("gpu")
    number = local_rank % cupy.cuda.runtime.getDeviceCount()
    cupy.cuda.Device(number).use()
    return number


def mark(x):
    """An event that is done when everything queued so far on x's current stream is; None for NumPy. Who waits for it sleeps."""
    if not is_device(x):
        return None
    cuda = array_module(x).cuda
    return cuda.get_current_stream().record(cuda.Event(block=True, disable_timing=True))


def follow(x, event) -> None:
    """Make the calling thread work on x's device, on a stream of its own, and return once `event` is done.

    `event` is what `mark` gave to the thread that computes x; nothing to do for NumPy. Both the current device and the
    current stream belong to a thread; on the default stream this thread's kernels would queue behind all that the
    other thread has queued.
    """
    if event is None:
        return
    x.device.use()
    if not hasattr(_thread, "stream"):
        _thread.stream = module("gpu").cuda.Stream(non_blocking=True)
    _thread.stream.use()
    event.synchronize()


@functools.cache
def cuda_aware() -> bool:
    """May MPI be handed a device pointer?"""
    wanted = os.environ.get("REFGF_CUDA_AWARE", "auto")
    if wanted not in ("auto", "0", "1"):
        raise ValueError(f"REFGF_CUDA_AWARE: got {wanted!r}; wanted auto, 0 or 1")
    return wanted == "1" if wanted != "auto" else _library_says_cuda()


def _library_says_cuda() -> bool:
    """MPI 4.1's info key first, then the older query function; no answer counts as no."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized():
        return False
    for kind in (mpi.COMM_WORLD.Get_info().Get("mpi_memory_alloc_kinds") or "").split(","):
        name, *only = kind.split(":")  # "cuda" is all of it, "cuda:host" only what lies on the host
        if name == "cuda":
            return not only or "device" in only
    vendor, version = mpi.get_vendor()
    if vendor == "MPICH" and version < (4,):  # there the query itself ends the process
        return False
    try:
        return bool(ctypes.CDLL(mpi.__file__).MPIX_Query_cuda_support())
    except (OSError, AttributeError):
        return False


class Staging:
    """Hands MPI buffers that it may touch, for slices of one array `x` travelling as `wire` (a dtype).

    outgoing(view)    what to send for this slice of x: the view itself, or a cast and staged copy of it
    incoming(n)       where n arriving elements may be written; scratch, overwritten by the next call unless to be kept
    arrived(buffer)   the same elements where x lives

    With NumPy and the wire type of x nothing is copied, and the scratch is one slice long. `scratch` is a dict that
    keeps the buffers from call to call. `comm` is who will send them: one between threads reads host memory only.
    """

    def __init__(self, x, wire, scratch: dict | None = None, comm=None) -> None:
        self.x = x
        self.xp = array_module(x)
        self.wire = numpy.dtype(wire)
        self.through_host = is_device(x) and (getattr(comm, "host_only", False) or not cuda_aware())
        self.direct = self.wire == x.dtype and not self.through_host  # MPI may read and write x itself
        self._scratch = {} if scratch is None else scratch

    def outgoing(self, view):
        if not self.direct:
            view = self._copy("cast", view) if view.dtype != self.wire else view
            view = self._to_host(view) if self.through_host else view
        synchronize(self.x)
        return view

    def incoming(self, n: int, keep: bool = False):
        synchronize(self.x)  # the scratch may still be read by a queued kernel
        if keep and not self.through_host:
            return self.xp.empty(n, self.wire)
        return self._buffer("incoming", n, pinned=self.through_host)

    def arrived(self, buffer):
        if not self.through_host:
            return buffer
        on_device = self._buffer("arrived", buffer.size)
        on_device.set(buffer)
        return on_device

    def keep(self, buffer):
        """What arrived, to be kept, where x lives, in the wire type; a private copy of what came through the host."""
        return self.arrived(buffer).copy() if self.through_host else buffer

    def _copy(self, name: str, view):
        buffer = self._buffer(name, view.size)
        cast(view, buffer)
        return buffer

    def _to_host(self, view):
        host = self._buffer("outgoing", view.size, pinned=True)
        view.get(out=host)
        return host

    def _buffer(self, name: str, n: int, pinned: bool = False):
        """n elements of the scratch called `name`, grown when it is too short."""
        key = name, self.wire, self.xp.__name__
        if key not in self._scratch or self._scratch[key].size < n:
            self._scratch[key] = _pinned(n, self.wire) if pinned else self.xp.empty(n, self.wire)
        return self._scratch[key][:n]


def _pinned(n: int, dtype: numpy.dtype) -> numpy.ndarray:
    """Host memory that the GPU can copy from and to without a detour."""
    memory = module("gpu").cuda.alloc_pinned_memory(max(1, n) * dtype.itemsize)
    return numpy.frombuffer(memory, dtype, n)
