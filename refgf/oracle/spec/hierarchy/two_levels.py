"""H5: two levels. Lesson 10 asks for what the ranks hold after each step."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import RANK_ELEMENT, allreduce
from refgf.oracle.spec.exercise import Exercise
from refgf.oracle.spec.hierarchy.nodes import (
    NODES,
    Nodes,
    any_nodes,
    consecutive,
    node_slices,
    proving,
    with_nodes,
)
from refgf.oracle.spec.hierarchy.three_phases import three_phase_allreduce
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import (
    Arrays,
    equal_slices,
    last_slice_longer,
    ring_allreduce,
    slice_bounds,
)
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement


def two_level_allreduce(xs: Arrays, nodes: Nodes, wire: str | None = None) -> Arrays:
    """H5: two levels: slices as in H4; then for each slice R2, R3 over the nodes, which have
    equally many ranks. A node's finished slice enters that ring unrounded.

    Source: known practice.
    """
    sums = [node_slices([xs[r] for r in node], wire) for node in nodes]
    total = np.concatenate([ring_allreduce(list(folds), wire)[0] for folds in zip(*sums)])
    return [total.copy() for _ in xs]


H5 = Statement("H5", two_level_allreduce)
TWO = JudgedFunction(
    two_level_allreduce,
    "H5",
    RANK_ELEMENT,
    "x",
    run=allreduce("two_level_allreduce", "nodes", "wire"),
)
TWO.fresh(lambda d: any_nodes(d, equal=True))
H5.mistake("one ring between nodes for the whole vector")(three_phase_allreduce)


@TWO.golden
def levels() -> Cases:
    for where, nodes in NODES.items():
        if len({len(node) for node in nodes}) > 1:
            continue
        for n, wire in ((29, None), (29, "float16"), (1, None)):
            name = f"two-level-{where}-n{n}" + (f"-wire-{wire}" if wire else "")
            yield proving(TWO, name, "H5", n, "sensitive", nodes=nodes, wire=wire)


@H5.mistake("the ranks are taken in the order of their numbers")
def nodes_sorted(xs, nodes, wire=None):
    ranks, k = sorted(rank for node in nodes for rank in node), len(nodes[0])
    return two_level_allreduce(xs, [ranks[i : i + k] for i in range(0, len(ranks), k)], wire)


@H5.mistake("a node's slice is rounded before the ring over nodes too")
def node_rounds(xs, nodes, wire=None):
    sums = [node_slices([xs[r] for r in node], wire) for node in nodes]
    rounded = [[on_wire(fold, wire) for fold in folds] for folds in zip(*sums)]
    total = np.concatenate([ring_allreduce(folds, wire)[0] for folds in rounded])
    return [total.copy() for _ in xs]


# ---- two_levels(xs, nodes) ----


def two_levels_wanted(xs: Arrays, nodes: Nodes) -> list[Arrays]:
    return [*two_levels(xs, nodes)[:2], two_level_allreduce(xs, nodes)]


def two_levels(
    xs: Arrays,
    nodes: Nodes,
    cut: Callable[..., Any] = slice_bounds,
    owner: Callable[..., Any] | None = None,
    sums: bool = True,
) -> list[Arrays]:
    """The keywords make typical mistakes. owner: (rank, place in the node) -> slice."""
    k, scattered, summed = len(nodes[0]), list(xs), list(xs)
    bounds = cut(len(xs[0]), k)
    owned = {}
    for node in nodes:
        for j, r in enumerate(node):
            owned[r] = owner(r, j) % k if owner else j
            start, stop = bounds[owned[r]]
            scattered[r] = np.sum([xs[other][start:stop] for other in node], axis=0)
    for r in owned:
        same = [scattered[other] for other in owned if owned[other] == owned[r]]
        summed[r] = np.sum(same, axis=0) if sums else scattered[r]
    whole = [[summed[r] for r in sorted(node, key=owned.__getitem__)] for node in nodes]
    held = {r: np.concatenate(own) for node, own in zip(nodes, whole) for r in node}
    return [scattered, summed, [held[r] for r in range(len(xs))]]


LEVELS_10 = Exercise("10.3", two_levels_wanted, "two_levels")
LEVELS_10.part("k divides n", 2, with_nodes((consecutive(2, 2), 4), (consecutive(3, 4), 8)))
LEVELS_10.part("k does not divide n", 1, with_nodes((consecutive(2, 2), 3), (consecutive(3, 4), 7)))
LEVELS_10.part(
    "ranks round robin", 1, with_nodes(([[3, 0], [1, 2]], 4), ([[0, 4, 2], [5, 1, 3]], 9))
)
LEVELS_10.part(
    "n < k, one node, one rank a node",
    1,
    with_nodes(
        (consecutive(1, 2), 3),
        (consecutive(3, 1), 2),
        (consecutive(2, 3), 1),
        (consecutive(2, 2), 0),
    ),
)


@LEVELS_10.mistake("your last elements are lost when k does not divide n")
def tail_lost(xs, nodes):
    return two_levels(xs, nodes, cut=equal_slices)


@LEVELS_10.mistake("your last slice takes the whole rest; wanted: the first n mod k are one longer")
def rest_to_the_last(xs, nodes):
    return two_levels(xs, nodes, cut=last_slice_longer)


@LEVELS_10.mistake("you cut into p slices; wanted k, one for each rank of a node")
def slices_of_all_ranks(xs, nodes):
    return two_levels(xs, nodes, cut=lambda n, k: slice_bounds(n, len(xs))[:k])


@LEVELS_10.mistake(
    "the owner of slice j is the j-th rank in its node's list, not the rank r with r mod k = j"
)
def owner_by_rank(xs, nodes):
    return two_levels(xs, nodes, owner=lambda rank, place: rank)


@LEVELS_10.mistake(
    "your owners are shifted by one: the j-th rank of a node is the owner of slice j"
)
def owner_one_on(xs, nodes):
    return two_levels(xs, nodes, owner=lambda rank, place: place + 1)


@LEVELS_10.mistake(
    "in step 1 you cut but do not add: the owner adds its slice of all ranks of the node"
)
def own_slices_only(xs, nodes):
    k = len(nodes[0])
    place = {r: j for node in nodes for j, r in enumerate(node)}
    bounds = [slice_bounds(len(x), k)[place[r]] for r, x in enumerate(xs)]
    first = [x[start:stop] for x, (start, stop) in zip(xs, bounds)]
    columns = [np.sum([first[node[j]] for node in nodes], axis=0) for j in range(k)]
    second = [columns[place[r]] for r in range(len(xs))]
    return [first, second, [np.concatenate(columns)] * len(xs)]


@LEVELS_10.mistake("in step 2 you do not add over the nodes: each node ends with its own sum")
def without_step_2(xs, nodes):
    return two_levels(xs, nodes, sums=False)


@LEVELS_10.mistake("step 3 is missing: each rank ends with its own slice only")
def without_step_3(xs, nodes):
    first, second, _ = two_levels(xs, nodes)
    return [first, second, second]
