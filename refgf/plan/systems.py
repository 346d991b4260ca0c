"""The predicted step of each system on a number of ranks.

    eager        a call for each gradient, in float32, while backward goes on
    theta        lazy allreduce with the best theta
    merged       the best groups of consecutive gradients (MG-WFBP). With --overlap below 1 or above
                 400 gradients the faster of a merge plan's, which counts on overlap 1, and theta's
    half         lazy allreduce with float16 on the wire
    CSC          half, and a tenth of the chunks
    top-k        after backward, k values and indices of every rank, or HiTopKComm if it is faster
    hierarchy    theta, with the fastest of three phases, the two-level ring and the flat ring
    hierarchy16  the same with float16 on the wire
    DASO         nodes sum parameters every 4 batches and use the sum one batch later

CSC and top-k sum only the gradients that they choose; the rest is a residual. DASO sums between
nodes in one of 4 batches. The others sum all gradients in every step. The time of casts, of the
choice of chunks or of top-k, and of packing is not included. How each system learns is not
predicted. "best theta": thetas.py tries it from 0 to all gradients in one call.

A step of a flat ring waits for its slowest hop, between nodes or inside one. NCCL's ranks do not
wait for each other, so its ring pays the mean latency of its hops. The intervals hold both. A ring
that nccl-tests measured over several GPUs a host is planned with the mean.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from math import ceil, inf

from refgf.papers.mgwfbp.merge import exact_merge, greedy_merge
from refgf.papers.mstopk.cost import gather_s, hitopk_s
from refgf.papers.scaling.collectives import hierarchical_s
from refgf.plan import thetas
from refgf.plan.question import FLOAT32, Question, ranges, varied
from refgf.predict.cost import (
    Link,
    largest_slice,
    ring_allgather_s,
    ring_allreduce_s,
    ring_line,
    ring_reduce_scatter_s,
)
from refgf.predict.timeline import CallTime, eager, lateness

CSC_PERCENT = 10.0
TOPK_DENSITY = 0.01
DASO_EVERY, DASO_WAIT = 4, 1
MOST_EXACT = (
    400  # gradients; above, the best merge takes seconds: the greedy rule, or theta's groups
)
STATE = 12  # bytes a parameter: float32 weights, gradients, momentum of SGD (Adam: 4 more)
PAIR = 8  # bytes of a float32 value and its index

Calls = dict[int, list[range]]  # {theta in bytes on the wire: groups of gradients}


@dataclass(frozen=True)
class PlannedSystem:
    """A row of the plan.

    memory       question -> bytes of a rank besides STATE and float16 gradients
    calls        (question, system) -> the groups that are tried; empty: none
    allreduce_s  question -> T(bytes) of a call; None: a rank has nobody to call
    wire         itemsize, and percent of the chunks (thetas.sent)
    more_s       (question, seconds with the calls) -> seconds that follow them
    two_levels   needs nodes, and ranks that share them
    """

    memory: Callable[[Question], int]
    calls: Callable[[Question, "PlannedSystem"], Calls]
    allreduce_s: Callable[[Question], CallTime | None] = Question.flat.fget
    wire: dict[str, float] = field(default_factory=dict)
    more_s: Callable[[Question, float], float] = lambda question, calls_s: 0.0
    two_levels: bool = False

    def step_s(self, question: Question) -> float | None:
        """With the best calls, or those of the question. None: the system does not apply."""
        if question.size == 1:
            return question.step.compute_s
        if self.two_levels and not question.two_levels:
            return None
        if question.groups is not None:
            seconds = self.with_calls(question, question.groups)
        else:
            alone_s = question.unmodelled.factor * question.step.compute_s
            seconds = min(self.sweep(question).values(), default=alone_s)
        factor = question.unmodelled.factor
        return seconds + factor * self.more_s(question, seconds / factor)

    def with_calls(self, question: Question, groups: list[range]) -> float:
        return self.with_each(question, {0: groups})[0]

    def with_each(self, question: Question, tried: Calls) -> dict[int, float]:
        """{theta: seconds with its calls}. Calls of equal size are timed once."""
        if not tried:
            return {}
        step, factor = question.step, question.unmodelled.factor
        given = cache(self.allreduce_s(question)), question.overlap
        return {
            theta: factor * (thetas.step_s(step.ready, groups, *given, **self.wire) + step.after_s)
            for theta, groups in tried.items()
        }

    def tried(self, question: Question) -> Calls:
        """What `calls` has for this question; nothing where no call is made."""
        applies = question.two_levels or not self.two_levels
        if question.size == 1 or not applies or self.allreduce_s(question) is None:
            return {}
        return self.calls(question, self)

    def sweep(self, question: Question) -> dict[int, float]:
        """{theta: seconds with its calls}."""
        return self.with_each(question, self.tried(question))

    def best_theta(self, question: Question) -> int | None:
        """In bytes on the wire. Its step is the best, or EQUAL. None: no theta is chosen."""
        tried = self.tried(question) if self.calls is by_theta else {}
        if not tried:
            return None
        slow = varied(question, **{name: high for name, (_, high) in ranges(question).items()})
        return thetas.best(
            self.with_each(question, tried),
            lambda theta: self.with_calls(slow, tried[theta]),
        )

    def best_calls(self, question: Question) -> list[range] | None:
        """The groups of the best theta, or the best groups; None where no call is made."""
        tried, theta = self.tried(question), self.best_theta(question)
        if theta is not None:
            return tried[theta]
        fastest_first = sorted(tried.values(), key=lambda each: self.with_calls(question, each))
        return next(iter(fastest_first), None)

    def bytes_per_rank(self, question: Question) -> int:
        """What the classes of refgf allocate, activations excluded. One rank exchanges nothing."""
        if question.size == 1:
            return STATE * question.step.elements
        half = 2 if self.wire.get("itemsize") == 2 else 0
        return (STATE + half) * question.step.elements + self.memory(question)


# ---- calls during backward ----


def by_theta(question: Question, system: PlannedSystem) -> Calls:
    return thetas.calls(question.step.ready, **system.wire)


def one_by_one(question: Question, system: PlannedSystem) -> Calls:
    return {0: eager(question.step.ready)}


def merged(question: Question, system: PlannedSystem) -> Calls:
    """The exact merge is the best if calls do not slow backward down."""
    gradients, _ = thetas.sent(question.step.ready)
    few = len(gradients) <= MOST_EXACT
    allreduce_s = system.allreduce_s(question)
    if few:
        merge = exact_merge(gradients, cache(allreduce_s))
    else:
        merge = greedy_merge(gradients, allreduce_s)
    if few and question.overlap == 1:
        return {0: merge}
    theta = SYSTEMS["theta"]
    swept = theta.sweep(question)
    return {0: merge, 1: theta.tried(question)[min(swept, key=swept.get)]}


def none(question: Question, system: PlannedSystem) -> Calls:
    return {}


def shared_link(question: Question) -> Link:
    """The link between nodes for one of the k ranks of a node, all of which send."""
    between = question.fabric.between
    return replace(between, beta_s_per_byte=question.per_node * between.beta_s_per_byte)


def fastest(question: Question) -> CallTime:
    """T(bytes) of the best allreduce in two levels; k rings between nodes share a node's link."""
    place, inside = (question.nodes, question.per_node), question.inside
    between, shared = question.fabric.between, shared_link(question)
    flat = question.flat_as_known

    def allreduce_s(nbytes: float) -> float:
        n = ceil(nbytes)
        two_levels_s = two_level_ring_s(*place, n, 1, inside, shared)
        three_phases_s = hierarchical_s(*place, n, 1, inside, between)
        return min(flat(nbytes), two_levels_s, three_phases_s)

    return question.as_far_as_known(allreduce_s)


def two_level_ring_s(
    nodes: int, ranks_per_node: int, elements: int, itemsize: int, inside: Link, between: Link
) -> float:
    """refgf.papers.jia's `two_level_ring`. between: the link of one rank, not that of k rings."""
    k, own = ranks_per_node, largest_slice(elements, ranks_per_node)
    return (
        ring_reduce_scatter_s(k, elements, itemsize, inside)
        + ring_allreduce_s(nodes, own, itemsize, between)
        + ring_allgather_s(k, elements, itemsize, inside)
    )


def in_node(question: Question) -> CallTime | None:
    return ring_line(question.per_node, question.inside) if question.per_node > 1 else None


# ---- what follows the calls ----


def topk_s(question: Question, calls_s: float) -> float:
    """One exchange after backward: nothing overlaps, because top-k chooses from all gradients."""
    return min(topk_flat_s(question), topk_levels_s(question))


def topk_flat_s(question: Question) -> float:
    """All ranks gather the pairs of all ranks."""
    chosen = ceil(TOPK_DENSITY * question.step.elements)
    return max(gather_s(question.size, chosen, FLOAT32, hop) for hop in question.hops)


def topk_levels_s(question: Question) -> float:
    """HiTopKComm: a rank gathers the pairs of its slice from all nodes; inf without two levels."""
    if not question.two_levels:
        return inf
    n, k, shared = question.step.elements, question.per_node, shared_link(question)
    chosen = ceil(ceil(TOPK_DENSITY * n) / k)
    return hitopk_s(question.nodes, k, n, chosen, FLOAT32, question.inside, shared)


def between_nodes_s(question: Question, calls_s: float) -> float:
    """DASO's mean over a cycle: in one of B batches a sum between the nodes.

    The group that sends takes the whole of its node's link. The sum is hidden behind W batches,
    which it slows down as any call does.
    """
    if question.nodes == 1:
        return 0.0
    given = FLOAT32, question.fabric.between

    def ring_s(nbytes: float) -> float:
        return ring_allreduce_s(question.nodes, ceil(nbytes / FLOAT32), *given)

    sum_s = question.as_far_as_known(ring_s)(FLOAT32 * question.step.elements)
    hidden_s = DASO_WAIT * calls_s
    late_s = lateness(sum_s, hidden_s, question.overlap)
    return max(late_s, sum_s - hidden_s) / DASO_EVERY


# ---- bytes of a rank: a slice that it receives, a residual ----


def slice_bytes(question: Question) -> int:
    """Of the largest group, which holds all gradients."""
    return FLOAT32 * ceil(question.step.elements / question.size)


def eager_bytes(question: Question) -> int:
    largest = max(elements for _, elements in question.step.ready)
    return FLOAT32 * ceil(largest / question.size)


def node_slice_bytes(question: Question) -> int:
    return FLOAT32 * ceil(question.step.elements / question.per_node)


def csc_bytes(question: Question) -> int:
    scratch = ceil(slice_bytes(question) * CSC_PERCENT / 100)
    return FLOAT32 * question.step.elements + scratch


def topk_bytes(question: Question) -> int:
    """A residual of all gradients; in two levels of a slice, which is received in the node, too."""
    levels = topk_levels_s(question) < topk_flat_s(question)
    n = question.step.elements
    own = 2 * node_slice_bytes(question) if levels else FLOAT32 * n
    return own + pairs_of_topk(question)


def pairs_of_topk(question: Question) -> int:
    """Bytes that a rank receives: the pairs of all ranks, or of its slice from all nodes."""
    chosen = ceil(TOPK_DENSITY * question.step.elements)
    if topk_levels_s(question) < topk_flat_s(question):
        return PAIR * ceil(chosen / question.per_node) * question.nodes
    return PAIR * chosen * question.size


def daso_bytes(question: Question) -> int:
    """The parameters in flight, too."""
    return FLOAT32 * question.step.elements + slice_bytes(question)


HALF = {"itemsize": 2}
SYSTEMS = {
    "eager": PlannedSystem(eager_bytes, one_by_one),
    "theta": PlannedSystem(slice_bytes, by_theta),
    "merged": PlannedSystem(slice_bytes, merged),
    "half": PlannedSystem(slice_bytes, by_theta, wire=HALF),
    "CSC": PlannedSystem(csc_bytes, by_theta, wire=HALF | {"percent": CSC_PERCENT}),
    "top-k": PlannedSystem(topk_bytes, none, more_s=topk_s),
    "hierarchy": PlannedSystem(node_slice_bytes, by_theta, fastest, two_levels=True),
    "hierarchy16": PlannedSystem(node_slice_bytes, by_theta, fastest, HALF, two_levels=True),
    "DASO": PlannedSystem(daso_bytes, by_theta, in_node, more_s=between_nodes_s),
}
