"""P1 to P3: what a number becomes on the wire.

A wire type is None (sent in the type of the array), "float64", "float32", "float16" or "bfloat16".
NumPy has no bfloat16: its 16 bits are stored as uint16, its values are float32.
"""

import numpy as np

from refgf.oracle.spec.calls import same_bits
from refgf.oracle.spec.case import Given
from refgf.oracle.spec.draw import Draw, pick
from refgf.oracle.spec.exercise import Exercise
from refgf.oracle.spec.floats import beyond_float32, nans
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- P1: rounded once ----


def on_wire(x: np.ndarray, wire: str | None) -> np.ndarray:
    """P1: a number is rounded to the wire type once, to nearest, ties to even; a number that is too
    large becomes infinite; denormals are kept.

    Source: IEEE 754.

    The values received when x is sent as `wire`, in the type of x. float64 reaches bfloat16 through
    float32 (P2), as on machines without an instruction for it.
    """
    if wire is None:
        return np.array(x)
    if wire == "bfloat16":
        return bfloat16_values(bfloat16_bits(x)).astype(x.dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return x.astype(wire).astype(x.dtype)


P1 = Statement("P1", on_wire)
ON_WIRE = JudgedFunction(on_wire, "P1 P2", {"x": ("element",)}, "x")


@ON_WIRE.fresh
def any_cast(d: Draw) -> Given:
    dtype = pick(d.rng, "float32", "float64")
    x = d.floats(40).astype(dtype)
    if dtype == "float64":
        x = x * (1 + pick(d.rng, -1, 0, 1) * 2.0**-40)
    return {"wire": pick(d.rng, "float16", "bfloat16"), "x": x}


AWKWARD = [
    0.0,
    1.0,
    1 + 2**-11,
    1 + 3 * 2**-11,
    1 + 2**-11 + 2**-20,
    65504.0,
    65519.99,
    65520.0,
    65536.0,  # float16
    2**-24,
    2**-25,
    2**-25 * 1.0001,
    2**-14,
    2**-14 * (1 - 2**-11),  # float16: denormals
    1 + 2**-8,
    1 + 3 * 2**-8,
    1 + 2**-8 + 2**-20,
    3.39e38,
    3.4e38,  # bfloat16: ties, limits
    2**-133,
    2**-134,
    2**-126 * (1 - 2**-8),
    1e-45,
    np.inf,
]


def awkward_numbers(dtype: str = "float32") -> np.ndarray:
    """Numbers at which a cast to 16 bits can go wrong, with their negatives."""
    return np.array([*AWKWARD, *(-v for v in AWKWARD), np.nan]).astype(dtype)


@ON_WIRE.golden
def casts() -> Cases:
    why = "ties to even, overflow at and just below the limit, denormals, both signs, NaN"
    for wire, statements in (("float16", "P1"), ("bfloat16", "P1 P2")):
        for dtype in ("float32", "float64"):
            name, x = f"cast-{dtype}-to-{wire}", awkward_numbers(dtype)
            yield ON_WIRE.case(name, why, statements, "special", wire=wire, x=x)
    x = beyond_float32()
    twice = x.astype(np.float32).astype(np.float64)
    for wire, statements, why in (
        ("float16", "P1", "float64 becomes float16 in one rounding, not by way of float32"),
        ("bfloat16", "P1 P2", "float64 becomes bfloat16 by way of float32, in two roundings"),
    ):
        case = ON_WIRE.case(f"cast-beyond-float32-to-{wire}", why, statements, wire=wire, x=x)
        same = same_bits(on_wire(twice, wire), case["out.x"])
        yield case.shows(same == (wire == "bfloat16"), "the way matters")
    why = "a NaN stays a NaN, whatever its payload"
    case = ON_WIRE.case("cast-nan-payloads", why, family="special", wire="bfloat16", x=nans())
    yield case.shows(np.isnan(case["out.x"]).all(), "all are NaN")


@P1.mistake("float16 overflow becomes the largest number")
def saturates(x, wire):
    y = on_wire(x, wire)
    overflow = np.isinf(y) & np.isfinite(x)
    return np.where(overflow, np.sign(x) * 65504, y).astype(x.dtype)


@P1.mistake("denormal float16 numbers are flushed to zero")
def flushes(x, wire):
    y = on_wire(x, wire)
    if wire != "float16":
        return y
    return np.where(np.abs(y) < 2.0**-14, np.copysign(np.zeros_like(y), y), y)


@P1.mistake("truncated instead of rounded to float16")
def truncates(x, wire):
    y = on_wire(x, wire)
    if wire != "float16":
        return y
    toward_zero = np.nextafter(y.astype(np.float16), np.float16(0)).astype(x.dtype)
    return np.where(np.abs(y) > np.abs(x), toward_zero, y)


@P1.mistake("float64 becomes float16 by way of float32: rounded twice")
def rounds_twice(x, wire):
    with np.errstate(over="ignore", invalid="ignore"):
        through = x.astype(np.float32).astype(x.dtype)
    return on_wire(through if wire == "float16" else x, wire)


# ---- P2: bfloat16 ----


def bfloat16_bits(x: np.ndarray) -> np.ndarray:
    """P2: float32 to bfloat16 keeps the upper 16 bits, rounded to nearest, ties to even; a NaN
    stays a NaN, whatever its payload. float64 is converted through float32: two roundings.

    Source: IEEE rounding, applied to a format outside the standard.

    Any shape -> uint16 of the same shape.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.asarray(x).astype(np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16)


P2 = Statement("P2", bfloat16_bits)
BITS = JudgedFunction(bfloat16_bits, "P2", {"bits": ("element",)}, "x")
BITS.fresh(lambda d: {"x": d.floats(40)})


@BITS.golden
def bit_cases() -> Cases:
    x = np.concatenate([awkward_numbers(), nans()])
    case = BITS.case("bfloat16-bits", "the 16 bits themselves", family="special", x=x)
    truncated = (x.view(np.uint32) >> 16).astype(np.uint16)
    other = not same_bits(case["out.bits"], truncated)
    yield case.shows(other, "cutting off differs from rounding")


@P2.mistake("float64 becomes bfloat16 in one rounding, not by way of float32", on_wire)
def rounds_once(x, wire):
    if wire != "bfloat16" or x.dtype != np.float64:
        return on_wire(x, wire)
    mantissa, exponent = np.frexp(x)
    return on_wire(np.ldexp(np.rint(mantissa * 2.0**8), exponent - 8), wire)


def float32_bits(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x).astype(np.float32).view(np.uint32).astype(np.uint64)


@P2.mistake("the upper bits of a NaN alone: some become infinite")
def nan_cut_off(x):
    return np.where(np.isnan(x), float32_bits(x) >> 16, bfloat16_bits(x)).astype(np.uint16)


@P2.mistake("a NaN is rounded like a number: some become infinite or zero")
def nan_rounded(x):
    bits = float32_bits(x)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


@P2.mistake("truncated instead of rounded to bfloat16")
def bfloat16_truncated(x):
    with np.errstate(over="ignore", invalid="ignore"):
        return (np.asarray(x).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@P2.mistake("ties go up instead of to even")
def bfloat16_half_up(x):
    half_up = (float32_bits(x) + 0x8000 >> 16).astype(np.uint16)
    return np.where(np.isnan(x), bfloat16_bits(x), half_up)


def bfloat16_values(bits: np.ndarray) -> np.ndarray:
    """The float32 values of bfloat16 bits: exact. uint16 (any) -> float32 (any)"""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


# ---- P3: underflow ----


def underflow_share(x: np.ndarray, wire: str | None) -> float:
    """P3: the underflow share is the share of nonzero elements that become zero on the wire.

    Source: chosen.
    """
    nonzero = np.asarray(x) != 0
    lost = nonzero & (on_wire(x, wire) == 0)
    return float(lost.sum() / max(1, nonzero.sum()))


P3 = Statement("P3", underflow_share)
UNDERFLOW = JudgedFunction(underflow_share, "P3", {"share": ()}, "x")
UNDERFLOW.fresh(lambda d: {"wire": "float16", "x": d.normal(50) * np.float32(2.0**-24)})


@UNDERFLOW.golden
def underflow_cases() -> Cases:
    why = "zeros of both signs do not count; 2^-25 is a tie and goes to 0"
    x = np.array([0.0, -0.0, 1.0, 2**-24, 2**-25, -(2**-26), 3e-8, 65504, 1e-30], np.float32)
    for wire in ("float16", "bfloat16"):
        yield UNDERFLOW.case(f"underflow-share-{wire}", why, wire=wire, x=x)
    for name, numbers, why in (
        ("zeros", [0.0, -0.0, 0.0], "no element is nonzero: a share of 0"),
        ("one", [0.0, 2.0**-30, 0.0], "the only element that is nonzero becomes zero"),
    ):
        given: Given = {"wire": "float16", "x": np.array(numbers, np.float32)}
        yield UNDERFLOW.case(f"underflow-share-{name}", why, **given)


@P3.mistake("zeros count as underflow")
def zeros_count(x, wire):
    return float((on_wire(x, wire) == 0).mean())


@P3.mistake("NaN where no element is nonzero")
def share_of_nothing(x, wire):
    nonzero = x != 0
    with np.errstate(invalid="ignore"):
        return float(np.float64((nonzero & (on_wire(x, wire) == 0)).sum()) / nonzero.sum())


# ---- exercise half: given in the starter ----


def in_float16(x: np.ndarray) -> np.ndarray:
    return on_wire(x, "float16")


def normal(random: np.random.Generator, n: int, factor: float = 1.0) -> np.ndarray:
    """Random float32 numbers. -> (n,)"""
    return (factor * random.standard_normal(n)).astype(np.float32)


HALF_05 = Exercise("05.1", in_float16, "half")
HALF_05.part("ordinary numbers", 1, lambda random: [(normal(random, n),) for n in (40, 1, 0)])
HALF_05.part(
    "numbers that are too large or too small for float16",
    1,
    lambda random: [
        (np.array([65519, 65520, -1e6, 6e-8, 2e-8, -1e-5], np.float32),),
        (normal(random, 40, 1e-6),),
    ],
)
