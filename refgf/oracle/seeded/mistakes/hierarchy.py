"""Mistakes in trees, doubling and hierarchies."""

import numpy as np

from refgf.oracle.definitions import (
    direct_fold,
    doubling_allreduce,
    log_phases_allreduce,
    node_slices,
    on_wire,
    ring_allreduce,
    schedule_traffic,
    slice_bounds,
    three_phase_allreduce,
    tree_allreduce,
    two_level_allreduce,
)
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("H1", "tree_allreduce", "the root adds rank after rank")
def tree_in_rank_order(xs, wire=None):
    total = direct_fold(xs, wire)
    return [total.copy() for _ in xs]


@mistake("H1", "tree_allreduce", "floor(log2 p) rounds: ranks beyond the power of two are lost")
def tree_too_low(xs, wire=None):
    q = 1 << (len(xs).bit_length() - 1)
    return [tree_allreduce(xs[:q], wire)[0] for _ in xs]


@mistake("H1", "tree_allreduce", "the root's own sum is not rounded")
def tree_root_unrounded(xs, wire=None):
    held, d = list(xs), 1
    while d < len(xs):
        for r in range(0, len(xs) - d, 2 * d):
            held[r] = held[r] + on_wire(held[r + d], wire)
        d *= 2
    return [held[0], *tree_allreduce(xs, wire)[1:]]


@mistake("H2", "doubling_allreduce", "ranks beyond the power of two are left out")
def extras_forgotten(xs, wire=None):
    q = 1 << (len(xs).bit_length() - 1)
    return [doubling_allreduce(xs[:q], wire)[0] for _ in xs]


@mistake(
    "H2", "doubling_allreduce", "the extra ranks add to the first ranks, not to their neighbours"
)
def extras_elsewhere(xs, wire=None):
    q = 1 << (len(xs).bit_length() - 1)
    held = [x + on_wire(xs[q + i], wire) if q + i < len(xs) else x for i, x in enumerate(xs[:q])]
    return [doubling_allreduce(held, wire)[0] for _ in xs]


@mistake("H2", "doubling_allreduce", "a rank rounds its own array before it adds an extra rank's")
def extras_rounded(xs, wire=None):
    extras = len(xs) - (1 << (len(xs).bit_length() - 1))
    return doubling_allreduce([on_wire(x, wire) for x in xs[: 2 * extras]] + xs[2 * extras :], wire)


@mistake("H3", "add_partner", "a partner does not round its own side")
def own_side_unrounded(own, other, wire=None):
    return own + on_wire(other, wire)


@mistake("H4", "three_phase_allreduce", "only the masters receive the sum")
def masters_only(xs, nodes, wire=None):
    total, masters = three_phase_allreduce(xs, nodes, wire), {node[0] for node in nodes}
    return [total[r] if r in masters else xs[r] for r in range(len(xs))]


@mistake("H4", "three_phase_allreduce", "a node's sum is formed in rank order")
def nodes_in_rank_order(xs, nodes, wire=None):
    masters = [direct_fold([xs[r] for r in node], wire) for node in nodes]
    return [ring_allreduce(masters, wire)[0] for _ in xs]


@mistake("H4", "three_phase_allreduce", "the master rounds its own slice before the ring too")
def master_rounds(xs, nodes, wire=None):
    masters = [np.concatenate(node_slices([xs[r] for r in node], wire)) for node in nodes]
    return [ring_allreduce([on_wire(x, wire) for x in masters], wire)[0] for _ in xs]


@mistake("H5", "two_level_allreduce", "the ranks are taken in the order of their numbers")
def nodes_sorted(xs, nodes, wire=None):
    ranks, k = sorted(rank for node in nodes for rank in node), len(nodes[0])
    return two_level_allreduce(xs, [ranks[i : i + k] for i in range(0, len(ranks), k)], wire)


@mistake("H5", "two_level_allreduce", "one ring between nodes for the whole vector")
def one_ring_between(xs, nodes, wire=None):
    return three_phase_allreduce(xs, nodes, wire)


@mistake("H5", "two_level_allreduce", "a node's slice is rounded before the ring over nodes too")
def node_rounds(xs, nodes, wire=None):
    sums = [node_slices([xs[r] for r in node], wire) for node in nodes]
    rounded = [[on_wire(fold, wire) for fold in folds] for folds in zip(*sums)]
    total = np.concatenate([ring_allreduce(folds, wire)[0] for folds in rounded])
    return [total.copy() for _ in xs]


@mistake("H6", "hybrid_allreduce", "three phases at the threshold too")
def hybrid_at_threshold(xs, nodes, threshold, wire=None):
    if len(xs[0]) <= threshold:
        return three_phase_allreduce(xs, nodes, wire)
    return ring_allreduce(xs, wire)


@mistake("H6", "hybrid_allreduce", "the flat ring below the threshold")
def hybrid_reversed(xs, nodes, threshold, wire=None):
    if len(xs[0]) < threshold:
        return ring_allreduce(xs, wire)
    return three_phase_allreduce(xs, nodes, wire)


@mistake("H8", "log_phases_allreduce", "a node's sum is formed around its ring")
def log_phases_by_ring(xs, nodes, wire=None):
    masters = [np.concatenate(node_slices([xs[r] for r in node], wire)) for node in nodes]
    return [doubling_allreduce([on_wire(x, wire) for x in masters], wire)[0] for _ in xs]


@mistake("H8", "log_phases_allreduce", "the ring runs over the masters")
def ring_over_masters(xs, nodes, wire=None):
    masters = [tree_allreduce([xs[r] for r in node], wire)[0] for node in nodes]
    return [ring_allreduce(masters, wire)[0] for _ in xs]


@mistake(
    "H8",
    "log_phases_allreduce",
    "nodes are ignored: one tree over all ranks, in the order of their numbers",
)
def nodes_forgotten(xs, nodes, wire=None):
    return tree_allreduce(xs, wire)


@mistake("H8", "log_phases_allreduce", "nodes beyond the power of two are left out")
def extra_nodes_forgotten(xs, nodes, wire=None):
    q = 1 << (len(nodes).bit_length() - 1)
    return [log_phases_allreduce(xs, nodes[:q], wire)[0] for _ in xs]


@mistake("H8", "log_phases_allreduce", "the master does not round its node's sum")
def master_unrounded(xs, nodes, wire=None):
    masters = [tree_root_unrounded([xs[r] for r in node], wire)[0] for node in nodes]
    return [doubling_allreduce(masters, wire)[0] for _ in xs]


@mistake("H7", "schedule_traffic", "empty messages are not sent")
def skips_empty(algorithm, n, nodes, rank):
    return schedule_traffic(algorithm, n, nodes, rank) if n else (0, 0)


@mistake("H7", "schedule_traffic", "all slices have the same length")
def equal_slices(algorithm, n, nodes, rank):
    messages, elements = schedule_traffic(algorithm, n, nodes, rank)
    longest = max(stop - start for start, stop in slice_bounds(n, len(nodes)))
    return messages, elements if algorithm == "tree" else longest * messages
