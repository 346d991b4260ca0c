"""Loops over long arrays for which NumPy needs several passes over memory: one pass, with the same bits.

A loop says what happens to one element. Python would take minutes for those in LOOPS; Numba (`pip install 'refgf[fast]'`) makes
machine code of them, which uses vector instructions and does not hold Python's lock. Without Numba, and on a CPU for
anything but long float32 arrays, the NumPy passes of the callers do the same: they stay the definition, this is only faster.

The bits are the same because each operation is rounded by itself, in the order in which it is written: without `fastmath`
Numba reorders nothing, and never makes one operation of a product and a sum. What is missing: NumPy's floating-point
warnings, and `np.seterr`. Where a window of max-pooling mixes -0.0 and +0.0, the sign is the processor's choice.

For arrays of CuPy `fused_gpu.py` has the same loops, and those of GPU_LOOPS, as CUDA kernels.
"""

import threading

import numpy as np

from refgf.engine.fused_gpu import KERNELS

# Numba takes 0.4 s to import and start, 150 MB of memory, and 0.1 to 0.3 s to compile a loop, in each process. In a lesson 8
# ranks share a few cores, and its network is too small to earn that back. AlexNet's is not.
LONG = 1 << 19  # elements
_compiled, _lock = None, threading.Lock()


def compiled(loop, x):
    """A loop as machine code for arrays like x, called with the loop's arguments; None: take the passes of the callers.

    On a CPU one of LOOPS, for float32. Numba is imported when a long array asks for the first time; from then on short ones
    are served, too. On a GPU a kernel, for any floating-point type.
    """
    if not isinstance(x, np.ndarray):
        return KERNELS.get(loop.__name__) if x.dtype.kind == "f" else None
    if x.dtype != np.float32 or loop not in LOOPS:
        return None
    if x.size >= LONG:
        _prepare()
    return _compiled[loop] if _compiled else None


def _prepare() -> None:
    global _compiled
    with _lock:  # ranks may be threads
        if _compiled is not None:
            return
        try:
            import numba
        except Exception:  # not installed, or it does not go with this NumPy or this machine
            _compiled = {}
            return
        # not kept on disk (cache=True): ranks that write at the same time could load each other's code of another processor
        # or of an older source
        _compiled = {} if numba.config.DISABLE_JIT else {loop: numba.njit(loop, nogil=True) for loop in LOOPS}


def momentum_sgd(w, v, g, momentum, decay, rate, decays) -> None:
    """v <- momentum v + (g + decay w), or without decay; w <- w - rate v. All float32, but for `decays`, True or False."""
    for i in range(w.size):
        gradient = decay * w[i] + g[i] if decays else g[i]
        v[i] = momentum * v[i] + gradient
        w[i] = w[i] - rate * v[i]


def narrow(x, out) -> int:
    """out <- x, bits of float32 (int32) to bits of float16 (uint16), for all but NaNs; returns the largest |x|, as bits.

    The arithmetic is that of `half.py`.
    """
    largest = np.int32(0)
    for i in range(x.size):
        size = np.int32(x[i] & 0x7FFFFFFF)  # 32 bits, or half as many fit a vector
        largest = max(largest, size)
        size = min(size, 143 << 23)  # 65536, which rounds to infinity
        exponent = max(size & 0x7F800000, 113 << 23)
        rounded = np.float32(np.int32(size).view(np.float32) + np.int32(exponent + (13 << 23)).view(np.float32))
        out[i] = ((x[i] >> 16 & 0x8000) + (exponent >> 13) + rounded.view(np.int32) - (113 << 10)) & 0xFFFF
    return largest


def widen(x, out, adds) -> None:
    """out <- x, or out + x if `adds`; x bits of float16 (int16), out float32."""
    for i in range(x.size):
        half = np.int32(x[i])  # with the sign in all upper bits
        bits = np.int32(half << 13 & ~0x70000000)
        number = bits.view(np.float32) * np.float32(2.0**112)
        if half & 0x7C00 == 0x7C00:
            number = np.int32(bits | 0x7F800000).view(np.float32)
        out[i] = out[i] + number if adds else number


def carry(g, u, v, w, out, unscale, decay, momentum, decays, ages) -> None:
    """g <- unscale g (+ decay w) + momentum u; v <- v + u if it `ages`; out <- |v + g|. All float32."""
    for i in range(g.size):
        gradient = unscale * g[i]
        if decays:
            gradient = gradient + decay * w[i]
        if ages:
            v[i] = v[i] + u[i]
        g[i] = gradient + momentum * u[i]
        out[i] = abs(v[i] + g[i])


def pack(v, g, numbers, chunk, scale, out) -> None:
    """out <- scale (v + g) of the chunks of these numbers, one after another."""
    at = 0
    for number in numbers:
        chunk_v, chunk_g = v[number * chunk : (number + 1) * chunk], g[number * chunk : (number + 1) * chunk]
        chunk_out = out[at : at + chunk]  # slices, as an index that may be negative for all Numba knows makes slow code
        for i in range(chunk_v.size):
            chunk_out[i] = scale * (chunk_v[i] + chunk_g[i])
        at += chunk  # only the last one may be shorter


def largest_in_windows(x, y, winner, kernel, stride) -> None:
    """y <- the largest value of each window, winner <- its number in the window. (n, H, W, C) -> twice (n, OH, OW, C)"""
    for image in range(y.shape[0]):
        for row in range(y.shape[1]):
            for column in range(y.shape[2]):
                largest, number = y[image, row, column], winner[image, row, column]
                for w in range(kernel * kernel):
                    value = x[image, row * stride + w // kernel, column * stride + w % kernel]
                    for c in range(value.size):
                        larger = w == 0 or value[c] > largest[c]
                        number[c] = w if larger else number[c]
                        largest[c] = value[c] if larger or value[c] != value[c] else largest[c]  # a NaN stays


def to_winners(dy, winner, dx, kernel, stride) -> None:
    """dx <- the sum of what each pixel receives as a window's largest value. Twice (n, OH, OW, C) -> (n, H, W, C)"""
    dx[...] = 0
    for image in range(dy.shape[0]):
        for row in range(dy.shape[1]):
            for column in range(dy.shape[2]):
                gradient, number = dy[image, row, column], winner[image, row, column]
                for w in range(kernel * kernel):  # all that could have won: faster than looking up who has
                    pixel = dx[image, row * stride + w // kernel, column * stride + w % kernel]
                    for c in range(pixel.size):
                        pixel[c] += gradient[c] if number[c] == w else np.float32(0)


LOOPS = (momentum_sgd, narrow, widen, carry, pack, largest_in_windows, to_winners)


# On a CPU NumPy's passes do these to a block while it lies in the cache.


def relu_gradient(dy, y) -> None:
    """dy <- dy where y > 0, else 0 (NaN where dy is not finite). All flat here and below; a kernel takes any shape."""
    for i in range(dy.size):
        dy[i] = dy[i] * dy.dtype.type(y[i] > 0)


def dropout(x, kept, factor, out) -> None:
    """out <- factor x where kept, else 0."""
    for i in range(x.size):
        out[i] = factor * (x[i] * x.dtype.type(kept[i]))


def normalize(x, mean, scale, beta, y) -> None:
    """y <- (x - mean) scale + beta. A kernel repeats mean, scale and beta along the axes that they lack."""
    for i in range(x.size):
        y[i] = (x[i] - mean[i]) * scale[i] + beta[i]


def normalize_gradient(x, mean, scale, slope, offset, dy) -> None:
    """dy <- scale dy - slope (x - mean) - offset."""
    for i in range(x.size):
        dy[i] = scale[i] * dy[i] - slope[i] * (x[i] - mean[i]) - offset[i]


GPU_LOOPS = (relu_gradient, dropout, normalize, normalize_gradient)
