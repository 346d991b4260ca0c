"""Mistakes in DASO."""

from dataclasses import replace

import numpy as np

from refgf.oracle.definitions import (
    daso_averaged,
    daso_broadcast,
    daso_next_phase,
    daso_phases,
    daso_sender,
    daso_step,
    daso_sum,
    daso_traffic,
    node_gradients,
    ring_allreduce,
)
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("A1", "daso_groups", "groups are blocks of neighbours, like nodes")
def groups_of_neighbours(p, nodes):
    return [list(range(j * nodes, (j + 1) * nodes)) for j in range(p // nodes)]


@mistake("A2", "daso_averaged", "gradients are averaged in the node in every batch")
def always_averaged(b, batches, phase):
    return True


@mistake("A2", "daso_averaged", "gradients are not averaged while a sum is in flight")
def skipped_in_flight(b, batches, phase):
    return daso_averaged(b, batches, (phase[0], phase[1], 0))


@mistake("A3", "node_gradients", "the node's sum is not multiplied by the number of nodes")
def node_sum_alone(gs, nodes, averaged):
    factor = nodes if averaged else len(gs)
    return [g / g.dtype.type(factor) for g in node_gradients(gs, nodes, averaged)]


@mistake("A3", "node_gradients", "gradients averaged over all nodes: synchronous training")
def averaged_over_all(gs, nodes, averaged):
    return ring_allreduce(gs)


@mistake("A4", "daso_sender", "the group is not rotated")
def not_rotated(b, batches, global_skip, groups):
    return None if daso_sender(b, batches, global_skip, groups) is None else 0


@mistake("A4", "daso_sender", "nothing is sent in the last batch of an epoch")
def last_batch_forgotten(b, batches, global_skip, groups):
    return daso_sender(b, batches + 1, global_skip, groups)


@mistake("A4", "daso_sender", "first sent after B batches, not in batch 0")
def sent_late(b, batches, global_skip, groups):
    return daso_sender(b + 1, batches + 1, global_skip, groups)


@mistake("A5", "daso_wait", "the wait is not shortened at the end of an epoch")
def not_shortened(b, batches, phase):
    return phase[2] if phase[0] and b < batches - 1 else 0


@mistake("A5", "daso_wait", "waits one batch too many")
def waits_too_long(b, batches, phase):
    return min(phase[2] + 1, batches - 1 - b) if phase[2] else 0


@mistake("A6", "daso_merge", "the own parameters have weight S, not 2S")
def weight_not_doubled(w, total, nodes, waited):
    own = max(1, waited)
    return (w.dtype.type(own) * w + total) / w.dtype.type(own + nodes)


@mistake(
    "A6", "daso_merge", "replaced by the average of the sent parameters: the batches since are lost"
)
def replaced(w, total, nodes, waited):
    return total / w.dtype.type(nodes)


@mistake("A6", "daso_merge", "the average of the sent parameters has weight 1, not m")
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


@mistake("A8", "daso_broadcast", "the received sum stays on the member")
def no_broadcast(ws, number, nodes):
    return ws


@mistake("A8", "daso_broadcast", "always broadcast by the first rank of the node")
def broadcast_by_the_first(ws, number, nodes):
    return daso_broadcast(ws, 0, nodes)


@mistake("A9", "daso_next_phase", "the wait is halved too")
def wait_halved(phase, largest=8):
    after = daso_next_phase(phase, largest)
    return (*after[:2], max(1, phase[2] // 2)) if phase[0] > 1 else after


@mistake("A9", "daso_next_phase", "stays at B = 1")
def stays_at_one(phase, largest=8):
    return daso_next_phase(phase, largest) if phase[0] > 1 else phase


@mistake("A10", "daso_phases", "a plateau begins after `patience` epochs, not after more")
def impatient(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return daso_phases(losses, epochs, warmup, cooldown, largest, threshold, patience - 1)


@mistake("A10", "daso_phases", "any smaller loss counts as better")
def any_gain(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return daso_phases(losses, epochs, warmup, cooldown, largest, 0.0, patience)


@mistake("A10", "daso_phases", "no cool-down")
def no_cooldown(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return daso_phases(losses, epochs, warmup, 0, largest, threshold, patience)


@mistake("A11", "daso_step", "momentum is averaged between nodes, as parameters are")
def momentum_averaged(state, gs, phase, s):
    after = daso_step(state, gs, phase, s)
    if daso_averaged(state["t"] % s.batches, s.batches, phase) and not after["in_flight"]:
        after["v"] = [np.mean(after["v"], axis=0, dtype=after["v"][0].dtype) for _ in gs]
    return after


@mistake("A11", "daso_step", "the parameters at the receipt are summed, not the sent ones")
def summed_at_receipt(state, gs, phase, s):
    in_flight, groups = [], len(gs) // s.nodes
    for late in state["in_flight"]:
        if late.due == state["t"]:
            total = daso_sum(state["w"][late.number :: groups], s.chunk)
            late = replace(late, total=total)
        in_flight.append(late)
    return daso_step({**state, "in_flight": in_flight}, gs, phase, s)


@mistake("A12", "tree_children", "the tree in the node is not counted")
def tree_not_counted(place, k):
    return 0


@mistake("A12", "daso_traffic", "blocking phases are counted at 4 bytes a number")
def counted_unrounded(n, p, nodes, batches, phase, chunk=10_000_000, itemsize=4, wire_itemsize=2):
    return daso_traffic(n, p, nodes, batches, phase, chunk, itemsize, itemsize)
