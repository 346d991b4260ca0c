"""NumPy or CuPy: which library made an array, its memory, copies to the host, devices.

docs/gpu.md says what has run on a GPU.
"""

import importlib
import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy

Array = numpy.ndarray  # or cupy.ndarray
Allreduce = Callable[[Array], None]  # sums a flat array over all ranks, in place
Memory = dict[Any, Array]  # arrays by key, to be used again


def module(name: str) -> ModuleType:
    """The array library for "cpu" (NumPy) or "gpu" (CuPy)."""
    if name not in ("cpu", "gpu"):
        raise ValueError(f"device: got {name!r}; wanted 'cpu' or 'gpu'; next: 'cpu'")
    try:
        return importlib.import_module("numpy" if name == "cpu" else "cupy")
    except ImportError as error:
        got = f"got {name!r}, but CuPy does not load ({error})"
        raise ValueError(f"device: {got}; next: pip install cupy-cuda12x, or use 'cpu'") from error


def array_module(x: Array) -> ModuleType:
    """The library that made the array x: numpy or cupy."""
    return numpy if isinstance(x, numpy.ndarray) else sys.modules["cupy"]


def is_device(x: Array) -> bool:
    return array_module(x) is not numpy


def resized(store: Memory, key: Any, shape: tuple[int, ...], dtype: Any, xp: ModuleType) -> Array:
    """Uninitialised memory of this shape: one flat buffer per key and dtype, which only grows."""
    size, key = math.prod(shape), (key, numpy.dtype(dtype))
    if key not in store or store[key].size < size:
        store[key] = xp.empty(size, dtype)
    return store[key][:size].reshape(shape)


def synchronize(x: Array) -> None:
    """Wait until everything queued on x's current stream is done. Nothing to do for NumPy."""
    if is_device(x):
        array_module(x).cuda.get_current_stream().synchronize()


def to_host(x: Array) -> numpy.ndarray:
    """x as a NumPy array; itself if it is one."""
    return array_module(x).asnumpy(x) if is_device(x) else x


def select(local_rank: int) -> int:
    """Make GPU local_rank (mod their number) the calling thread's device. Returns its number."""
    cupy = module("gpu")
    number = local_rank % cupy.cuda.runtime.getDeviceCount()
    cupy.cuda.Device(number).use()
    return number
