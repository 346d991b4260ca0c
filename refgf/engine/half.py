"""float32 to float16 and back with the bits of NumPy's casts, in a fraction of their time.

NumPy converts one element after the other. An element that underflows or overflows takes 50 times
as long as another, because it raises a floating-point exception, and small gradients are full of
them. Here a block that stays in the cache takes a few passes of vector instructions, whatever its
elements are:

    float32    s eeeeeeee mmmmmmmmmm mmmmmmmmmmmmm    value 1.m * 2**(e - 127)
    float16         s eeeee mmmmmmmmmm                value 1.m * 2**(e - 15); below 2**-14
                                                      multiples of 2**-24

With Numba (`fused.py`) all passes become one, over long arrays.

A shift by 13 bits maps one format to the other, with exponents that are 112 too large or too small.
Float addition rounds: if E is the exponent of |x|, the last bit of |x| + 2**(E+13) in float32 is
worth 2**(E-10), as is the last bit of |x| in float16.
"""

import numpy as np
from numpy.typing import DTypeLike

from refgf.device import Array
from refgf.engine.fused import compiled, narrow, widen

BLOCK_ELEMENTS = 65_536  # fits the cache; with shorter blocks calls wait for the GIL more often
FEW, FEW_HALVES = 512, 8192  # below, NumPy's own casts are faster, even if some underflow
EXPONENT = np.int32(0xFF << 23)  # the exponent's bits in float32
SMALLEST_EXPONENT = np.int32(113 << 23)  # that of 2**-14
UP_13 = np.int32(13 << 23)
EXPONENT_DIFFERENCE = np.int32(113 << 10)  # 112, and the leading 1, which is explicit here
TOO_LARGE = np.float32(65536)


def cache_blocks(x: Array) -> list[slice]:
    """Cut a flat array into slices that stay in a CPU's cache; on a GPU one slice."""
    step = BLOCK_ELEMENTS if isinstance(x, np.ndarray) else max(1, x.size)
    return [slice(start, min(start + step, x.size)) for start in range(0, x.size, step)]


def cast(x: Array, out: Array) -> None:
    """out <- x (n,), rounded to nearest, ties to even; too large becomes infinite."""
    if x.dtype == out.dtype:
        out[...] = x
        return
    convert, few = CONVERSIONS.get((x.dtype.char, out.dtype.char), (None, 0))
    if not all(isinstance(a, np.ndarray) and a.dtype.isnative for a in (x, out)):
        convert = None
    if convert is None or x.size < few or not (x.flags.c_contiguous and out.flags.c_contiguous):
        out[...] = x
    elif not _in_one_pass(x, out):
        scratch = np.empty((3 if convert is _narrow else 0, min(x.size, BLOCK_ELEMENTS)), np.int32)
        for block in cache_blocks(x):
            convert(x[block], out[block], scratch[:, : block.stop - block.start])


def add(x: Array, out: Array) -> None:
    """out <- out + x (n,); a shorter type is widened block by block."""
    if x.dtype == out.dtype:
        out += x
        return
    if x.size < FEW_HALVES or not isinstance(x, np.ndarray):
        out += x.astype(out.dtype)
        return
    if x.dtype == np.float16 and x.flags.c_contiguous and (loop := compiled(widen, out)):
        loop(x.view(np.int16), out, True)
        return
    scratch = np.empty(min(x.size, BLOCK_ELEMENTS), out.dtype)
    for block in cache_blocks(x):
        wide = scratch[: block.stop - block.start]
        cast(x[block], wide)
        out[block] += wide


def rounded(x: Array, kind: DTypeLike, out: Array) -> None:
    """out <- x (n,) rounded to the type `kind`; out has x's type and may be x."""
    if x.size < FEW or not isinstance(x, np.ndarray):
        out[...] = x.astype(kind)
        return
    for block in cache_blocks(x):
        short = np.empty(block.stop - block.start, kind)
        cast(x[block], short)
        cast(short, out[block])


def _in_one_pass(x, out) -> bool:
    """Cast with compiled code; False if there is none."""
    if x.dtype == np.float32:
        loop = compiled(narrow, x)
        if (
            loop and loop(x.view(np.int32), out.view(np.uint16)) > EXPONENT
        ):  # NumPy decides a NaN's payload
            out[...] = x
    else:
        loop = compiled(widen, out)
        if loop:
            loop(x.view(np.int16), out, False)
    return loop is not None


def _narrow(x, out, scratch) -> None:
    bits, exponent, other = scratch
    size = np.absolute(x, out=bits.view(np.float32))
    largest = size.max()
    if np.isnan(largest):  # NumPy decides a NaN's payload
        out[...] = x
        return
    if largest > TOO_LARGE:
        np.minimum(size, TOO_LARGE, out=size)  # rounds to infinity
    np.bitwise_and(bits, EXPONENT, out=exponent)
    np.maximum(exponent, SMALLEST_EXPONENT, out=exponent)  # denormals share one last bit
    np.add(exponent, UP_13, out=other)
    np.add(size, other.view(np.float32), out=size)  # rounds; the sum's lower bits are 1mmmmmmmmmm
    np.right_shift(exponent, 13, out=exponent)
    np.add(exponent, bits, out=exponent)  # upper bits do not matter: only 16 are stored
    np.right_shift(x.view(np.int32), 16, out=other)
    np.bitwise_and(other, 0x8000, out=other)  # the sign
    np.subtract(other, EXPONENT_DIFFERENCE, out=other)
    np.add(exponent, other, out=other)
    np.copyto(out.view(np.int16), other, casting="unsafe")


def _widen(x, out, scratch) -> None:
    bits = out.view(np.int32)
    np.copyto(bits, x.view(np.int16))  # the sign fills the upper bits
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, ~0x70000000, out=bits)
    np.multiply(out, np.float32(2.0**112), out=out)  # exact, for denormals too
    if out.max() >= TOO_LARGE or out.min() <= -TOO_LARGE:  # infinities and NaNs
        out[...] = x


CONVERSIONS = {("f", "e"): (_narrow, FEW), ("e", "f"): (_widen, FEW_HALVES)}  # by type character
