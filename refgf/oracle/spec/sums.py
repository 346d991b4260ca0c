"""S1 and S2: the exact sum, and how far any order of summation may be from it."""

import math
from fractions import Fraction

import numpy as np

from refgf.oracle.spec.draw import random_source
from refgf.oracle.spec.families import FAMILY_SAYS, any_vectors, inputs
from refgf.oracle.spec.floats import HALF_SMALLEST, LARGEST, UNIT_ROUNDOFF
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement, differs_with

# ---- S1: the exact sum ----


def exact_sum(xs: list[np.ndarray]) -> np.ndarray:
    """S1: the exact sum is the sum of the inputs, rounded once to float64; a sum of 0 is +0, of -0
    alone too.

    p arrays (n,) -> float64 (n,)
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN
        columns = np.stack([np.asarray(x, np.float64) for x in xs], axis=1)  # (n, p)
    return np.array([_fsum(column) for column in columns.tolist()], np.float64)


def _fsum(column: list[float]) -> float:
    """math.fsum, with IEEE's result for overflow and for infinite terms, where math.fsum raises."""
    if all(map(math.isfinite, column)):
        try:
            return math.fsum(column)
        except OverflowError:
            total = sum(map(Fraction, column), Fraction(0))
            if abs(total) > LARGEST["float64"]:
                return math.inf if total > 0 else -math.inf
            return float(total)
    return sum(v for v in column if not math.isfinite(v))


S1 = Statement("S1", exact_sum)
EXACT = JudgedFunction(exact_sum, "S1", {"sum": ("element",)}, "x")
EXACT.fresh(lambda d: {"x": any_vectors(d, "float64", None)})


@S1.mistake("summed in float64, term by term")
def sum_in_float64(xs):
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sum(np.asarray(xs, np.float64), axis=0)


@EXACT.golden
def exact_cases() -> Cases:
    families = (9, "float64", "sensitive"), (4, "float64", "special"), (5, "float16", "sensitive")
    for p, dtype, family in families:
        name = f"exact-sum-p{p}-{dtype}-{family}"
        x = inputs(family, p, 24, dtype, random_source(name))
        why = f"summed exactly, rounded once: {FAMILY_SAYS[family]}"
        case = EXACT.case(name, why, family=family, x=x)
        shows = p != 9 or differs_with(case, exact_sum=sum_in_float64)
        yield case.shows(shows, "summing in float64 differs")


# ---- S2: any order ----


def summation_bound(xs: list[np.ndarray], wire: str | None = None) -> np.ndarray:
    """S2: with K = (p-1)u + (p+1)u_w, no order errs by more than K/(1-K) sum abs(x_r) + 2p
    h_w/(1-K) + u64 abs(exact); u, u_w: unit roundoff of the arrays' and the wire type; h_w: half
    the wire type's smallest number. Where partial sums may overflow there is no bound.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, ch. 4, with the wire's roundings
    included.

    A number takes part in at most p-1 additions. It is rounded to the wire type at most p+1 times:
    as an input, after each addition, as a result. So it ends multiplied by at most (1+u)^(p-1)
    (1+u_w)^(p+1), which differs from 1 by at most K/(1-K). In the denormal range rounding to the
    wire errs by up to h_w instead, at most 2p times in all; addition is exact there. Without a wire
    type u_w and h_w are 0. The last term is there because exact_sum rounds once. The bound is
    infinite where partial sums may overflow. p arrays (n,) -> float64 (n,)
    """
    p, name = len(xs), str(xs[0].dtype)
    u_w, h_w, largest = 0.0, 0.0, LARGEST[name]
    if wire is not None:
        u_w, h_w, largest = UNIT_ROUNDOFF[wire], HALF_SMALLEST[wire], min(largest, LARGEST[wire])
    k = (p - 1) * UNIT_ROUNDOFF[name] + (p + 1) * u_w
    if k >= 1:
        raise ValueError(
            f"summation_bound: got {p} ranks in {wire or name}, K = {k:.3g}; wanted K below 1; "
            "next: fewer ranks or a wider type"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        magnitude = exact_sum([np.abs(np.asarray(x, np.float64)) for x in xs])
        bound = k / (1 - k) * magnitude + 2 * p * h_w / (1 - k) + 2.0**-53 * np.abs(exact_sum(xs))
        return np.where(magnitude * (1 + k / (1 - k)) < largest, bound, np.inf)


S2 = Statement("S2", summation_bound)
BOUND = JudgedFunction(summation_bound, "S2", {"bound": ("element",)}, "x")


@BOUND.golden
def bounds() -> Cases:
    why = (
        "how far any order may end from the exact sum; element 0 overflows, so nothing is promised"
    )
    for wire in (None, "float16", "bfloat16"):
        x = inputs("sensitive", 4, 24, "float32", random_source("bound"), "float16")
        x[:, 0] = 3e38
        case = BOUND.case(f"bound-wire-{wire}", f"{why} there", wire=wire, x=x)
        open_ended = np.isinf(case["out.bound"])
        case.tensors["bound.bound"] = np.nan_to_num(case["out.bound"] * 2.0**-40, posinf=0.0)
        only_0 = open_ended[0] and not open_ended[1:].any()
        yield case.shows(only_0, "only element 0 is open")


@S2.mistake("a bound without the roundings of the wire")
def bound_without_wire(xs, wire=None):
    u, p = np.finfo(xs[0].dtype).eps / 2, len(xs)
    return (p - 1) * u / (1 - (p - 1) * u) * np.abs(np.asarray(xs, np.float64)).sum(axis=0)
