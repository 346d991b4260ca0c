"""A3, A6 to A8, A15: means in a node, sums over nodes, and the merge of a late sum."""

import numpy as np

from refgf.oracle.spec.calls import same_bits
from refgf.oracle.spec.case import Given
from refgf.oracle.spec.csc.importance import chunk_bounds
from refgf.oracle.spec.draw import Draw, random_source
from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise, tenths
from refgf.oracle.spec.ring import Arrays, ring_allreduce
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- A3: means in the node ----


def node_gradients(gs: Arrays, nodes: int, averaged: bool) -> Arrays:
    """A3: an averaged gradient is m times the sum over the node, in ring order; otherwise it is p
    times the rank's own gradient.

    Source: chosen, because each loss is divided by the global batch: B = 1, W = 0 is synchronous
    training, on uneven shards too; on even shards Heat's means.

    p arrays -> p arrays
    """
    p, k = len(gs), len(gs) // nodes
    if not averaged:
        return [g.dtype.type(p) * g for g in gs]
    sums = [total for i in range(nodes) for total in ring_allreduce(gs[i * k : (i + 1) * k])]
    return [gs[0].dtype.type(nodes) * total for total in sums]


A3 = Statement("A3", node_gradients)


def node_means(gradients: np.ndarray, k: int) -> np.ndarray:
    """(p, n) -> (m, n)"""
    return np.array([gradients[i : i + k].mean(axis=0) for i in range(0, len(gradients), k)])


MEANS_13 = Exercise("13.1", node_means, relative=1e-12)  # the sum may be in another order
MEANS_13.part(
    "several nodes",
    1,
    lambda random: [(random.standard_normal((m * k, 5)), k) for m, k in ((2, 2), (3, 4))],
)
MEANS_13.part(
    "one node, one rank a node",
    1,
    lambda random: [(random.standard_normal((4, 3)), k) for k in (4, 1)],
)


@A3.mistake("the node's sum is not multiplied by the number of nodes")
def node_sum_alone(gs, nodes, averaged):
    factor = nodes if averaged else len(gs)
    return [g / g.dtype.type(factor) for g in node_gradients(gs, nodes, averaged)]


@A3.mistake("gradients averaged over all nodes: synchronous training")
def averaged_over_all(gs, nodes, averaged):
    return ring_allreduce(gs)


# ---- A6, A15: the merge of a late sum ----


def daso_merge(w: np.ndarray, total: np.ndarray, nodes: int, waited: int) -> np.ndarray:
    """A6: a late sum is merged: w <- (2S w + sum) / (2S + m), after S batches, in that order of
    rounding. For S = 0 daso_merge and heat_merge (A15) take 2S as 1; runs never merge then (A11,
    A16).

    Source: Heat; the rounding chosen, Heat's: A15.

    (n,) -> (n,)
    """
    own = 2 * waited if waited else 1
    return (w.dtype.type(own) * w + total) / w.dtype.type(own + nodes)


def heat_merge(w: np.ndarray, total: np.ndarray, nodes: int, waited: int) -> np.ndarray:
    """A15: `heat`: w <- w (2S / (2S + m)) + sum / (2S + m), the factor in float64, then each
    operation rounded. S is A5's, however late the sum is.

    Source: Heat, with PyTorch's rounding on a CPU; on CUDA it multiplies by a reciprocal instead,
    by its source.

    (n,) -> (n,)
    """
    own = 2 * waited if waited else 1
    return w * w.dtype.type(own / (own + nodes)) + total / w.dtype.type(own + nodes)


A6 = Statement("A6", daso_merge)
A15 = Statement("A15", heat_merge)
MERGE = JudgedFunction(daso_merge, "A6", {"w": ("element",)}, "w total")
HEAT_MERGE = JudgedFunction(heat_merge, "A15", {"w": ("element",)}, "w total")


def late_sum(d: Draw) -> Given:
    return {"nodes": d.p, "waited": d.integer(0, 9), "w": d.normal(d.n), "total": d.normal(d.n)}


MERGE.fresh(late_sum)
HEAT_MERGE.fresh(late_sum)


@MERGE.golden
def merge_cases() -> Cases:
    rng = random_source("daso-merge")
    for waited in (0, 1, 3):
        w, total = rng.standard_normal((2, 17)).astype(np.float32)
        given = {"nodes": 4, "waited": waited, "w": w, "total": 4 * total}
        yield MERGE.case(f"daso-merge-{waited}", f"after {waited} batches", **given)
    rng = random_source("late-sum-3")
    w, total = (rng.standard_normal(23).astype(np.float32) for _ in range(2))
    why = "three nodes, two and five batches later: each operation rounded"
    for waited in (2, 5):
        given = {"nodes": 3, "waited": waited, "w": w, "total": total}
        case = MERGE.case(f"daso-merge-3-after-{waited}", why, **given)
        other = heat_merge(w, total, 3, waited)
        yield case.shows(not same_bits(other, case["out.w"]), "Heat's rounding is another one")


@HEAT_MERGE.golden
def heat_merge_cases() -> Cases:
    rng = random_source("heat-merge")
    for waited in (1, 2, 3):
        w, total = rng.standard_normal((2, 17)).astype(np.float32)
        given = {"nodes": 3, "waited": waited, "w": w, "total": 3 * total}
        case = HEAT_MERGE.case(f"heat-merge-{waited}", f"after {waited} batches", **given)
        other = daso_merge(w, 3 * total, 3, waited)
        yield case.shows(not same_bits(case["out.w"], other), "A6 has other bits")


@MERGE.golden
def nothing_waited() -> Cases:
    rng = random_source("late-sum-0")
    w, total = (rng.standard_normal(23).astype(np.float32) for _ in range(2))
    why = "after no batch the own parameters count once"
    for function, kind in ((MERGE, "daso"), (HEAT_MERGE, "heat")):
        given: Given = {"nodes": 3, "waited": 0, "w": w, "total": total}
        yield function.case(f"{kind}-merge-3-after-0", why, **given)


def merge(w: np.ndarray, total: np.ndarray, nodes: int, waited: int) -> np.ndarray:
    """A6 for S > 0; a sum that is received at once replaces w."""
    return daso_merge(w, total, nodes, waited) if waited else total / w.dtype.type(nodes)


def sums(*waits: int) -> Drawn:
    """Cases of merge with 3 and more nodes."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        found = []
        for waited in waits:
            nodes = int(random.integers(3, 20))
            w, shift = tenths(random, 2, 3)
            found.append((w, (nodes * (w + shift)).astype(np.float32), nodes, waited))
        return found

    return cases


MERGE_13 = Exercise("13.3", merge, relative=1e-6)  # float32, operations in another order
MERGE_13.part("a late sum", 2, sums(1, 2, 4))
MERGE_13.part("a sum that is received at once", 1, sums(0, 0))
MERGE_13.mistake("a sum that is received at once replaces w: w has the weight 0")(daso_merge)
A15.mistake("one quotient of the weighted sum, as in A6")(daso_merge)
A15.given("the parameters have weight S, not 2S", waited=lambda waited: waited / 2)


@A6.mistake("the own parameters have weight S, not 2S")
def weight_not_doubled(w, total, nodes, waited):
    own = max(1, waited)
    return (w.dtype.type(own) * w + total) / w.dtype.type(own + nodes)


@MERGE_13.mistake("w has the weight 2 waited, not waited")
def weight_of_1_a_batch(w, total, nodes, waited):
    return (waited * w + total) / (waited + nodes)


@A6.mistake("replaced by the average of the sent parameters: the batches since are lost")
@MERGE_13.mistake(
    "you replace w by the mean of the sum: what this node did while it waited is lost"
)
def replaced(w, total, nodes, waited):
    return total / w.dtype.type(nodes)


@A6.mistake("the average of the sent parameters has weight 1, not m")
def average_as_one(w, total, nodes, waited):
    own = 2 * waited if waited else 1
    return (w.dtype.type(own) * w + total / w.dtype.type(nodes)) / w.dtype.type(own + 1)


@MERGE_13.mistake("you give all nodes together the weight 1; each has the weight 1, together m")
def mean_as_one_node(w, total, nodes, waited):
    return (2 * waited * w + total / nodes) / (2 * waited + 1)


@MERGE_13.mistake("you do not divide by the sum of all weights, 2 waited + nodes")
def divides_by_one_node(w, total, nodes, waited):
    return (2 * waited * w + total) / (2 * waited + 1)


@MERGE_13.mistake(
    "you take half of each; the weights depend on the nodes and on the batches waited"
)
def half_and_half(w, total, nodes, waited):
    return (w + total / nodes) / 2


@MERGE_13.mistake("your result is float64: parameters stay float32")
def float64_result(w, total, nodes, waited):
    return merge(w, total, nodes, waited).astype(np.float64)


@A6.mistake("without a batch the own parameters do not count")
def daso_own_lost(w, total, nodes, waited):
    return daso_merge(w, total, nodes, waited) if waited else total / w.dtype.type(nodes)


@A15.mistake("without a batch the own parameters do not count")
def heat_own_lost(w, total, nodes, waited):
    return heat_merge(w, total, nodes, waited) if waited else total / w.dtype.type(nodes)


@A15.mistake("the sum is multiplied by a reciprocal instead of divided")
def merged_by_a_reciprocal(w, total, nodes, waited):
    kind, every = w.dtype.type, 2 * waited + nodes
    return w * kind(2 * waited / every) + total * kind(1 / every)


# ---- A7, A8: sums over nodes ----


def daso_sum(ws: Arrays, chunk: int, wire: str | None = None) -> np.ndarray:
    """A7: sums are by a ring over the group, chunk by chunk (10^7 elements), the last chunk
    shorter; in blocking phases numbers are sent as bfloat16 (R3), otherwise unrounded, in the last
    batch of a cycling epoch too.

    Source: Heat sums with MPI, whose order is open, and its first chunk is the shorter one: the
    ring and the last one chosen; that what is not sent is not rounded: chosen, Heat's: A16.

    m arrays (n,) -> (n,)
    """
    bounds = chunk_bounds(len(ws[0]), chunk)
    sums = [ring_allreduce([w[i:j] for w in ws], wire)[0] for i, j in bounds]
    return np.concatenate([ws[0][:0], *sums])


def daso_broadcast(ws: Arrays, number: int, nodes: int) -> Arrays:
    """A8: then the group's member broadcasts its parameters to the other ranks of its node, whose
    own are lost.

    Source: Heat, which broadcasts more: A17.

    p arrays -> p arrays
    """
    k = len(ws) // nodes
    return [ws[rank // k * k + number].copy() for rank in range(len(ws))]


A7 = Statement("A7", daso_sum)
A7.given("blocking phases are not rounded to bfloat16", wire=lambda wire: None)
A7.given("rounded to bfloat16 while cycling, too", wire=lambda wire: "bfloat16")
A8 = Statement("A8", daso_broadcast)
A8.given("always broadcast by the first rank of the node", number=lambda number: 0)


@A7.mistake("one sum instead of one for each chunk")
def one_sum(ws, chunk, wire=None):
    return daso_sum(ws, max(1, len(ws[0])), wire)


@A8.mistake("the received sum stays on the member")
def no_broadcast(ws, number, nodes):
    return ws
