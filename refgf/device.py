"""NumPy or CuPy: which library made an array, copies to the host, streams and devices.

The CuPy half of this file has not run on a GPU yet: see "Not yet run" in the README.
"""

import sys
import threading

import numpy

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
