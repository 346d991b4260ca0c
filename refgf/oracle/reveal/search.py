"""All probes of an allreduce at some sizes, and what they found."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from refgf.oracle.reveal.arithmetic import Arithmetic, measure
from refgf.oracle.reveal.orders import merged, names_of_vector
from refgf.oracle.reveal.probes import Array, Reduce, lost_ranks, opened, runs, subtree_sizes
from refgf.oracle.reveal.trees import Tree, from_lost, from_sizes

MOST_ASKED_SINGLY = 12  # ranks up to which lost units are asked for one by one
Run = tuple[int, int, Tree | None]
Difference = tuple[int, int, Tree | None, Tree | None]  # rank or repeat, element, tree, its tree


Uneven = tuple[int, int, dict[int, float], list[int]]


@dataclass
class Found:
    """What one size of vector showed. runs: (start, stop, tree) on rank 0.

    uneven: (start, stop, {rank: weight}, ranks that hold this) where not every rank counts once.
    rows: results that the black box gave, p or 1. ranks, repeats: the first difference to rank 0
    and to the first time, of each rank and repeat that differs.
    """

    p: int
    n: int
    dtype: str
    runs: tuple[Run, ...]
    uneven: list[Uneven]
    overflow: bool
    arithmetic: Arithmetic
    calls: int
    rows: int = 1
    ranks: list[Difference] = field(default_factory=list)
    repeats: list[Difference] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        complete = all(tree is not None for *_, tree in self.runs)
        return names_of_vector(self.runs) if complete else []

    @property
    def right(self) -> bool:
        """One order, the same on every rank and every time, and a sum or mean of all ranks.

        All ranks end with the same bits, and results have the inputs' type.
        """
        unknown = any(tree is None for *_, tree in self.runs)
        told = self.arithmetic
        scaled = told.division is None and told.factors != [1.0]
        strange = unknown or scaled or self.uneven or self.ranks or self.repeats
        far = told.outside is not None and told.outside.elements > 0
        return not strange and not told.random and not told.apart and not far and not told.wide


def reveal(
    reduce: Reduce, p: int, dtype: str, sizes: list[int], repeats: int = 2
) -> Iterator[Found]:
    """A Found of each size. reduce: sums p arrays of float64 that hold numbers of `dtype`."""
    if repeats < 1 or not sizes or min(sizes) < 1:
        raise ValueError(
            f"reveal: got sizes {sizes} and {repeats} repeats; wanted at least 1 element and 1 "
            "repeat; next: --sizes 1 1000 --repeats 2"
        )
    for n in sizes:
        yield one_size(reduce, p, dtype, n, repeats)


def one_size(reduce: Reduce, p: int, dtype: str, n: int, repeats: int) -> Found:
    box, weights, overflow = opened(reduce, p, dtype, n)
    uneven = unequal_weights(weights)
    box.weights = np.median(weights, axis=0)
    columns = subtree_sizes(box, n)
    found = ColumnTrees(p)
    trees = found.of(columns[0])
    if p <= MOST_ASKED_SINGLY and not uneven and any(tree is None for *_, tree in trees):
        columns = along(columns, lost_ranks(box, n))
        trees = found.of(columns[0])
    told = measure(box, [trees, *(found.of(rank) for rank in columns[1:])], n)
    result = Found(p, n, dtype, trees, uneven, overflow, told, 0)
    result.rows = weights.shape[1]
    result.ranks = [(r, *found.first(columns[0], columns[r])) for r in differing(columns)]
    for repeat in range(1, repeats):
        again = subtree_sizes(box, n)[0]
        size = len(again)
        if (again != columns[0][:size]).any():
            result.repeats.append((repeat, *found.first(columns[0][:size], again)))
    result.calls = box.calls
    return result


def unequal_weights(weights: Array) -> list[Uneven]:
    """Runs of elements in which the contributions of the ranks do not count alike.

    weights: (p, rows, n). Ranks with the same weights have the same runs.
    """
    with np.errstate(all="ignore"):
        usual = np.median(weights, axis=0)
        alike = (np.abs(weights - usual) <= 0.01 * np.abs(usual)) & (usual != 0)
    alike = alike.all(axis=0)
    groups = {}
    for row in np.flatnonzero(~alike.all(axis=1)).tolist():
        groups.setdefault(np.where(alike[row], 1.0, weights[:, row]).tobytes(), []).append(row)
    found = []
    for ranks in groups.values():
        row = ranks[0]
        strange = np.nan_to_num(np.where(alike[row], 1.0, weights[:, row]), nan=-1.0)
        spans = [(i, j) for i, j in runs(np.vstack([strange, ~alike[row]])) if not alike[row, i]]
        each = [dict(enumerate(weights[:, row, i].tolist())) for i, _ in spans]
        found += [(i, j, weight, ranks) for (i, j), weight in zip(spans, each)]
    return found


def along(sizes: Array, lost: Array) -> Array:
    """Both for each row: (rows, 2 * pairs, n)."""
    rows = max(len(sizes), len(lost))
    parts = [np.broadcast_to(a, (rows, *a.shape[1:])).astype(np.int64) for a in (sizes, lost)]
    return np.concatenate(parts, axis=1)


def differing(columns: Array) -> list[int]:
    return [r for r in range(1, len(columns)) if (columns[r] != columns[0]).any()]


class ColumnTrees:
    """The tree of a column of subtree sizes, which may stand before a column of lost ranks."""

    def __init__(self, p: int):
        self.p, self.pairs, self.known = p, p * (p - 1) // 2, {}

    def one(self, column: Array) -> Tree | None:
        key = column.tobytes()
        if key not in self.known:
            tree = from_sizes(column[: self.pairs], self.p)
            if tree is None and len(column) > self.pairs:
                tree = from_lost(column[self.pairs :], self.p)
            self.known[key] = tree
        return self.known[key]

    def of(self, columns: Array) -> tuple[Run, ...]:
        parts = [(i, j, self.one(np.ascontiguousarray(columns[:, i]))) for i, j in runs(columns)]
        return merged(parts)

    def first(self, a: Array, b: Array) -> tuple[int, Tree | None, Tree | None]:
        """The first element in which two vectors differ, and its trees."""
        e = int(np.flatnonzero((a != b).any(axis=0))[0])
        return e, *(self.one(np.ascontiguousarray(columns[:, e])) for columns in (a, b))


def same_order(found: list[Found]) -> tuple[list[str], int | None]:
    """The names that hold for all sizes; where there are none, the first size without one."""
    common = None
    for each in found:
        names = list(each.names)
        if len(each.runs) == 1 and each.runs[0][2] is not None:
            names.append(repr(each.runs[0][2]))
        common = names if common is None else [name for name in common if name in names]
        if not common:
            return [], each.n
    return common, None
