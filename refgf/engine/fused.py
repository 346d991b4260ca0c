"""Loops over long arrays in one pass over memory, where NumPy needs several. The bits are the same.

A loop says what happens to one element. Numba (`pip install numba`) compiles it to machine
code that uses vector instructions and releases the GIL. Without Numba, and on a CPU for all but
long float32 arrays, the plain functions of `refgf.ops` do the work: they are the definition.

The bits are the same because each operation is rounded by itself, in the order in which it is
written: without `fastmath` Numba reorders nothing and never fuses a product and a sum. Numba does
not raise NumPy's floating-point warnings and ignores `np.seterr`. In a window of max-pooling with
both -0.0 and +0.0 the processor chooses the sign.

For CuPy arrays `fused_gpu.py` has these loops, and the other functions of the layers, as kernels.
REPLACEMENTS are the functions that take the places of those in `refgf.ops`.
"""

import functools
import os
import threading
from collections.abc import Callable

import numpy as np

from refgf import ops
from refgf.device import Array
from refgf.engine import fused_gpu
from refgf.engine.fused_gpu import KERNELS

# Importing Numba takes 0.4 s and 150 MB, and compiling a loop 0.1 to 0.3 s, in each process. In a
# lesson 8 ranks share a few cores, and its network is too small to earn that back; AlexNet is not.
# NUMBA_DISABLE_JIT=1, Numba's own switch, saves the import too.
LONG = 1 << 19  # elements
LONG_BLOCK = LONG // 2  # elements of a block of images, which is only a part of a batch
_compiled, _lock = None, threading.Lock()


def compiled(loop: Callable, x: np.ndarray) -> Callable | None:
    """A loop compiled for arrays like x, called with the loop's arguments; None if there is none.

    On a CPU one of LOOPS, for float32. A long array is the reason to import Numba; once imported
    it serves short arrays too. On a GPU the kernel of the loop's name, for any floating-point type.
    """
    if not isinstance(x, np.ndarray):
        return KERNELS.get(loop.__name__) if x.dtype.kind == "f" else None
    if x.dtype != np.float32 or loop not in LOOPS:
        return None
    if x.size >= (LONG if x.ndim == 1 else LONG_BLOCK):
        _prepare()
    return _compiled[loop] if _compiled else None


def _prepare() -> None:
    global _compiled
    with _lock:  # ranks may be threads
        if _compiled is not None:
            return
        if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
            _compiled = {}
            return
        try:
            import numba
        except Exception:  # not installed, or it does not fit this NumPy or this machine
            _compiled = {}
            return
        # cache=True is unsafe: ranks that write at the same time could load each other's code,
        # compiled for another processor or from an older source.
        jit = functools.partial(numba.njit, nogil=True)
        _compiled = {} if numba.config.DISABLE_JIT else {loop: jit(loop) for loop in LOOPS}


def momentum_sgd(
    w: Array, v: Array, g: Array, momentum: float, decay: float, rate: float, decays: bool
) -> None:
    """v <- momentum v + (g + decay w) (decay only if `decays`);  w <- w - rate v. All float32."""
    for i in range(w.size):
        gradient = decay * w[i] + g[i] if decays else g[i]
        v[i] = momentum * v[i] + gradient
        w[i] = w[i] - rate * v[i]


def narrow(x: Array, out: Array) -> int:
    """out <- x, bits of float32 (int32) to bits of float16 (uint16), except NaNs.

    Returns the largest |x|, as bits. The arithmetic is that of `half.py`.
    """
    largest = np.int32(0)
    for i in range(x.size):
        size = np.int32(x[i] & 0x7FFFFFFF)  # 32 bits: twice as many fit a vector
        largest = max(largest, size)
        size = min(size, 143 << 23)  # 65536, which rounds to infinity
        exponent = max(size & 0x7F800000, 113 << 23)
        shifted = np.int32(exponent + (13 << 23)).view(np.float32)
        rounded = np.float32(np.int32(size).view(np.float32) + shifted).view(np.int32)
        out[i] = ((x[i] >> 16 & 0x8000) + (exponent >> 13) + rounded - (113 << 10)) & 0xFFFF
    return largest


def widen(x: Array, out: Array, adds: bool) -> None:
    """out <- x, or out + x if `adds`; x bits of float16 (int16), out float32."""
    for i in range(x.size):
        half = np.int32(x[i])  # with the sign in all upper bits
        bits = np.int32(half << 13 & ~0x70000000)
        number = bits.view(np.float32) * np.float32(2.0**112)
        if half & 0x7C00 == 0x7C00:
            number = np.int32(bits | 0x7F800000).view(np.float32)
        out[i] = out[i] + number if adds else number


def accumulate(
    g: Array, u: Array, v: Array, w: Array, after: Array, out: Array, factors: tuple, flags: tuple
) -> None:
    """after <- unscale g (+ decay w) + momentum u; v <- v + u if `adds_u`; out <- |v + after|.

    All float32. factors: (unscale, decay, momentum); flags: (decays, adds_u).
    """
    unscale, decay, momentum = factors
    decays, adds_u = flags
    for i in range(g.size):
        gradient = unscale * g[i]
        if decays:
            gradient = gradient + decay * w[i]
        if adds_u:
            v[i] = v[i] + u[i]
        after[i] = gradient + momentum * u[i]
        out[i] = abs(v[i] + after[i])


def pack(v: Array, g: Array, numbers: Array, chunk: int, scale: float, out: Array) -> None:
    """out <- scale (v + g) of the chunks of these numbers, one after another."""
    at = 0
    for number in numbers:
        start, stop = number * chunk, (number + 1) * chunk
        chunk_v, chunk_g = v[start:stop], g[start:stop]
        chunk_out = out[at : at + chunk]  # slower by index
        for i in range(chunk_v.size):
            chunk_out[i] = scale * (chunk_v[i] + chunk_g[i])
        at += chunk  # only the last one may be shorter


def largest_in_windows(x: Array, y: Array, winner: Array, kernel: int, stride: int) -> None:
    """y <- the maximum of each window, winner <- its number. (n, H, W, C) -> (n, OH, OW, C)"""
    for image in range(y.shape[0]):
        for row in range(y.shape[1]):
            for column in range(y.shape[2]):
                largest, number = y[image, row, column], winner[image, row, column]
                for w in range(kernel * kernel):
                    down, right = row * stride + w // kernel, column * stride + w % kernel
                    value = x[image, down, right]
                    for c in range(value.size):
                        larger = w == 0 or value[c] > largest[c]
                        number[c] = w if larger else number[c]
                        larger = larger or value[c] != value[c]  # a NaN stays
                        largest[c] = value[c] if larger else largest[c]


def to_winners(dy: Array, winner: Array, dx: Array, kernel: int, stride: int) -> None:
    """dx <- sum of dy over the windows that a pixel won. Twice (n, OH, OW, C) -> (n, H, W, C)"""
    dx[...] = 0
    for image in range(dy.shape[0]):
        for row in range(dy.shape[1]):
            for column in range(dy.shape[2]):
                gradient, number = dy[image, row, column], winner[image, row, column]
                for w in range(kernel * kernel):  # trying all pixels is faster than indexing one
                    down, right = row * stride + w // kernel, column * stride + w % kernel
                    pixel = dx[image, down, right]
                    for c in range(pixel.size):
                        pixel[c] += gradient[c] if number[c] == w else np.float32(0)


LOOPS = (momentum_sgd, narrow, widen, accumulate, pack, largest_in_windows, to_winners)


def _replacement(plain, loop):
    """`plain`, or the loop compiled for its first argument. The loop takes the same arguments."""

    @functools.wraps(plain)
    def fastest(x, *arguments):
        return (compiled(loop, x) or plain)(x, *arguments)

    return fastest


REPLACEMENTS = {
    "largest_in_windows": _replacement(ops.largest_in_windows, largest_in_windows),
    "to_winners": _replacement(ops.to_winners, to_winners),
    # a kernel on a GPU; on a CPU NumPy's passes over a block run in cache
    "relu_gradient": _replacement(ops.relu_gradient, fused_gpu.relu_gradient),
    "dropout": _replacement(ops.dropout, fused_gpu.dropout),
    "normalize": _replacement(ops.normalize, fused_gpu.normalize),
    "normalize_gradient": _replacement(ops.normalize_gradient, fused_gpu.normalize_gradient),
}
