"""Mistakes in DASO."""

import numpy as np

from refgf.oracle.definitions import (
    daso_averaged,
    daso_next_phase,
    daso_phases,
    daso_sender,
    daso_spread,
    daso_step,
    daso_sum,
    daso_traffic,
    node_gradients,
    ring_allreduce,
)
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("A1", "daso_groups", "the groups are blocks of neighbours, as nodes are")
def groups_of_neighbours(p, nodes):
    return [list(range(j * nodes, (j + 1) * nodes)) for j in range(p // nodes)]


@mistake("A2", "daso_averaged", "never skipped: gradients averaged in the node in every batch")
def always_averaged(b, batches, phase):
    return True


@mistake("A2", "daso_averaged", "skipped while a sum is under way, too")
def skipped_under_way(b, batches, phase):
    return daso_averaged(b, batches, (phase[0], phase[1], 0))


@mistake("A3", "node_gradients", "the node's sum is not multiplied by the number of nodes")
def node_sum_alone(gs, nodes, averaged):
    return [g / g.dtype.type(nodes if averaged else len(gs)) for g in node_gradients(gs, nodes, averaged)]


@mistake("A3", "node_gradients", "gradients averaged over all nodes: synchronous training")
def averaged_over_all(gs, nodes, averaged):
    return ring_allreduce(gs)


@mistake("A4", "daso_sender", "the group is not rotated")
def not_rotated(b, batches, global_skip, groups):
    return None if daso_sender(b, batches, global_skip, groups) is None else 0


@mistake("A4", "daso_sender", "the last batch of an epoch does not synchronise")
def last_batch_forgotten(b, batches, global_skip, groups):
    return daso_sender(b, batches + 1, global_skip, groups)


@mistake("A4", "daso_sender", "sent after B batches, not in the first")
def sent_late(b, batches, global_skip, groups):
    return daso_sender(b + 1, batches + 1, global_skip, groups)


@mistake("A5", "daso_wait", "the wait is not shortened at the end of an epoch")
def not_shortened(b, batches, phase):
    return phase[2] if phase[0] and b < batches - 1 else 0


@mistake("A5", "daso_wait", "one batch too many")
def waits_too_long(b, batches, phase):
    return min(phase[2] + 1, batches - 1 - b) if phase[2] else 0


@mistake("A6", "daso_merge", "the own parameters weigh S, not 2S")
def weight_not_doubled(w, total, nodes, waited):
    own = max(1, waited)
    return (w.dtype.type(own) * w + total) / w.dtype.type(own + nodes)


@mistake("A6", "daso_merge", "replaced by the average of what was sent: the batches since are lost")
def replaced(w, total, nodes, waited):
    return total / w.dtype.type(nodes)


@mistake("A6", "daso_merge", "the average of what was sent counts as one rank, not as m")
def average_as_one(w, total, nodes, waited):
    own = 2 * waited if waited else 1
    return (w.dtype.type(own) * w + total / w.dtype.type(nodes)) / w.dtype.type(own + 1)


@mistake("A7", "daso_sum", "blocking phases are not rounded to bfloat16")
def never_rounded(ws, chunk, wire=None):
    return daso_sum(ws, chunk)


@mistake("A7", "daso_sum", "rounded to bfloat16 while cycling, too")
def always_rounded(ws, chunk, wire=None):
    return daso_sum(ws, chunk, "bfloat16")


@mistake("A7", "daso_sum", "one sum instead of one for each chunk")
def one_sum(ws, chunk, wire=None):
    return daso_sum(ws, max(1, len(ws[0])), wire)


@mistake("A8", "daso_spread", "what a member received stays with it")
def not_spread(ws, number, nodes):
    return ws


@mistake("A8", "daso_spread", "always spread by the first rank of the node")
def spread_by_the_first(ws, number, nodes):
    return daso_spread(ws, 0, nodes)


@mistake("A9", "daso_next_phase", "the wait is halved, too")
def wait_halved(phase, largest=8):
    after = daso_next_phase(phase, largest)
    return (*after[:2], max(1, phase[2] // 2)) if phase[0] > 1 else after


@mistake("A9", "daso_next_phase", "stays at B = 1")
def stays_at_one(phase, largest=8):
    return daso_next_phase(phase, largest) if phase[0] > 1 else phase


@mistake("A10", "daso_phases", "a plateau after `patience` epochs, not after more")
def impatient(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return daso_phases(losses, epochs, warmup, cooldown, largest, threshold, patience - 1)


@mistake("A10", "daso_phases", "any smaller loss counts as better")
def any_gain(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return daso_phases(losses, epochs, warmup, cooldown, largest, 0.0, patience)


@mistake("A10", "daso_phases", "no cool-down")
def no_cooldown(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return daso_phases(losses, epochs, warmup, 0, largest, threshold, patience)


@mistake("A11", "daso_step", "momentum is averaged between nodes together with the parameters")
def momentum_averaged(state, gs, phase, s):
    after = daso_step(state, gs, phase, s)
    if daso_averaged(state["t"] % s.batches, s.batches, phase) and not after["under_way"]:
        after["v"] = [np.mean(after["v"], axis=0, dtype=after["v"][0].dtype) for _ in gs]
    return after


@mistake("A11", "daso_step", "the parameters at the receipt are summed, not those that were sent")
def summed_at_receipt(state, gs, phase, s):
    late = [sum_ for sum_ in state["under_way"] if sum_[0] == state["t"]]
    if late:
        still = [sum_ for sum_ in state["under_way"] if sum_[0] > state["t"]]
        now = [(due, waited, g, daso_sum(state["w"][g :: len(gs) // s.nodes], s.chunk)) for due, waited, g, _ in late]
        state = {**state, "under_way": now + still}
    return daso_step(state, gs, phase, s)


@mistake("A12", "tree_children", "the tree in the node is not counted")
def tree_not_counted(place, k):
    return 0


@mistake("A12", "daso_traffic", "blocking phases counted at 4 bytes a number")
def counted_unrounded(n, p, nodes, batches, phase, chunk=10_000_000, itemsize=4, wire_itemsize=2):
    return daso_traffic(n, p, nodes, batches, phase, chunk, itemsize, itemsize)
