"""Streams and events of CuPy, for a thread that works on what another one has queued.

docs/gpu.md says what has run on a GPU.
"""

import threading
from typing import Any

from refgf.device import Array, array_module, is_device, module

_thread = threading.local()  # each thread's own stream


def mark(x: Array) -> Any:
    """An event after everything queued on x's current stream; waiting sleeps. None for NumPy."""
    if not is_device(x):
        return None
    cuda = array_module(x).cuda
    return cuda.get_current_stream().record(cuda.Event(block=True, disable_timing=True))


def follow(x: Array, event: Any) -> None:
    """Return once `event` (from `mark` in the thread that computes x) is done. None for NumPy.

    Selects x's device and a stream of the calling thread, because both belong to a thread. On the
    default stream this thread's kernels would queue behind all that the other thread has queued.
    """
    if event is None:
        return
    x.device.use()  # type: ignore[attr-defined]  # NumPy's device is a text
    if "stream" not in vars(_thread):
        _thread.stream = module("gpu").cuda.Stream(non_blocking=True)
    _thread.stream.use()
    event.synchronize()
