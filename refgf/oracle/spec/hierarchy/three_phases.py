"""H4, H6: three phases, and the hybrid. Lesson 10 asks for what the ranks hold after each phase."""

import numpy as np

from refgf.oracle.spec.calls import RANK_ELEMENT, allreduce
from refgf.oracle.spec.case import Given
from refgf.oracle.spec.direct import direct_fold
from refgf.oracle.spec.draw import Draw, pick, random_source, some_nodes
from refgf.oracle.spec.exercise import Exercise
from refgf.oracle.spec.families import any_vectors, inputs
from refgf.oracle.spec.hierarchy.nodes import (
    NODES,
    Nodes,
    any_nodes,
    consecutive,
    node_slices,
    proving,
    round_robin,
    with_nodes,
)
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import Arrays, ring_allreduce
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- H4: three phases ----


def three_phase_allreduce(xs: Arrays, nodes: Nodes, wire: str | None = None) -> Arrays:
    """H4: three phases: slice s of a node of k ranks is a left fold over its ranks s, s+1, ...
    (mod k); the slices are sent to its first rank, the master, which has summed slice 1 itself;
    then R2, R3 over the masters. R3 rounds what is sent: slice 1 (for k = 1 all elements) enters
    that ring unrounded. The sum goes back by the same messages reversed: a scatter by the master,
    then the ring of the reduce-scatter backwards.

    Source: hierarchical all-reduce, reduce to a master, ring over masters, broadcast: Jia et al.
    2018 by the review; its number of steps, 4(k-1) + 2(m-1): unverified; that the reduce is a
    reduce-scatter and a gather is inferred from that number.
    """
    masters = []
    for node in nodes:
        folds, own = node_slices([xs[r] for r in node], wire), 1 % len(node)
        received = [fold if s == own else on_wire(fold, wire) for s, fold in enumerate(folds)]
        masters.append(np.concatenate(received))
    return [ring_allreduce(masters, wire)[0] for _ in xs]


H4 = Statement("H4", three_phase_allreduce)
THREE = JudgedFunction(
    three_phase_allreduce,
    "H4",
    RANK_ELEMENT,
    "x",
    run=allreduce("three_phase_allreduce", "nodes", "wire"),
)
THREE.fresh(any_nodes)


@THREE.golden
def phases() -> Cases:
    for where, nodes in NODES.items():
        for n, wire in ((29, None), (29, "float16"), (1, None)):
            name = f"three-phase-{where}-n{n}" + (f"-wire-{wire}" if wire else "")
            yield proving(THREE, name, "H4", n, "sensitive", nodes=nodes, wire=wire)


@H4.mistake("only the masters receive the sum")
def masters_only(xs, nodes, wire=None):
    total, masters = three_phase_allreduce(xs, nodes, wire), {node[0] for node in nodes}
    return [total[r] if r in masters else xs[r] for r in range(len(xs))]


@H4.mistake("a node's sum is formed in rank order")
def nodes_in_rank_order(xs, nodes, wire=None):
    masters = [direct_fold([xs[r] for r in node], wire) for node in nodes]
    return [ring_allreduce(masters, wire)[0] for _ in xs]


@H4.mistake("the master rounds its own slice before the ring too")
def master_rounds(xs, nodes, wire=None):
    masters = [np.concatenate(node_slices([xs[r] for r in node], wire)) for node in nodes]
    return [ring_allreduce([on_wire(x, wire) for x in masters], wire)[0] for _ in xs]


# ---- H6: the hybrid ----


def hybrid_allreduce(xs: Arrays, nodes: Nodes, threshold: int, wire: str | None = None) -> Arrays:
    """H6: hybrid: three phases below a threshold of elements, the flat ring from there on.

    Source: hybrid all-reduce, hierarchical for small tensors and a ring for large ones: Jia et al.
    2018 by the review; below is less than: chosen.
    """
    if len(xs[0]) < threshold:
        return three_phase_allreduce(xs, nodes, wire)
    return ring_allreduce(xs, wire)


H6 = Statement("H6", hybrid_allreduce)
HYBRID = JudgedFunction(
    hybrid_allreduce,
    "H6",
    RANK_ELEMENT,
    "x",
    run=allreduce("hybrid_allreduce", "nodes", "threshold", "wire"),
)
H6.given("three phases at the threshold too", threshold=lambda elements: elements + 1)


@HYBRID.fresh
def near_the_threshold(d: Draw) -> Given:
    nodes, wire = some_nodes(d.rng, d.p), pick(d.rng, None, "float16")
    settings = {"wire": wire, "nodes": nodes, "threshold": max(0, d.n + d.integer(-1, 1))}
    return {**settings, "x": any_vectors(d, "float32", wire)}


@HYBRID.golden
def hybrids() -> Cases:
    for n in (12, 13, 14):
        x = inputs("sensitive", 4, n, "float32", random_source(f"hybrid-{n}", 3))
        settings: Given = {"threshold": 13, "wire": None}
        why = f"{n} elements, a threshold of 13"
        name, nodes = f"hybrid-n{n}", NODES["2-2"]
        yield HYBRID.case(name, why, family="sensitive", nodes=nodes, **settings, x=x)


@H6.mistake("the flat ring below the threshold")
def hybrid_reversed(xs, nodes, threshold, wire=None):
    if len(xs[0]) < threshold:
        return ring_allreduce(xs, wire)
    return three_phase_allreduce(xs, nodes, wire)


# ---- three_phases(xs, nodes) ----


def three_phases(xs: Arrays, nodes: Nodes) -> list[Arrays]:
    """What each rank holds after each phase."""
    masters = [node[0] for node in nodes]
    reduced = {node[0]: np.sum([xs[r] for r in node], axis=0) for node in nodes}
    held = three_phase_allreduce(xs, nodes)
    first = [reduced.get(r, x) for r, x in enumerate(xs)]
    return [first, [held[r] if r in masters else x for r, x in enumerate(xs)], held]


PHASES_10 = Exercise("10.2", three_phases)
PHASES_10.part("nodes of equal size", 2, with_nodes((consecutive(2, 2), 2), (consecutive(3, 4), 7)))
PHASES_10.part(
    "nodes of different sizes, ranks in any order",
    2,
    with_nodes(([[0, 3], [1], [2, 4, 5]], 4), (round_robin(2, 3), 5), ([[2, 0], [3, 1]], 2)),
)
PHASES_10.part(
    "one node, one rank a node, no elements",
    1,
    with_nodes((consecutive(1, 3), 2), (consecutive(3, 1), 2), (consecutive(2, 2), 0)),
)


@PHASES_10.mistake(
    "you take the ranks 0 to m-1 as masters, but a master is the first rank of its node"
)
def first_ranks_are_masters(xs, nodes):
    reduced, summed = list(xs), list(xs)
    for i, node in enumerate(nodes):
        reduced[i] = sum(xs[r] for r in node)
    total = sum(reduced[: len(nodes)])
    summed[: len(nodes)] = [total] * len(nodes)
    return [reduced, summed, [total] * len(xs)]


@PHASES_10.mistake(
    "you take the ranks of a node as neighbours, all nodes as equally large: use the lists"
)
def ranks_are_neighbours(xs, nodes):
    k = len(xs) // len(nodes)
    found = three_phases(xs[: k * len(nodes)], consecutive(len(nodes), k))
    rest = xs[k * len(nodes) :]
    return [held + rest for held in found[:2]] + [[found[2][0]] * len(xs)]


@PHASES_10.mistake("the third phase is missing: only the masters hold the sum")
def without_the_broadcast(xs, nodes):
    first, second, _ = three_phases(xs, nodes)
    return [first, second, second]


@PHASES_10.mistake(
    "after phase 2 only the masters hold the sum, the other ranks still their own arrays"
)
def broadcast_too_early(xs, nodes):
    first, _, third = three_phases(xs, nodes)
    return [first, third, third]


@PHASES_10.mistake("phase 1 is a reduce, no allreduce: only the master holds the sum of its node")
def all_ranks_hold_the_node_sum(xs, nodes):
    first, second, third = three_phases(xs, nodes)
    for node in nodes:
        for r in node:
            first[r] = first[node[0]]
            second[r] = second[node[0]] if r == node[0] else first[node[0]]
    return [first, second, third]


@PHASES_10.mistake(
    "in phase 2 you add the arrays of all ranks, but the masters' sums contain these"
)
def sums_all_in_phase_2(xs, nodes):
    first, second, _ = three_phases(xs, nodes)
    total = sum(first, np.zeros_like(first[0]))
    second = [total if any(r == node[0] for node in nodes) else x for r, x in enumerate(xs)]
    return [first, second, [total] * len(xs)]


@PHASES_10.mistake(
    "all your three lists are the last one: copy what the ranks hold after each phase"
)
def same_list_each_phase(xs, nodes):
    return [three_phases(xs, nodes)[2]] * 3


@PHASES_10.mistake("you return the mean; wanted the sum")
def mean_of_all(xs, nodes):
    first, second, third = three_phases(xs, nodes)
    mean = third[0] / np.float32(len(xs))
    second = [mean if any(r == node[0] for node in nodes) else x for r, x in enumerate(second)]
    return [first, second, [mean] * len(xs)]
