"""Names of known orders: of a whole vector, and of one tree."""

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

from refgf.oracle.definitions import slice_bounds
from refgf.oracle.judge.orders import ORDERS
from refgf.oracle.reveal.trees import Tree, leaves, node

Runs = tuple[tuple[int, int, Tree], ...]


class Symbol:
    """A rank's array whose elements are trees: enough of an array for the orders of the judge."""

    def __init__(self, tree: Tree):
        self.tree = tree

    def __add__(self, other: "Symbol") -> "Symbol":
        return Symbol(node((self.tree, other.tree)))


def symbols(p: int, n: int) -> list[np.ndarray]:
    """p arrays (n,) of symbols."""
    found = []
    for r in range(p):
        x = np.empty(n, object)
        x[:] = [Symbol(r)] * n
        found.append(x)
    return found


def merged(parts: Iterable[tuple[int, int, Tree | None]]) -> tuple:
    """Neighbours with the same tree become one run; empty runs go."""
    found = []
    for start, stop, tree in parts:
        if found and found[-1][2] == tree:
            found[-1] = found[-1][0], stop, tree
        elif stop > start:
            found.append((start, stop, tree))
    return tuple(found)


@cache
def whole(p: int, n: int) -> dict[str, Runs]:
    """The runs of a vector of n elements in each known order: one tree a slice."""
    bounds, found = slice_bounds(n, p), {}
    for name, order in ORDERS.items():
        trees = [x.tree for x in order(symbols(p, p), lambda a, b: a + b)]
        found[name] = [(i, j, tree) for (i, j), tree in zip(bounds, trees)]
    for shift in range(2, p):  # 0 and 1 are the ring, and the one in which rank r owns slice r
        name = f"ring, slice s begins at rank s+{shift}"
        found[name] = [(i, j, up(s + shift, p)) for s, (i, j) in enumerate(bounds)]
    for shift in range(1, p):
        name = f"ring backwards, slice s begins at rank s+{shift}"
        found[name] = [(i, j, down(s + shift, p)) for s, (i, j) in enumerate(bounds)]
    found |= {name: layout(p, n) for name, layout in LAYOUTS.items()}
    return {name: merged(parts) for name, parts in found.items()}


def fold(ranks: Iterable[int]) -> Tree:
    first, *rest = ranks
    for r in rest:
        first = node((first, r))
    return first


def up(start: int, p: int) -> Tree:
    return fold((start + k) % p for k in range(p))


def down(start: int, p: int) -> Tree:
    return fold((start - k) % p for k in range(p))


def gloo_ring(p: int, n: int) -> list[tuple[int, int, Tree]]:
    """gloo 2.13's: two segments of equal length a rank, folds downwards to rank s.

    Seen by these probes up to 100,000 elements; longer vectors have more segments.
    """
    width = 2 * -(-n // (2 * p))
    edges = [min(n, s * width) for s in range(p + 1)]
    return [(i, j, down(s - 1, p)) for s, (i, j) in enumerate(zip(edges, edges[1:]))]


def gloo_slices(p: int, n: int) -> list[tuple[int, int, Tree]]:
    """gloo 2.13's reduce_scatter of a list: its ring for each slice, one after another."""
    return [(s + i, s + j, t) for s, e in slice_bounds(n, p) for i, j, t in gloo_ring(p, e - s)]


LAYOUTS: dict[str, Callable[[int, int], list]] = {"gloo's ring": gloo_ring}
LAYOUTS["gloo's ring in each slice"] = gloo_slices
LIBRARIES = {  # seen with these probes in MPICH 5.0 and Open MPI 5.0, on one machine
    "recursive doubling or halving-doubling, nearest first": (
        "MPICH's default and recursive doubling, Open MPI's recursive doubling and Rabenseifner"
    ),
    "rank order backwards": "Open MPI's basic linear",
    "ring": "Open MPI's ring and segmented ring",
    "gloo's ring": "torch.distributed with gloo",
    "gloo's ring in each slice": "torch.distributed's reduce_scatter with gloo",
}


@cache
def single(p: int) -> dict[str, Tree]:
    """Trees of one element, by name."""
    found = {}
    for name, order in ORDERS.items():
        if not name.startswith("ring"):
            found[name] = order(symbols(p, 1), lambda a, b: a + b)[0].tree
    for s in range(p):
        found |= {f"fold from rank {s} up": up(s, p), f"fold from rank {s} down": down(s, p)}
    return found


def names_of_vector(runs: Runs) -> list[str]:
    """Known orders with exactly these runs."""
    p, n = 1 + max(leaves(runs[0][2])), runs[-1][1]
    return [name for name, known in whole(p, n).items() if known == runs]


def other_ring(runs: Runs) -> str | None:
    """A ring over slices of other lengths than R1's: a fold all around, from one rank each."""
    p = 1 + max(leaves(runs[0][2]))
    for direction, one in (("ring", up), ("ring backwards", down)):
        begins = {one(s, p): s for s in range(p)}
        first = [begins.get(tree) for *_, tree in runs]
        if len(runs) < 2 or None in first or len(set(first)) < len(first):
            continue
        step = 1 if one is up else -1
        steps = {(b - a) * step % p for a, b in zip(first, first[1:])}
        if p > 2 and steps in ({1}, {p - 1}):
            bounds = ", ".join(str(start) for start, *_ in runs)
            return f"a {direction} with other slice bounds: slices begin at {bounds}"
    return None


def names_of_tree(tree: Tree) -> list[str]:
    p = 1 + max(leaves(tree))
    if isinstance(tree, tuple) and len(tree) == p > 2:
        return ["all at once: exact, in one step of wider numbers, or by the size of the numbers"]
    return [name for name, known in single(p).items() if known == tree]
