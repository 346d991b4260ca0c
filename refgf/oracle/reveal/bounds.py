"""How far a sum of random numbers may be from the exact one, where no tree gives its bits.

A number takes part in at most p-1 additions, is rounded to a narrower type at most p+1 times, and a
mean divides once. Each of these multiplies it by 1 + e, abs(e) <= u of the type (S2 of SPEC.md).
Where more than two terms are added at once, each may lose what is below the last bit of the
largest term, 2u of it. So with

    K = (p-1) u + (p+1) u_w + u [a mean] + 2pu [more than two at once]

    abs(got - exact) <= K/(1-K) sum abs(x_r) + 2p h/(1-K) + u64 abs(exact)

u: unit roundoff of the narrowest accumulator; u_w: of the type named as lost; h: half the smallest
number of the narrowest type. For a mean the sums, but not h, are divided by p.
"""

from dataclasses import dataclass

import numpy as np

from refgf.oracle.definitions import exact_sum
from refgf.oracle.spec.floats import HALF_SMALLEST, LARGEST, UNIT_ROUNDOFF

Array = np.ndarray


@dataclass(frozen=True)
class Outside:
    """Elements that are farther than allowed; the first of them, with its rank."""

    elements: int
    rank: int = 0
    element: int = 0
    got: float = 0.0
    exact: float = 0.0
    allowed: float = 0.0


@dataclass(frozen=True)
class Rounding:
    """How often and how coarsely numbers are rounded. wire: the type named as lost, or None."""

    dtype: str
    accumulator: float  # unit roundoff
    wire: str | None = None
    mean: bool = False
    at_once: bool = False

    def factor(self, p: int) -> float:
        """K."""
        wire = UNIT_ROUNDOFF[self.wire] if self.wire else 0.0
        return (p - 1 + self.mean + 2 * p * self.at_once) * self.accumulator + (p + 1) * wire


def outside(xs: list[Array], rows: Array, rounding: Rounding) -> Outside | None:
    """Which results of each rank, (rows, n), no such rounding explains. None: K >= 1, no bound."""
    p, k = len(xs), rounding.factor(len(xs))
    if k >= 1:
        return None
    names = [name for name in (rounding.dtype, rounding.wire) if name]
    smallest, largest = max(HALF_SMALLEST[t] for t in names), min(LARGEST[t] for t in names)
    parts = p if rounding.mean else 1
    exact, magnitude = exact_sum(xs), exact_sum([np.abs(x) for x in xs])
    bound = (k / (1 - k) * magnitude + 2.0**-53 * np.abs(exact)) / parts
    bound += 2 * p * smallest / (1 - k)
    bound[magnitude / (1 - k) >= largest] = np.inf  # a partial sum may overflow
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(rows - exact / parts) <= bound) | np.isinf(bound))
    if not wrong.any():
        return Outside(0)
    rank, e = (int(i) for i in np.argwhere(wrong)[0])
    numbers = rows[rank, e].item(), exact[e].item() / parts, bound[e].item()
    return Outside(int(wrong.any(axis=0).sum()), rank, e, *numbers)
