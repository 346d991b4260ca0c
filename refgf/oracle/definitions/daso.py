"""A1 to A12: DASO. Nodes average gradients in every batch, and parameters between nodes only now and then, late.

p ranks on m nodes of k = p/m ranks; node i has the ranks i k .. i k + k-1. Batches count from 0 in each epoch, which has
`batches` of them. A phase is (B, L, W): a sum over nodes every B batches, the gradients of a node averaged every L,
the sum received W batches after it was sent. (0, 0, 0): a blocking sum in every batch.
"""

import math
from dataclasses import dataclass

import numpy as np

from refgf.oracle.definitions.csc import chunk_bounds
from refgf.oracle.definitions.momentum import momentum_step
from refgf.oracle.definitions.ring import ring_allreduce, ring_traffic

BLOCKING = (0, 0, 0)


@dataclass(frozen=True)
class DASOSettings:
    """decayed: bool (n,), None for everywhere; chunk: elements of one global sum at most; wire: of blocking phases."""

    nodes: int
    batches: int
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 0.0
    decayed: np.ndarray | None = None
    chunk: int = 10_000_000
    wire: str | None = "bfloat16"


def daso_groups(p, nodes):
    """A1: global group j is the j-th rank of every node, in order of the nodes. -> p/nodes lists of ranks"""
    return [list(range(j, p, p // nodes)) for j in range(p // nodes)]


def daso_averaged(b, batches, phase):
    """A2: are gradients averaged in the node in batch b? Every L batches, and from a sending to its receipt. -> bool"""
    global_skip, local_skip, _ = phase
    sent = b - b % global_skip if global_skip else b
    under_way = b - sent <= daso_wait(sent, batches, phase)
    return local_skip <= 1 or b % local_skip == 0 or under_way or b == batches - 1


def node_gradients(gs, nodes, averaged):
    """A3: what each rank updates with: m times the sum over its node, by a ring; without averaging p times its own.

    Each rank's loss is divided by the global batch (P4), so on even shards these are means. p arrays -> p arrays
    """
    p, k = len(gs), len(gs) // nodes
    if not averaged:
        return [g.dtype.type(p) * g for g in gs]
    return [gs[0].dtype.type(nodes) * total for i in range(nodes) for total in ring_allreduce(gs[i * k : (i + 1) * k])]


def daso_sender(b, batches, global_skip, groups):
    """A4: which group sends its parameters after the update of batch b. -> number of the group, or None

    Batches 0, B, 2B, ... and the last one (B = 0: all). The groups take turns, from group 0 on in each epoch.
    """
    every = max(1, global_skip)
    return math.ceil(b / every) % groups if b % every == 0 or b == batches - 1 else None


def daso_wait(b, batches, phase):
    """A5: how many batches later what is sent in batch b is received: W, fixed at sending, never beyond the last batch."""
    return min(phase[2], batches - 1 - b) if phase[0] else 0


def daso_merge(w, total, nodes, waited):
    """A6: received late, the sum weighs as m, the own parameters as 2S, S batches waited (as 1 for S = 0, never used).

    w <- (2S w + total) / (2S + m), the product, the sum and the quotient rounded one after the other.  (n,) -> (n,)
    """
    own = 2 * waited if waited else 1
    return (w.dtype.type(own) * w + total) / w.dtype.type(own + nodes)


def daso_sum(ws, chunk, wire=None):
    """A7: the group's parameters are summed by a ring, chunk by chunk; with a wire type as R3 says. m arrays -> (n,)"""
    parts = [ring_allreduce([w[i:j] for w in ws], wire)[0] for i, j in chunk_bounds(len(ws[0]), chunk)]
    return np.concatenate([ws[0][:0], *parts])


def daso_spread(ws, number, nodes):
    """A8: after a receipt all ranks of a node hold the parameters of its member of the group. p arrays -> p arrays"""
    k = len(ws) // nodes
    return [ws[rank // k * k + number].copy() for rank in range(len(ws))]


def daso_next_phase(phase, largest=8):
    """A9: on a plateau B and L are halved and W is one less, L and W at least 1, W at most B; after B = 1 the largest B."""
    global_skip, local_skip, wait = phase
    if global_skip > 1:
        return global_skip // 2, max(1, local_skip // 2), max(1, min(wait - 1, global_skip // 2))
    return largest, max(1, largest // 4), max(1, largest // 4)


def daso_phases(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    """A10: the phase of each epoch: blocking in the first `warmup` and the last `cooldown`, between them cycles.

    losses[e]: the mean loss of epoch e. Cycling begins with B = 4 (at most `largest`), L = W = 1. A loss is better when
    it is below (1 - threshold) times the best since the last epoch of warm-up; more than `patience` epochs in a row
    that are not are a plateau, and are counted anew after it.  -> [(B, L, W)] * epochs
    """
    phases, best, worse = [], math.inf, 0
    for epoch in range(epochs):
        if not warmup <= epoch < epochs - cooldown:
            phases.append(BLOCKING)
        elif epoch == warmup:
            phases.append((min(4, largest), 1, 1))
        else:
            plateau = worse > patience
            phases.append(daso_next_phase(phases[-1], largest) if plateau else phases[-1])
            worse = 0 if plateau else worse
        if epoch + 1 >= warmup:
            better = losses[epoch] < (1 - threshold) * best
            best, worse = (losses[epoch], 0) if better else (best, worse + 1)
    return phases


def daso_start(w, p):
    """The state before the first batch: all ranks alike; nothing is under way."""
    return {"w": [w.copy()] * p, "v": [np.zeros_like(w)] * p, "t": 0, "under_way": []}


def daso_step(state, gs, phase, s):
    """A11: one batch: update (M1) with what A3 says, send, then receive what is due, the oldest first. -> state

    What is sent are the parameters after the update and before anything is received. Momentum never travels: each rank
    keeps its own. Received at once (S = 0) the sum divided by m is the new w, late it is merged (A6). With one node
    there is no sum; its ranks still take over the member's parameters.
    """
    t, p, b = state["t"], len(gs), state["t"] % s.batches
    gradients = node_gradients(gs, s.nodes, daso_averaged(b, s.batches, phase))
    stepped = [momentum_step(w, v, g, s.rate, s.momentum, s.decay, s.decayed)
               for w, v, g in zip(state["w"], state["v"], gradients)]  # fmt: skip
    ws, vs = [w for w, _ in stepped], [v for _, v in stepped]
    under_way, number = list(state["under_way"]), daso_sender(b, s.batches, phase[0], p // s.nodes)
    if number is not None:
        sent = [ws[rank] for rank in daso_groups(p, s.nodes)[number]]
        waited = daso_wait(b, s.batches, phase)
        if not waited:  # received at once, it replaces what is due now
            under_way = [sum_ for sum_ in under_way if sum_[0] > t]
        under_way.append((t + waited, waited, number, daso_sum(sent, s.chunk, None if phase[0] else s.wire)))
    for _, waited, number, total in [sum_ for sum_ in under_way if sum_[0] == t]:
        for rank in daso_groups(p, s.nodes)[number] if s.nodes > 1 else []:
            ws[rank] = daso_merge(ws[rank], total, s.nodes, waited) if waited else total / total.dtype.type(s.nodes)
        ws = daso_spread(ws, number, s.nodes)
    return {"w": ws, "v": vs, "t": t + 1, "under_way": [sum_ for sum_ in under_way if sum_[0] > t]}


def daso_run(w, gs, s, phases):
    """A11 again and again. gs[t][rank]: gradients of batch t; phases: one for each epoch. -> T states"""
    state, states = daso_start(w, len(gs[0])), []
    for t, step_gs in enumerate(gs):
        state = daso_step(state, step_gs, phases[t // s.batches], s)
        states.append(state)
    return states


def daso_traffic(n, p, nodes, batches, phase, chunk=10_000_000, itemsize=4, wire_itemsize=2):
    """A12: what each rank sends in an epoch of one phase. -> [(messages, bytes)] * p

    The node's ring over gradients (A2), the group's ring over each chunk of parameters (A4), of wire_itemsize bytes each
    in blocking phases, and down a binomial tree in the node after each receipt (A8): to the ranks 1, 2, 4, ... behind, n
    elements each. What is still under way at the last batch is not spread, as that batch replaces it.
    """
    k, sent = p // nodes, []
    for rank in range(p):
        messages = size = 0
        for b in range(batches):
            number, waited = daso_sender(b, batches, phase[0], k), daso_wait(b, batches, phase)
            calls = [(*ring_traffic(n, k, rank % k), itemsize)] if daso_averaged(b, batches, phase) else []
            if number == rank % k:
                kind = itemsize if phase[0] else wire_itemsize
                calls += [(*ring_traffic(j - i, nodes, rank // k), kind) for i, j in chunk_bounds(n, chunk)]
            if number is not None and (waited == 0 or b + waited < batches - 1):
                children = tree_children((rank - number) % k, k)
                calls.append((children, children * n, itemsize))
            messages += sum(count for count, _, _ in calls)
            size += sum(elements * kind for _, elements, kind in calls)
        sent.append((messages, size))
    return sent


def tree_children(place, k):
    """How many ranks the one at this place of a binomial tree over k sends to: at distances below its lowest bit."""
    distances = [2**i for i in range(k.bit_length())]
    return sum(place + d < k and place % (2 * d) == 0 for d in distances)
