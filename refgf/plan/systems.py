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
from dataclasses import replace
from math import ceil, inf

from refgf.papers.mgwfbp.merge import exact_merge, greedy_merge
from refgf.papers.mstopk.cost import gather_s, hitopk_s
from refgf.papers.scaling.collectives import hierarchical_s
from refgf.papers.scaling.systems import System, step
from refgf.plan import thetas
from refgf.plan.question import Question, ranges, varied
from refgf.predict.cost import (
    Link,
    largest_slice,
    ring_allgather_s,
    ring_allreduce_s,
    ring_line,
    ring_reduce_scatter_s,
)
from refgf.predict.timeline import CallTime, Gradients, lateness, predict

FLOAT32 = 4
CSC_PERCENT = 10.0
TOPK_DENSITY = 0.01
DASO_EVERY, DASO_WAIT = 4, 1
MOST_EXACT = (
    400  # gradients; above, the best merge takes seconds: the greedy rule, or theta's groups
)


Answer = float | None  # seconds of a step; None: the system does not apply


def overlapped(question: Question, **settings) -> float:
    """A step whose calls run during backward, with these settings of `System`."""
    if question.size == 1:
        return question.step.compute_s
    system = System("planned", overlap=question.overlap, **settings)
    return step(question.step.ready, system, question.flat).step_s + question.step.after_s


def eager_s(question: Question) -> Answer:
    return overlapped(question)


def theta_s(question: Question) -> Answer:
    return best_s("theta", question)


def merged_s(question: Question) -> Answer:
    return overlapped(question, grouping=lambda *sent: merged_groups(question, *sent))


def merged_groups(question: Question, gradients: Gradients, line: CallTime) -> list[range]:
    """The exact merge is the best if calls do not slow backward down."""
    if question.groups is not None:
        return question.groups
    few = len(gradients) <= MOST_EXACT
    merge = (exact_merge if few else greedy_merge)(gradients, line)
    if few and question.overlap == 1:
        return merge
    swept = theta_sweep("theta", question)
    tried = merge, thetas.calls(question.step.ready)[min(swept, key=swept.get)]
    return min(tried, key=lambda each: predict(gradients, each, line, question.overlap).step_s)


def groups_of(system: str, question: Question) -> list[range] | None:
    """The calls of this system's best theta or merge; None if it has none to choose."""
    if system == "merged" and question.size > 1:
        gradients, _ = thetas.sent(question.step.ready)
        return merged_groups(question, gradients, question.flat)
    theta = best_theta(system, question)
    if theta is None:
        return None
    return thetas.calls(question.step.ready, **LAZY[system][1])[theta]


def half_s(question: Question) -> Answer:
    return best_s("half", question)


def csc_s(question: Question) -> Answer:
    return best_s("CSC", question)


def theta_sweep(system: str, question: Question) -> dict[int, float] | None:
    """{theta in bytes on the wire: step_s}; None for a system or question without a theta."""
    if question.size == 1 or system not in LAZY or not applies(system, question):
        return None
    tried = thetas.calls(question.step.ready, **LAZY[system][1])
    return {theta: lazy_s(system, question, groups) for theta, groups in tried.items()}


def lazy_s(system: str, question: Question, groups: list[range]) -> float:
    """A step of a system with a theta, with these calls."""
    allreduce_s, settings = LAZY[system]
    ready, after_s = question.step.ready, question.step.after_s
    given = allreduce_s(question), question.overlap
    return thetas.step_s(ready, groups, *given, **settings) + after_s


def applies(system: str, question: Question) -> bool:
    """Two levels need nodes, and ranks that share them; DASO's calls with a theta are in a node."""
    if system == "DASO":
        return question.per_node > 1
    return not system.startswith("hierarchy") or (question.per_node > 1 and question.nodes > 1)


def best_theta(system: str, question: Question) -> int | None:
    """The theta of this system's calls, in bytes on the wire. Its step is the best, or EQUAL."""
    swept = theta_sweep(system, question)
    if swept is None:
        return None
    slow = varied(question, **{name: high for name, (_, high) in ranges(question).items()})
    groups = thetas.calls(question.step.ready, **LAZY[system][1])
    return thetas.best(swept, lambda theta: lazy_s(system, slow, groups[theta]))


def best_s(system: str, question: Question) -> float:
    """The step with the best theta, or with the calls of the question."""
    if question.groups is not None:
        return lazy_s(system, question, question.groups)
    swept = theta_sweep(system, question)
    return question.step.compute_s if swept is None else min(swept.values())


def topk_s(question: Question) -> Answer:
    """One exchange after backward: nothing overlaps, because top-k chooses from all gradients."""
    if question.size == 1:
        return question.step.compute_s
    return question.step.compute_s + min(topk_flat_s(question), topk_levels_s(question))


def topk_flat_s(question: Question) -> float:
    """All ranks gather the pairs of all ranks."""
    chosen = ceil(TOPK_DENSITY * question.step.elements)
    return max(gather_s(question.size, chosen, FLOAT32, hop) for hop in question.hops)


def topk_levels_s(question: Question) -> float:
    """HiTopKComm: a rank gathers the pairs of its slice from all nodes; inf without two levels."""
    n, k, between = question.step.elements, question.per_node, question.fabric.between
    if k == 1 or question.nodes == 1:
        return inf
    shared = replace(between, beta_s_per_byte=k * between.beta_s_per_byte)
    chosen = ceil(ceil(TOPK_DENSITY * n) / k)
    return hitopk_s(question.nodes, k, n, chosen, FLOAT32, question.inside, shared)


def hierarchy_s(question: Question, system: str = "hierarchy") -> Answer:
    """None where each node has one rank, or all ranks are on one node."""
    if question.size > 1 and not applies(system, question):
        return None
    return best_s(system, question)


def hierarchy16_s(question: Question) -> Answer:
    return hierarchy_s(question, "hierarchy16")


def fastest(question: Question) -> CallTime:
    """T(bytes) of the best allreduce in two levels; k rings between nodes share a node's link."""
    nodes, k, inside, between = (
        question.nodes,
        question.per_node,
        question.inside,
        question.fabric.between,
    )
    shared = replace(between, beta_s_per_byte=k * between.beta_s_per_byte)

    def allreduce_s(nbytes: float) -> float:
        n = ceil(nbytes)
        two_levels_s = two_level_ring_s(nodes, k, n, 1, inside, shared)
        three_phases_s = hierarchical_s(nodes, k, n, 1, inside, between)
        return min(question.flat(nbytes), two_levels_s, three_phases_s)

    return allreduce_s


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


def daso_s(question: Question) -> Answer:
    """The mean of a cycle: in each batch a sum in the node, in one of B a sum between the nodes.

    The group that sends takes the whole of its node's link. The sum is hidden behind W batches,
    which it slows down as any call does.
    """
    if question.size == 1:
        return question.step.compute_s
    local_s = best_s("DASO", question)
    if question.nodes == 1:
        return local_s
    elements = question.step.elements
    sum_s = ring_allreduce_s(question.nodes, elements, FLOAT32, question.fabric.between)
    hidden_s = DASO_WAIT * local_s
    late_s = lateness(sum_s, hidden_s, question.overlap)
    return local_s + max(late_s, sum_s - hidden_s) / DASO_EVERY


def in_node(question: Question) -> CallTime:
    return ring_line(question.per_node, question.inside)


def flat(question: Question) -> CallTime:
    return question.flat


CSC = {"itemsize": 2, "percent": CSC_PERCENT}
LAZY: dict[str, tuple[Callable[[Question], CallTime], dict[str, float]]] = {
    "theta": (flat, {}),
    "half": (flat, {"itemsize": 2}),
    "CSC": (flat, CSC),
    "hierarchy": (fastest, {}),
    "hierarchy16": (fastest, {"itemsize": 2}),
    "DASO": (in_node, {}),
}

SYSTEMS: dict[str, Callable[[Question], Answer]] = {
    "eager": eager_s,
    "theta": theta_s,
    "merged": merged_s,
    "half": half_s,
    "CSC": csc_s,
    "top-k": topk_s,
    "hierarchy": hierarchy_s,
    "hierarchy16": hierarchy16_s,
    "DASO": daso_s,
}
