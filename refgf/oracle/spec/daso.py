"""A1 to A12: DASO. A node averages gradients in every batch; nodes sum parameters rarely, and late.

p ranks on m nodes of k = p/m ranks; node i has the ranks i k .. i k + k-1. Batches count from 0 in
each epoch, which has `batches` of them. A phase is (B, L, W): a sum over nodes every B batches,
the gradients of a node averaged every L, the sum received W batches after it was sent.
(0, 0, 0): a blocking sum in every batch.
"""

import math
from dataclasses import dataclass

import numpy as np

from refgf.oracle.spec.csc.importance import chunk_bounds
from refgf.oracle.spec.momentum.sgd import momentum_step
from refgf.oracle.spec.ring import Arrays, ring_allreduce
from refgf.oracle.spec.ring_steps import ring_traffic

Phase = tuple[int, int, int]  # B, L, W
BLOCKING = (0, 0, 0)


@dataclass(frozen=True)
class DASOSettings:
    """decayed: bool (n,), None for everywhere; chunk: largest number of elements of one global sum;
    wire: type in blocking phases."""

    nodes: int
    batches: int
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 0.0
    decayed: np.ndarray | None = None
    chunk: int = 10_000_000
    wire: str | None = "bfloat16"


def daso_groups(p: int, nodes: int) -> list[list[int]]:
    """A1: global group j is the j-th rank of every node, in order of the nodes."""
    return [list(range(j, p, p // nodes)) for j in range(p // nodes)]


def daso_averaged(b: int, batches: int, phase: Phase) -> bool:
    """A2: are gradients averaged in the node in batch b?

    They are in every L-th batch, in the last one, and while a global sum is in flight.
    """
    global_skip, local_skip, _ = phase
    sent = b - b % global_skip if global_skip else b
    in_flight = b - sent <= daso_wait(sent, batches, phase)
    return local_skip <= 1 or b % local_skip == 0 or in_flight or b == batches - 1


def node_gradients(gs: Arrays, nodes: int, averaged: bool) -> Arrays:
    """A3: what each rank updates with: m times the sum over its node, or p times its own gradient.

    The sum is in ring order. Each rank's loss is divided by the global batch (P4), so on even
    shards these are means. p arrays -> p arrays
    """
    p, k = len(gs), len(gs) // nodes
    if not averaged:
        return [g.dtype.type(p) * g for g in gs]
    sums = [total for i in range(nodes) for total in ring_allreduce(gs[i * k : (i + 1) * k])]
    return [gs[0].dtype.type(nodes) * total for total in sums]


def daso_sender(b: int, batches: int, global_skip: int, groups: int) -> int | None:
    """A4: the group that sends its parameters after the update of batch b; None if none does.

    One sends in batches 0, B, 2B, ... and in the last one (B = 0: in all). The groups take turns,
    from group 0 on in each epoch.
    """
    every = max(1, global_skip)
    return math.ceil(b / every) % groups if b % every == 0 or b == batches - 1 else None


def daso_wait(b: int, batches: int, phase: Phase) -> int:
    """A5: how many batches after sending in batch b the sum is received: W, within the epoch."""
    return min(phase[2], batches - 1 - b) if phase[0] else 0


def daso_merge(w: np.ndarray, total: np.ndarray, nodes: int, waited: int) -> np.ndarray:
    """A6: a late sum has weight m, the own parameters 2S after S batches (1 for S = 0, never used).

    w <- (2S w + total) / (2S + m); the product, the sum and the quotient are rounded in that order.
    (n,) -> (n,)
    """
    own = 2 * waited if waited else 1
    return (w.dtype.type(own) * w + total) / w.dtype.type(own + nodes)


def daso_sum(ws: Arrays, chunk: int, wire: str | None = None) -> np.ndarray:
    """A7: a group's parameters are summed by a ring, chunk by chunk; a wire type acts as in R3.

    m arrays (n,) -> (n,)
    """
    bounds = chunk_bounds(len(ws[0]), chunk)
    sums = [ring_allreduce([w[i:j] for w in ws], wire)[0] for i, j in bounds]
    return np.concatenate([ws[0][:0], *sums])


def daso_broadcast(ws: Arrays, number: int, nodes: int) -> Arrays:
    """A8: after a receipt all ranks of a node hold the parameters of its member of the group.

    p arrays -> p arrays
    """
    k = len(ws) // nodes
    return [ws[rank // k * k + number].copy() for rank in range(len(ws))]


def daso_next_phase(phase: Phase, largest: int = 8) -> Phase:
    """A9: on a plateau B and L are halved and W decreases by one; B = 1 becomes the largest B.

    L and W are at least 1, W is at most B.
    """
    global_skip, local_skip, wait = phase
    if global_skip > 1:
        return global_skip // 2, max(1, local_skip // 2), max(1, min(wait - 1, global_skip // 2))
    return largest, max(1, largest // 4), max(1, largest // 4)


def daso_phases(
    losses: list[float],
    epochs: int,
    warmup: int,
    cooldown: int,
    largest: int = 8,
    threshold: float = 0.05,
    patience: int = 2,
) -> list[Phase]:
    """A10: the phase of each epoch: blocking in the first `warmup` and the last `cooldown` epochs.

    Between them phases cycle, from B = 4 (at most `largest`), L = W = 1. losses[e]: the mean loss
    of epoch e. A loss is better if it is below (1 - threshold) times the best since the last epoch
    of warm-up. More than `patience` epochs in a row without a better loss are a plateau, which
    restarts the count.
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


@dataclass(frozen=True)
class GlobalSum:
    """A group's sum in flight. due: batch of its receipt, counted from the first epoch on."""

    due: int
    waited: int
    number: int
    total: np.ndarray


def daso_start(w: np.ndarray, p: int) -> dict:
    """The state before the first batch: all ranks are alike, and nothing is in flight."""
    return {"w": [w.copy()] * p, "v": [np.zeros_like(w)] * p, "t": 0, "in_flight": []}


def daso_update(state: dict, gs: Arrays, averaged: bool, s: DASOSettings) -> tuple[Arrays, Arrays]:
    """Each rank's parameters and velocity after the update (M1) with A3's gradients."""
    ws, vs = [], []
    for w, v, g in zip(state["w"], state["v"], node_gradients(gs, s.nodes, averaged)):
        w, v = momentum_step(w, v, g, s.rate, s.momentum, s.decay, s.decayed)
        ws.append(w)
        vs.append(v)
    return ws, vs


def daso_step(state: dict, gs: Arrays, phase: Phase, s: DASOSettings) -> dict:
    """A11: one batch: update (M1) with A3's gradients, send, receive what is due, the oldest first.

    The parameters are sent after the update and before anything is received. Momentum is not
    communicated: each rank keeps its own. A sum received at once (S = 0) is divided by m and
    replaces w; a late one is merged (A6). One node sums nothing, but its ranks still take over the
    member's parameters. -> state
    """
    t, p, b = state["t"], len(gs), state["t"] % s.batches
    ws, vs = daso_update(state, gs, daso_averaged(b, s.batches, phase), s)
    groups = daso_groups(p, s.nodes)
    in_flight, number = list(state["in_flight"]), daso_sender(b, s.batches, phase[0], len(groups))
    if number is not None:
        waited = daso_wait(b, s.batches, phase)
        if not waited:  # received at once, it replaces what is due now
            in_flight = [late for late in in_flight if late.due > t]
        wire = None if phase[0] else s.wire
        total = daso_sum([ws[rank] for rank in groups[number]], s.chunk, wire)
        in_flight.append(GlobalSum(t + waited, waited, number, total))
    for late in [late for late in in_flight if late.due == t]:
        for rank in groups[late.number] if s.nodes > 1 else []:
            ws[rank] = receive(ws[rank], late, s.nodes)
        ws = daso_broadcast(ws, late.number, s.nodes)
    in_flight = [late for late in in_flight if late.due > t]
    return {"w": ws, "v": vs, "t": t + 1, "in_flight": in_flight}


def receive(w: np.ndarray, late: GlobalSum, nodes: int) -> np.ndarray:
    """A group member's parameters after a sum has arrived."""
    if late.waited:
        return daso_merge(w, late.total, nodes, late.waited)
    return late.total / late.total.dtype.type(nodes)


def daso_run(w: np.ndarray, gs: list[Arrays], s: DASOSettings, phases: list[Phase]) -> list[dict]:
    """A11 for T batches. gs[t][rank]: gradients of batch t; phases: one per epoch. -> T states"""
    state, states = daso_start(w, len(gs[0])), []
    for t, step_gs in enumerate(gs):
        state = daso_step(state, step_gs, phases[t // s.batches], s)
        states.append(state)
    return states


def daso_traffic(
    n: int,
    p: int,
    nodes: int,
    batches: int,
    phase: Phase,
    chunk: int = 10_000_000,
    itemsize: int = 4,
    wire_itemsize: int = 2,
) -> list[tuple[int, int]]:
    """A12: what each rank sends in an epoch of one phase. -> [(messages, bytes)] * p

    These are the node's ring over gradients (A2), the group's ring over each chunk of parameters
    (A4), with wire_itemsize bytes each in blocking phases, and a binomial tree in the node after
    each receipt (A8): to the ranks 1, 2, 4, ... behind, n elements each. What is still in flight at
    the last batch is not broadcast, because that batch replaces it.
    """
    k, sent = p // nodes, []
    for rank in range(p):
        messages = nbytes = 0
        for b in range(batches):
            number, waited = daso_sender(b, batches, phase[0], k), daso_wait(b, batches, phase)
            calls = []  # (messages, elements, bytes of an element)
            if daso_averaged(b, batches, phase):
                calls.append((*ring_traffic(n, k, rank % k), itemsize))
            if number == rank % k:
                size = itemsize if phase[0] else wire_itemsize
                for i, j in chunk_bounds(n, chunk):
                    calls.append((*ring_traffic(j - i, nodes, rank // k), size))
            if number is not None and (waited == 0 or b + waited < batches - 1):
                children = tree_children((rank - number) % k, k)
                calls.append((children, children * n, itemsize))
            messages += sum(count for count, _, _ in calls)
            nbytes += sum(elements * size for _, elements, size in calls)
        sent.append((messages, nbytes))
    return sent


def tree_children(place: int, k: int) -> int:
    """How many ranks the one at this place of a binomial tree over k ranks sends to."""
    distances = [2**i for i in range(k.bit_length())]
    return sum(place + d < k and place % (2 * d) == 0 for d in distances)
