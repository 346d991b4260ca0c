"""S1 and S2: the exact sum, and how far any order of summation may be from it."""

import math
from fractions import Fraction

import numpy as np

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
HALF_SMALLEST = {
    "float64": 2.0**-1074,
    "float32": 2.0**-150,
    "float16": 2.0**-25,
    "bfloat16": 2.0**-134,
}
LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
}


def exact_sum(xs: list[np.ndarray]) -> np.ndarray:
    """S1: the sum over ranks of each element, rounded once, to float64.

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
            total = sum(map(Fraction, column))
            if abs(total) > LARGEST["float64"]:
                return math.inf if total > 0 else -math.inf
            return float(total)
    return sum(v for v in column if not math.isfinite(v))


def summation_bound(xs: list[np.ndarray], wire: str | None = None) -> np.ndarray:
    """S2: how far from exact_sum any order of adding p numbers may end.

    Let u be the unit roundoff of the arrays' type, u_w the wire type's, and h_w half the wire
    type's smallest number (both 0 without a wire type). A number takes part in at most p-1
    additions. It is rounded to the wire type at most p+1 times: as an input, after each addition,
    as a result. So it ends multiplied by at most (1+u)^(p-1) (1+u_w)^(p+1), which differs from 1
    by at most K/(1-K) with K = (p-1)u + (p+1)u_w. In the denormal range rounding to the wire errs
    by up to h_w instead, at most 2p times in all; addition is exact there.

        |got - exact| <= K/(1-K) * sum |x_r| + 2p h_w/(1-K) + u64 |exact|

    The last term is there because exact_sum rounds once. The bound is infinite where partial sums
    may overflow. p arrays (n,) -> float64 (n,)
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
