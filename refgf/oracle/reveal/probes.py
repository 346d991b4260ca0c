"""Probes: M at one rank, -M at another, units at the rest. What is left counts late additions.

    p = 4, the order ((0+1)+2)+3           contributed        sum   lost   smallest subtree
    i, j = 0, 1: M - M = 0, then 1 + 1      M  -M   1   1      2     2     {0, 1}
    i, j = 0, 2: M + 1 = M, M - M = 0       M   1  -M   1      1     3     {0, 1, 2}
    i, j = 2, 3: 1 + 1, 2 + M = M, M - M    1   1   M  -M      0     4     all

Counts of units are exact up to 2^t for a type of t bits, so a type has a largest number of ranks.
M must absorb p units, in a wider accumulator too where the type's range allows that. float16's
does for accumulators in float32 up to 18 ranks, not for float64; the other types' does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

Array = np.ndarray
Reduce = Callable[[list[Array]], list[Array]]  # p float64 arrays (n,) -> a float64 row of each rank
BITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}


@dataclass(frozen=True)
class Scale:
    """M and the unit that it absorbs."""

    big: float
    unit: float


SCALES = {
    "float64": Scale(2.0**400, 1.0),
    "float32": Scale(2.0**120, 1.0),
    "bfloat16": Scale(2.0**120, 1.0),
    "float16": Scale(2.0**15, 2.0**-14),  # its largest and smallest normal powers of two
}


@dataclass
class Box:
    """The black box, and how to ask it.

    reduce: sums p arrays; its rows are one of each rank, or a single one. scale: of the probes.
    weights: (rows, n), what a contribution of 1 becomes: 1 in a sum, 1/p in a mean. calls: so far.
    """

    reduce: Reduce
    p: int
    dtype: str
    scale: Scale
    weights: Array | None = None
    calls: int = 0

    def call(self, xs: list[Array]) -> Array:
        """The result of one call, (rows, n) in float64."""
        self.calls += 1
        n, rows = len(xs[0]), [np.asarray(row, np.float64) for row in self.reduce(xs)]
        if len(rows) not in (1, self.p) or any(row.shape != (n,) for row in rows):
            shapes = sorted({row.shape for row in rows})
            raise ValueError(
                f"reveal: got {len(rows)} results of shapes {shapes}; wanted one of each of "
                f"{self.p} ranks, ({n},); next: return the sum of every rank"
            )
        return np.stack(rows)

    def constants(self, n: int, values: dict[int, float], others: float = 0.0) -> Array:
        """One call in which rank r contributes values[r] everywhere, the rest `others`."""
        return self.call([np.full(n, values.get(r, others)) for r in range(self.p)])

    def counted(self, result: Array) -> Array:
        """How many units are in a result, (rows, n); -1 where that is no whole number."""
        with np.errstate(all="ignore"):
            units = result / self.weights / self.scale.unit
            count = np.rint(units)
            right = (np.abs(units - count) < 0.25) & (count >= 0) & (count <= self.p)
        return np.where(right, count, -1).astype(np.int16)


def require_ranks(p: int, dtype: str) -> None:
    if p == 1:
        raise ValueError(
            "reveal: got 1 rank, which adds nothing; wanted at least 2; next: --ranks 4"
        )
    most = 2 ** BITS[dtype]
    if not 2 <= p <= min(most, 4096):
        raise ValueError(
            f"reveal: got {p} ranks and {dtype}; wanted 2 to {min(most, 4096)}, because {dtype} "
            f"counts without rounding up to {most} only; next: fewer ranks or a wider type"
        )


def opened(reduce: Reduce, p: int, dtype: str, n: int) -> tuple[Box, Array, bool]:
    """A Box for n elements, the weight of each rank's contribution (p, rows, n), and: overflow?

    Where M does not come through, as when float16 is on the wire, the numbers of float16 are used.
    """
    require_ranks(p, dtype)
    box, overflow = Box(reduce, p, dtype, SCALES[dtype]), False
    weights = np.stack([box.constants(n, {r: box.scale.big}) for r in range(p)]) / box.scale.big
    if not np.isfinite(weights).all() and dtype != "float16":
        overflow, box.scale = True, SCALES["float16"]
    unit = box.scale.unit
    weights = np.stack([box.constants(n, {r: unit}) for r in range(p)]) / unit
    box.weights = weights[0]
    overflow = overflow and bool(np.isfinite(weights).any())  # NaN of all numbers is none
    return box, weights, overflow


def pairs(p: int) -> list[tuple[int, int]]:
    return list(combinations(range(p), 2))


def subtree_sizes(box: Box, n: int) -> Array:
    """For each pair the leaves of the smallest subtree that holds both: (rows, pairs, n).

    The rows of ranks that all hold the same are one row. p + 1 where the result counts nothing.
    """
    big, unit = box.scale.big, box.scale.unit
    results = ({i: big, j: -big} for i, j in pairs(box.p))
    counts = [box.counted(box.constants(n, values, unit)) for values in results]
    rows = np.stack(counts, axis=1)
    if (rows == rows[:1]).all():
        rows = rows[:1]
    return np.where(rows < 0, box.p + 1, box.p - rows).astype(np.int16)


def lost_ranks(box: Box, n: int) -> Array:
    """For each pair the set of ranks whose unit is lost, as bits: (rows, pairs, n).

    Asked a rank at a time, p(p-1)(p-2)/2 calls. A set tells more than its size where more than two
    are added at once.
    """
    big, unit, found = box.scale.big, box.scale.unit, []
    for i, j in pairs(box.p):
        lost = np.int64(1 << i | 1 << j)
        for k in set(range(box.p)) - {i, j}:
            count = box.counted(box.constants(n, {i: big, j: -big, k: unit}))
            lost = lost | np.where(count == 1, 0, np.int64(1 << k))
            lost = lost | np.where(count < 0, np.int64(1 << box.p), 0)  # no count: fits no tree
        found.append(np.broadcast_to(lost, box.weights.shape))
    rows = np.stack(found, axis=1)
    return rows[:1] if (rows == rows[:1]).all() else rows


def runs(columns: Array) -> Iterator[tuple[int, int]]:
    """(start, stop) of the longest runs of equal columns of (anything, n)."""
    n = columns.shape[1]
    changes = np.flatnonzero((columns[:, 1:] != columns[:, :-1]).any(axis=0)) + 1
    edges = [0, *changes.tolist(), n]
    yield from zip(edges, edges[1:])
