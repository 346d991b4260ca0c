"""Inputs that prove something, and the making of cases from them.

invariant    multiples of 1/4: every partial sum is exact, so any order gives these bits. Proves the algorithm.
sensitive    large numbers that cancel beside small ones: only the stated order gives these bits. Proves the order.
provenance   rank r contributes 2^r: the difference to 2^p - 1 names the ranks lost or counted twice.
special      zeros of both signs, infinities, NaN, the largest numbers.
denormal     sums in and around the denormal range: flushing them to zero shows.
"""

import zlib

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import on_wire
from refgf.oracle.judge.cases import Case, fill

DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
FAMILIES = ("invariant", "sensitive", "provenance", "special", "denormal")


def array_type(dtype):
    """bfloat16 numbers live in float32 arrays."""
    return np.float32 if dtype == "bfloat16" else np.dtype(dtype)


def random_source(name, seed=0):
    """The same numbers for the same case, whichever others are made."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def inputs(family, p, n, dtype, rng, wire=None):
    """(p, n) numbers of a family, each representable in dtype; large ones are large for the wire type."""
    x = {
        "invariant": _invariant,
        "sensitive": _sensitive,
        "provenance": _provenance,
        "special": _special,
        "denormal": _denormal,
    }[family](p, n, wire or dtype, rng)
    with np.errstate(over="ignore"):  # what is large for one type may be infinite in another
        return on_wire(x.astype(array_type(dtype)), dtype)


def _invariant(p, n, dtype, rng):
    return rng.integers(-8, 9, (p, n)) * 0.25


def _sensitive(p, n, dtype, rng):
    large = 2.0 ** DIGITS[dtype]
    mixture = rng.choice([large, 1.0, -large, 1.0, 0.5, -1.5], (p, n))
    return np.where(rng.random((p, n)) < 0.3, rng.standard_normal((p, n)), mixture)


def _provenance(p, n, dtype, rng):
    return np.repeat(2.0 ** np.arange(p), n).reshape(p, n)


def _special(p, n, dtype, rng):
    largest = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38}.get(dtype) or float(
        np.finfo(dtype).max
    )
    odd = [0.0, -0.0, -0.0, np.inf, -np.inf, np.nan, largest, -largest, 1.0]
    x = rng.choice(odd[:3] * 4 + odd[3:], (p, n))
    x[:, : n // 4] = -0.0  # their sum is -0, which an accumulator that starts at +0 gets wrong
    return x


def _denormal(p, n, dtype, rng):
    return rng.integers(-9, 10, (p, n)) * SMALLEST[dtype]


def make(name, function, statements, why, arguments=None, family="values", short=(), **arrays):
    """A case with inputs `arrays`, filled with what the definitions say."""
    tensors = {f"in.{key}": np.asarray(value) for key, value in arrays.items()}
    short = tuple(f"in.{key}" for key in short)
    case = Case(name, function, statements.split(), why, family, arguments or {}, tensors, short)
    return fill(case, definitions)


def require(condition, case, claim):
    """The generator's own check that a case exercises what it claims."""
    if not condition:
        raise AssertionError(
            f"golden case {case.name}: {claim} does not hold; next: another seed or shape"
        )
