"""P9: 8-bit numbers on the wire, which share a power of two in blocks; exercise in_blocks."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import same_bits
from refgf.oracle.spec.case import Given
from refgf.oracle.spec.draw import Draw, pick, random_source
from refgf.oracle.spec.exercise import Arguments, Exercise, tenths
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

LARGEST = 448  # of E4M3
LEAST_STEP = 2.0**-9


def in_blocks(x: np.ndarray, block: int = 32) -> np.ndarray:
    """P9: numbers are sent in blocks of 32, the last one shorter: x / s as E4M3 (a sign, 4 bits of
    exponent, 3 of fraction), to nearest, ties to even, denormals and the sign of 0 kept; and s once
    a block: the least power of two from 2^-127 to 2^127 with which no number of the block is above
    448, E4M3's largest. A number that is rounded to 2^128 arrives as infinity. A block with an
    infinity or NaN arrives as NaN, all of it.

    Source: MXFP8 of OCP's Microscaling Formats 1.0, by the page of ml_dtypes (float8_e4m3fn,
    float8_e8m0fnu) and by code: mx_tensor.py of pytorch/ao at b88afaf4, which cites sections 5.4.1
    (s) and 6.3, and mx_ops.py of microsoft/microxcaling at 3b429a84, which has such blocks as NaN.
    The specification was not at hand. That s is the least that fits: chosen, as pytorch/ao's RCEIL.
    Section 6.3 takes the largest number's own power of two, divided by 256, and cuts off at 448.

    The values received when x is sent. float32 (n,) -> float32 (n,)
    """
    blocks = [x[i : i + block].astype(np.float64) for i in range(0, len(x), block)]
    received = [e4m3(part / scale_of(part)) * scale_of(part) for part in blocks]
    return np.concatenate([x[:0], *received]).astype(x.dtype)


def scale_of(part: np.ndarray) -> float:
    """The scale of a block; NaN where an infinity or NaN fits with none."""
    top = np.abs(part).max()
    return next((2.0**e for e in range(-127, 128) if top <= LARGEST * 2.0**e), np.nan)


def e4m3(y: np.ndarray) -> np.ndarray:
    """Numbers up to 448, rounded: 8 steps from one power of two to the next, from 2^-6 on."""
    _, above = np.frexp(y)  # y is below 2^above
    step = np.maximum(np.exp2(above - 4.0), LEAST_STEP)
    return np.rint(y / step) * step


P9 = Statement("P9", in_blocks)
BLOCKS = JudgedFunction(in_blocks, "P9", {"x": ("element",)}, "x")


@BLOCKS.fresh
def any_blocks(d: Draw) -> Given:
    """Of any size, with numbers far apart; some beyond float32, which are infinite."""
    x = d.normal(d.n) * np.exp2(d.rng.integers(-12, 13, d.n))
    x = np.concatenate([x * np.exp2(d.integer(-130, 110)), d.floats(40)])
    return {"block": pick(d.rng, 32, 32, 16, 7, 1), "x": x.astype(np.float32)}


@BLOCKS.golden
def block_cases() -> Cases:
    for n in (0, 1, 31, 33, 100):
        x = random_source(f"in-blocks-n{n}").standard_normal(n).astype(np.float32)
        why = f"{n} numbers: {-(-n // 32)} blocks of 32, the last one with {n % 32 or min(n, 32)}"
        yield BLOCKS.case(f"in-blocks-n{n}", why, block=32, x=x)
    ties = [17, 19, 1 + 2**-4, 1 + 3 * 2**-4, 2**-10, 3 * 2**-10, 5 * 2**-10, 7.5 * 2**-9]
    near = [2**-10 * 1.0001, 2**-9, 2**-6, 2**-6 * (1 - 2**-4), 17.001, 0.0, 300]
    x = np.array([448, *ties, *near, *(-number for number in ties + near)], np.float32)
    why = "scale 1: ties to even, denormals and below, both signs"
    case = BLOCKS.case("in-blocks-ties", why, block=32, x=x)
    yield case.shows(case["out.x"][:4].tolist() == [448, 16, 20, 1], "17 and 19 are ties")
    x = np.array([448, 1, 0, 449, 1, 0, 465, 1, 0, 257, 1, 0, 224, 1, 0], np.float32)
    why = "largest numbers at, just above and below 448 and 256, in blocks of 3"
    case = BLOCKS.case("in-blocks-largest", why, block=3, x=x)
    shown = case["out.x"][::3].tolist() == [448, 448, 480, 256, 224]
    yield case.shows(shown, "480 is 240 times a scale of 2")
    x = np.array([448, *[5e-4] * 4, *[5e-4] * 3, 1e-6, 0.1, *[0] * 5], np.float32)
    why = "next to 448 small numbers become zero; in the next block they do not; a block of zeros"
    case = BLOCKS.case("in-blocks-apart", why, block=5, x=x)
    shown = (case["out.x"] != 0).tolist() == [True] + 4 * [False] + 5 * [True] + 5 * [False]
    yield case.shows(shown, "only next to 448")
    tiny, large = [1e-45, 2**-137, 3 * 2**-137, -(2**-136), 2**-130], [3.4028235e38, 1e37, 3e35]
    x = np.array([*tiny, *large, -3.3e38, 1e30], np.float32)
    why = "the least scale, which leaves little of float32's denormals, and its largest numbers"
    case = BLOCKS.case("in-blocks-limits", why, block=5, x=x)
    shown = [case["out.x"][:3].tolist(), case["out.x"][5]] == [[0, 0, 2.0**-135], np.inf]
    yield case.shows(shown, "2^-136 is the least, and float32's largest is rounded up")
    x = np.array([1, 2, 3, 1, np.inf, 3, 1, 2, 3, -np.inf, np.nan, 0, np.nan, 0, 0], np.float32)
    why = "a block with an infinity or a NaN is NaN, the others are not"
    case = BLOCKS.case("in-blocks-special", why, family="special", block=3, x=x)
    lost = np.isnan(case["out.x"]).reshape(-1, 3).tolist()
    yield case.shows(lost == [[bad] * 3 for bad in (0, 1, 0, 1, 1)], "the second and two more")
    wide = random_source("in-blocks-of-one").standard_normal(9) * np.exp2(np.arange(-27, 27, 6))
    x = wide.astype(np.float32)
    case = BLOCKS.case("in-blocks-of-one", "blocks of one: each has its scale", block=1, x=x)
    other = not same_bits(case["out.x"], in_blocks(x))
    yield case.shows(other, "a shared scale differs")


P9.given("one scale for all numbers, not one for each block", block=lambda block: 2**40)


@P9.mistake("the scale is no power of two: the largest number becomes 448", scale_of)
def any_scale(part):
    return np.abs(part).max() / LARGEST or 1.0


@P9.mistake("the scale is twice as large as it must be", scale_of)
def twice_the_scale(part):
    return 2 * scale_of(part)


@P9.mistake("the scale is 1 or more: small numbers become zero", scale_of)
def never_below_one(part):
    return np.maximum(1.0, scale_of(part))


def cut_off(function):
    """The scale is the largest number's own power of two, divided by 256."""

    def in_blocks(x, block=32):
        x = x.copy()
        for i in range(0, len(x), block):
            part = x[i : i + block]
            _, above = np.frexp(np.abs(part).max())  # the largest is 2^(above-1) or more
            limit = np.float32(448 * 2.0 ** (above - 9))
            part[...] = np.clip(part, -limit, limit)
        return function(x, block)

    return in_blocks


P9.mistake("the scale is the largest number's own power of two, and above 448 is cut off")(
    cut_off(in_blocks)
)


@P9.mistake("numbers are cut off to E4M3, not rounded", e4m3)
def truncated(y):
    _, above = np.frexp(y)
    step = np.maximum(np.exp2(above - 4.0), LEAST_STEP)
    return np.trunc(y / step) * step


@P9.mistake("ties are rounded away from zero, not to even", e4m3)
def half_up(y):
    _, above = np.frexp(y)
    step = np.maximum(np.exp2(above - 4.0), LEAST_STEP)
    return np.copysign(np.floor(np.abs(y) / step + 0.5), y) * step


@P9.mistake("E4M3's denormals become zero", e4m3)
def no_denormals(y):
    return np.where(np.abs(y) < 2.0**-6, np.copysign(0.0, y), e4m3(y))


@P9.mistake("an infinity or NaN is lost alone, not its block")
def lost_alone(x, block=32):
    good = np.isfinite(x)
    return np.where(good, in_blocks(np.where(good, x, np.float32(0)), block), np.float32(np.nan))


# ---- exercise in_blocks ----


def one_block(random: np.random.Generator) -> list[Arguments]:
    return [(tenths(random, n), block) for n, block in ((3, 3), (5, 5), (6, 32))]


def apart(random: np.random.Generator) -> list[Arguments]:
    """Each block has other magnitudes than the one before; the last block is shorter."""
    found = []
    for n, block in ((3, 2), (5, 3), (7, 2)):
        exponents = 5 * ((np.arange(n) // block + random.integers(3)) % 3) - 5
        found.append(((tenths(random, n) * 10.0**exponents).astype(np.float32), block))
    return found


def near_448(random: np.random.Generator) -> list[Arguments]:
    """Largest numbers from 449 to 511 and from 257 to 447; next to small ones 448, 256 and one
    between 448 and 449. Each times a power of two.
    """
    tops = [*random.integers(449, 512, 2), *random.integers(257, 448, 2)]
    powers = np.exp2(random.integers(-1, 4, (4, 1)))
    xs = [*np.column_stack([tops, random.integers(-200, 200, (4, 2))]) * powers]
    tops = [448 + random.uniform(0.1, 0.9), 448, 256]
    powers = np.exp2(random.integers(-1, 4, (3, 1)))
    small = (2 * random.integers(0, 8, (3, 2)) + 1) * 2.0**-9  # exact with a scale of 1, not of 2
    xs += [*np.column_stack([tops, small]) * powers]
    return [(x.astype(np.float32), 3) for x in xs]


def awkward(random: np.random.Generator) -> list[Arguments]:
    """With a scale of 1: ties, and numbers below 2^-6. Zeros, no numbers."""
    ties = [448, *(2 * random.integers(8, 16, 2) + 1)]
    small = [448, *(random.integers(2, 8, 2) * 2.0**-9)]
    below = [448, 2.0**-11, 2.0**-9]
    between = [random.integers(257, 448), *((random.integers(0, 8, 2) + [0.3, 0.7]) * 2.0**-9)]
    rows = [np.array(row, np.float32) for row in (ties, small, below, between, [0, 0, 0], [])]
    return [(row, 3) for row in rows]


BLOCKS_05 = Exercise("05.5", in_blocks, relative=1e-12)  # the sign of a zero is left open
BLOCKS_05.part("one block", 1, one_block)
BLOCKS_05.part("several blocks, the last one shorter", 1, apart)
BLOCKS_05.part("the largest number is near 448 times a power of two", 1, near_448)
BLOCKS_05.part("ties, numbers below 2^-6, zeros, no numbers", 1, awkward)


def made_of(
    scale: Callable[..., Any] = scale_of, rounded: Callable[..., Any] = e4m3
) -> Callable[..., Any]:
    """in_blocks with another scale or another rounding."""

    def made(x, block=32):
        blocks = [x[i : i + block].astype(np.float64) for i in range(0, len(x), block)]
        received = [rounded(part / scale(part)) * scale(part) for part in blocks]
        return np.concatenate([x[:0], *received]).astype(x.dtype)

    return made


BLOCKS_05.given("each block has a scale of its own, not all of x", block=lambda block: 2**40)
BLOCKS_05.mistake("s is a power of two, not the largest number divided by 448")(made_of(any_scale))
BLOCKS_05.mistake("your s is twice as large as it must be")(made_of(twice_the_scale))
BLOCKS_05.mistake("s may be below 1: small numbers are enlarged")(made_of(never_below_one))
BLOCKS_05.mistake("you cut off at 448; here s is large enough for the largest number")(
    cut_off(in_blocks)
)
BLOCKS_05.mistake("you cut digits off; wanted the nearest number of E4M3")(
    made_of(rounded=truncated)
)
BLOCKS_05.mistake("a tie is rounded to the even multiple, as np.rint does it")(
    made_of(rounded=half_up)
)
BLOCKS_05.mistake("below 2^-6 E4M3 still has the multiples of 2^-9")(made_of(rounded=no_denormals))


@BLOCKS_05.mistake("below 2^-6 the multiples stay those of 2^-9: they become no finer")
def ever_finer(x, block):
    def rounded(y):
        step = np.exp2(np.frexp(y)[1] - 4.0)
        return np.rint(y / step) * step

    return made_of(rounded=rounded)(x, block)


@BLOCKS_05.mistake("in a block of zeros you divide 0 by 0")
def zeros_are_nan(x, block):
    return made_of(lambda part: scale_of(part) if part.any() else 0.0)(x, block)


@BLOCKS_05.mistake("your result is float64: what arrives is float32 again")
def float64_blocks(x, block):
    return in_blocks(x, block).astype(np.float64)
