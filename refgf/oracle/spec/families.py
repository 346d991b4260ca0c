"""Families of inputs, each of which proves something.

invariant    multiples of 1/4: every partial sum is exact, so any order gives these bits. A wrong
             result is a wrong algorithm.
sensitive    large numbers that cancel next to small ones: only the stated order gives these bits.
provenance   rank r adds 2^r: the difference from 2^p - 1 names the ranks lost or counted twice.
special      zeros of both signs, infinities, NaN, the largest numbers.
denormal     sums in and around the denormal range, which show flushing to zero.
"""

import numpy as np

from refgf.oracle.spec.draw import Draw, pick
from refgf.oracle.spec.floats import DIGITS, LARGEST, SMALLEST
from refgf.oracle.spec.precision.wire import on_wire

FAMILY_SAYS = {
    "invariant": (
        "sums are exact in any order: a wrong result is a wrong algorithm, not another order"
    ),
    "sensitive": (
        "large numbers cancel beside small ones: only this order of summation gives these bits"
    ),
    "provenance": (
        "rank r contributes 2^r: the result names the ranks that were lost or counted twice"
    ),
    "special": "signed zeros, infinities, NaN and the largest numbers",
    "denormal": "denormal numbers: flushing them to zero shows",
}
FAMILIES = tuple(FAMILY_SAYS)


def array_type(dtype: str) -> np.dtype:
    """bfloat16 numbers are in float32 arrays."""
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


def inputs(
    family: str, p: int, n: int, dtype: str, rng: np.random.Generator, wire: str | None = None
) -> np.ndarray:
    """(p, n) numbers of a family, each representable in dtype; large is large for the wire."""
    x = {
        "invariant": _invariant,
        "sensitive": _sensitive,
        "provenance": _provenance,
        "special": _special,
        "denormal": _denormal,
    }[family](p, n, wire or dtype, rng)
    with np.errstate(over="ignore"):  # a large number of one type may be infinite in another
        return on_wire(x.astype(array_type(dtype)), dtype)


def any_vectors(d: Draw, dtype: str, wire_type: str | None) -> np.ndarray:
    """(p, n) numbers of a family whose order of summation or special numbers show."""
    family = pick(d.rng, "sensitive", "sensitive", "special", "denormal")
    return inputs(family, d.p, d.n, dtype, d.rng, wire_type)


def _invariant(p: int, n: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-8, 9, (p, n)) * 0.25


def _sensitive(p: int, n: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    large = 2.0 ** DIGITS[dtype]
    mixture = rng.choice([large, 1.0, -large, 1.0, 0.5, -1.5], (p, n))
    return np.where(rng.random((p, n)) < 0.3, rng.standard_normal((p, n)), mixture)


def _provenance(p: int, n: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    return np.repeat(2.0 ** np.arange(p), n).reshape(p, n)


def _special(p: int, n: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    largest = LARGEST[dtype]
    odd = [0.0, -0.0, -0.0, np.inf, -np.inf, np.nan, largest, -largest, 1.0]
    x = rng.choice(odd[:3] * 4 + odd[3:], (p, n))
    x[:, : n // 4] = -0.0  # their sum is -0, which an accumulator that starts at +0 gets wrong
    return x


def _denormal(p: int, n: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-9, 10, (p, n)) * SMALLEST[dtype]
