"""Predicted times and merged gradients under the names and arguments of SPEC.md. Part of own.py."""

from refgf.papers.jia import hierarchical
from refgf.papers.mgwfbp.merge import exact_merge, greedy_merge
from refgf.papers.mstopk import cost as topk_cost
from refgf.papers.scaling import collectives
from refgf.papers.scaling.simulate import from_schedules
from refgf.predict import cost, timeline
from refgf.predict.cost import Line, Link
from tests.support.groups_of import groups_of


def form(function):
    """A closed form (p, n, itemsize, Link) with the arguments of SPEC.md."""
    return lambda n, p, itemsize, link: function(p, n, itemsize, Link(*link))


reduce_scatter_s = form(cost.ring_reduce_scatter_s)
allgather_s = form(cost.ring_allgather_s)
ring_s = direct_s = form(cost.ring_allreduce_s)
tree_s = form(collectives.tree_s)
recursive_doubling_s = form(collectives.recursive_doubling_s)
halving_doubling_s = form(collectives.halving_doubling_s)
LINES = {name.replace(" ", "_").replace("-", "_"): f for name, f in collectives.LINES.items()}


def allreduce_line(algorithm, p, link):
    found = LINES[algorithm](p, Link(*link))
    return found.a_s, found.b_s_per_byte


def three_phase_s(n, nodes, ranks_per_node, itemsize, inside, between):
    links = Link(*inside), Link(*between)
    return collectives.hierarchical_s(nodes, ranks_per_node, n, itemsize, *links)


def simulated(algorithm):
    """There is no closed form of these: the time of all ranks' schedules."""

    def seconds(n, nodes, ranks_per_node, itemsize, inside, between):
        p, inner, outer = nodes * ranks_per_node, Link(*inside), Link(*between)
        make = algorithm(hierarchical.consecutive_nodes(p, ranks_per_node))

        def link(source, dest):
            return inner if source // ranks_per_node == dest // ranks_per_node else outer

        return from_schedules([make(rank, p, n) for rank in range(p)], itemsize, link)

    return seconds


two_level_s = simulated(hierarchical.two_level_ring)
log_phases_s = simulated(hierarchical.log_phases)


def topk_s(p, chosen, itemsize, link):
    return topk_cost.gather_s(p, chosen, itemsize, Link(*link))


def sparse_over_nodes(function):
    def seconds(n, nodes, ranks_per_node, chosen, itemsize, inside, between):
        links = Link(*inside), Link(*between)
        return function(nodes, ranks_per_node, n, chosen, itemsize, *links)

    return seconds


hitopk_s = sparse_over_nodes(topk_cost.hitopk_s)
hitopk_pairs_s = sparse_over_nodes(topk_cost.hitopk_pairs_s)


def timed(gradients, groups, line, *more):
    step = timeline.predict(gradients, groups, Line(*line), *more)
    return [(call.start_s, call.end_s) for call in step.calls], step.step_s


def step_times(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    gradients = list(zip(ready_s, nbytes))
    return timed(gradients, groups_of(counts), line, overlap, compute_s)


def lazy_step(ready_s, nbytes, theta_bytes, line):
    gradients = list(zip(ready_s, nbytes))
    groups = timeline.lazy(gradients, theta_bytes)
    return [len(group) for group in groups], *timed(gradients, groups, line)


def greedy_counts(ready_s, nbytes, line, small_bytes=0):
    groups = greedy_merge(list(zip(ready_s, nbytes)), Line(*line), small_bytes)
    return [len(group) for group in groups]


def best_counts(ready_s, nbytes, line):
    return [len(group) for group in exact_merge(list(zip(ready_s, nbytes)), Line(*line))]
