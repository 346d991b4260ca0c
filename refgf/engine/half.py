"""float32 to float16 and back with the bits of NumPy's casts, in a fraction of their time.

NumPy converts one number after the other, and a number that underflows or overflows takes 50 times as long as another, as
it raises a floating-point exception: small gradients are full of them. Here a block that stays in the cache takes a few
passes of vector instructions, the same ones whatever is in it:

    float32    s eeeeeeee mmmmmmmmmm mmmmmmmmmmmmm        value 1.m * 2**(e - 127)
    float16         s eeeee mmmmmmmmmm                    value 1.m * 2**(e - 15); below 2**-14 multiples of 2**-24

With Numba (`fused.py`) all of them become one pass, over long arrays.

A shift by 13 bits moves one format onto the other, with exponents 112 too large or too small. Float addition rounds: in
|x| + 2**(E+13), E being the exponent of |x|, the last bit of float32 is worth 2**(E-10), as the last bit of float16 is.
"""

import numpy

from refgf.engine.fused import compiled, narrow, widen

BLOCK_ELEMENTS = 65_536  # shorter ones stay in the cache, but beside a thread that computes each call waits for Python's lock
FEW, FEW_HALVES = 512, 8192  # for fewer elements NumPy's own casts are faster, even if some underflow
EXPONENT, SMALLEST_EXPONENT = numpy.int32(0xFF << 23), numpy.int32(113 << 23)  # as float32 has them; that of 2**-14
UP_13, EXPONENTS_APART = numpy.int32(13 << 23), numpy.int32(113 << 10)  # 112, and the leading 1 that is written out here
TOO_LARGE = numpy.float32(65536)


def blocks(x) -> list[slice]:
    """Parts of a flat array that stay in a CPU's cache; on a GPU the whole."""
    step = BLOCK_ELEMENTS if isinstance(x, numpy.ndarray) else max(1, x.size)
    return [slice(start, min(start + step, x.size)) for start in range(0, x.size, step)]


def cast(x, out) -> None:
    """out <- x, flat arrays of the same length; rounded to nearest, ties to even; too large becomes infinite."""
    if x.dtype == out.dtype:
        out[...] = x
        return
    on_cpu = isinstance(x, numpy.ndarray) and isinstance(out, numpy.ndarray) and x.dtype.isnative and out.dtype.isnative
    convert, few = CONVERSIONS.get((x.dtype.char, out.dtype.char), (None, 0)) if on_cpu else (None, 0)
    if convert is None or x.size < few or not (x.flags.c_contiguous and out.flags.c_contiguous):
        out[...] = x
    elif not _in_one_pass(x, out):
        scratch = numpy.empty((3 if convert is _narrow else 0, min(x.size, BLOCK_ELEMENTS)), numpy.int32)
        for block in blocks(x):
            convert(x[block], out[block], scratch[:, : block.stop - block.start])


def add(x, out) -> None:
    """out <- out + x, flat arrays of the same length; a shorter type is widened block by block."""
    if x.dtype == out.dtype or x.size < FEW_HALVES or not isinstance(x, numpy.ndarray):
        out += x
        return
    if x.dtype == numpy.float16 and x.flags.c_contiguous and (loop := compiled(widen, out)):
        loop(x.view(numpy.int16), out, True)
        return
    scratch = numpy.empty(min(x.size, BLOCK_ELEMENTS), out.dtype)
    for block in blocks(x):
        wide = scratch[: block.stop - block.start]
        cast(x[block], wide)
        out[block] += wide


def rounded(x, kind, out) -> None:
    """out <- x rounded to the type `kind`, both of the same type and length; out may be x."""
    if not isinstance(x, numpy.ndarray):
        out[...] = x.astype(kind)
        return
    for block in blocks(x):
        short = numpy.empty(block.stop - block.start, kind)
        cast(x[block], short)
        cast(short, out[block])


def _in_one_pass(x, out) -> bool:
    """The cast by machine code, where there is some; was there?"""
    if x.dtype == numpy.float32:
        loop = compiled(narrow, x)
        if loop and loop(x.view(numpy.int32), out.view(numpy.uint16)) > EXPONENT:  # a NaN may carry anything
            out[...] = x
    else:
        loop = compiled(widen, out)
        if loop:
            loop(x.view(numpy.int16), out, False)
    return loop is not None


def _narrow(x, out, scratch) -> None:
    bits, exponent, other = scratch
    size = numpy.absolute(x, out=bits.view(numpy.float32))
    largest = size.max()
    if numpy.isnan(largest):  # a NaN may carry anything
        out[...] = x
        return
    if largest > TOO_LARGE:
        numpy.minimum(size, TOO_LARGE, out=size)  # which rounds to infinity
    numpy.bitwise_and(bits, EXPONENT, out=exponent)
    numpy.maximum(exponent, SMALLEST_EXPONENT, out=exponent)  # below it the last bit is worth no less
    numpy.add(exponent, UP_13, out=other)
    numpy.add(size, other.view(numpy.float32), out=size)  # rounds; the lower bits of the sum are 1mmmmmmmmmm
    numpy.right_shift(exponent, 13, out=exponent)
    numpy.add(exponent, bits, out=exponent)  # upper bits may be anything: only 16 are kept
    numpy.right_shift(x.view(numpy.int32), 16, out=other)
    numpy.bitwise_and(other, 0x8000, out=other)  # the sign
    numpy.subtract(other, EXPONENTS_APART, out=other)
    numpy.add(exponent, other, out=other)
    numpy.copyto(out.view(numpy.int16), other, casting="unsafe")


def _widen(x, out, scratch) -> None:
    bits = out.view(numpy.int32)
    numpy.copyto(bits, x.view(numpy.int16))  # with the sign in all upper bits
    numpy.left_shift(bits, 13, out=bits)
    numpy.bitwise_and(bits, ~0x70000000, out=bits)
    numpy.multiply(out, numpy.float32(2.0**112), out=out)  # exact, also where float16 has no leading one
    if out.max() >= TOO_LARGE or out.min() <= -TOO_LARGE:  # infinities and NaNs have the largest exponent
        out[...] = x


CONVERSIONS = {("f", "e"): (_narrow, FEW), ("e", "f"): (_widen, FEW_HALVES)}  # by the character of the type
