"""A13 to A20: DASO as the authors' public code runs it (Heat, `heat/optim/dp_optimizer.py`).

Of A1 to A12 only A2 and A5 are what that code says of itself. It differs from A1 to A12 in when a
sum is received (A13), which gradients are averaged (A14), two roundings (A15, A16), whose
parameters a node takes over (A17), and the phases (A19). Arguments are those of daso.py;
L is at least 1 where B is.
"""

import math

import numpy as np

from refgf.oracle.spec.csc.importance import chunk_bounds
from refgf.oracle.spec.daso import (
    BLOCKING,
    DASOSettings,
    Phase,
    daso_broadcast,
    daso_groups,
    daso_sender,
    daso_start,
    daso_sum,
    daso_update,
    daso_wait,
    tree_children,
)
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.ring_steps import ring_traffic


def heat_receives(b: int, sent: int, batches: int, phase: Phase) -> bool:
    """A13: is a sum that was sent in batch `sent`, and is still in flight, received in batch b?

    It is where a group sends, after that. It is also where b - sent is the smaller of W and the
    batches left after b, unless a group sends in the next batch by B.
    """
    global_skip, _, wait = phase
    last = batches - 1
    if b % global_skip == 0 or b == last:
        return True
    return b - sent == min(wait, last - b) and (b + 1) % global_skip != 0


def heat_averaged(b: int, batches: int, phase: Phase) -> bool:
    """A14: are gradients averaged in the node in batch b? Each batch decides for the next one.

    A batch in which a group sends changes nothing. Another one switches averaging on if the next
    batch is a multiple of B or the last one. Otherwise, when W batches (or as many as are left)
    have passed since the sending, it is switched off, off again by each batch that is a multiple of
    L, and on by each batch before a multiple of L. L = 1 averages always.
    """
    global_skip, local_skip, wait = phase
    last, on = batches - 1, True
    for before in range(b if local_skip > 1 else 0):
        passed, waits = before % global_skip, min(wait, last - before)
        if passed == 0:
            continue
        if (before + 1) % global_skip == 0 or before + 1 == last:
            on = True
        elif passed >= waits:
            on = on and passed > waits and before % local_skip != 0
            on = on or (before + 1) % local_skip == 0
    return on


def heat_merge(w: np.ndarray, total: np.ndarray, nodes: int, waited: int) -> np.ndarray:
    """A15: w <- w (2S / (2S + m)) + sum / (2S + m), S as in A6; the factor is formed in float64.

    The factor, the product, the quotient and the sum are rounded in that order. (n,) -> (n,)
    """
    own = 2 * waited if waited else 1
    return w * w.dtype.type(own / (own + nodes)) + total / w.dtype.type(own + nodes)


def heat_mean(ws: Arrays, chunk: int, wire: str | None) -> np.ndarray:
    """A16: the mean of a group's parameters, where it is received at once.

    With a wire type all numbers are of it: the parameters before the sum (A7), the sum, and the
    quotient by m. m arrays (n,) -> (n,)
    """
    total = daso_sum([on_wire(w, wire) for w in ws], chunk, wire)
    return on_wire(total / total.dtype.type(len(ws)), wire)


def heat_again(b: int, batches: int, phase: Phase, groups: int) -> int | None:
    """A17: where a group sends and W > 0, nodes take over parameters of the group before again.

    -> its number; None in the first batch of an epoch and where no group sends
    """
    global_skip, _, wait = phase
    sends = daso_sender(b, batches, global_skip, groups) is not None
    if not sends or b == 0 or wait == 0:
        return None
    return (math.ceil(b / global_skip) - 1) % groups


def heat_step(state: dict, gs: Arrays, phase: Phase, s: DASOSettings) -> dict:
    """A18: one batch: update, send, receive what A13 says, take over (A8, A17), receive at once.

    A late sum keeps the weight of the wait that was fixed when it was sent (A5), however late it
    is. In the last batch what is in flight is merged too, and then replaced. One node does all this
    with its own parameters.
    in_flight: None or (number of the group, batch of sending, S, sum). -> state
    """
    t, p, b = state["t"], len(gs), state["t"] % s.batches
    ws, vs = daso_update(state, gs, heat_averaged(b, s.batches, phase), s)
    groups, in_flight = daso_groups(p, s.nodes), state["in_flight"] or None
    number, new = daso_sender(b, s.batches, phase[0], len(groups)), None
    if number is not None:
        waited, members = daso_wait(b, s.batches, phase), [ws[rank] for rank in groups[number]]
        wire = None if phase[0] else s.wire
        new = daso_sum(members, s.chunk) if waited else heat_mean(members, s.chunk, wire)
    again = heat_again(b, s.batches, phase, len(groups))
    if in_flight and heat_receives(b, in_flight[1], s.batches, phase):
        again, _, late, total = in_flight
        for rank in groups[again]:
            ws[rank] = heat_merge(ws[rank], total, s.nodes, late)
        in_flight = None
    if again is not None:
        ws = daso_broadcast(ws, again, s.nodes)
    if number is not None and waited:
        in_flight = number, b, waited, new
    elif number is not None:
        for rank in groups[number]:
            ws[rank] = new
        ws = daso_broadcast(ws, number, s.nodes)
    return {"w": ws, "v": vs, "t": t + 1, "in_flight": in_flight}


def heat_run(w: np.ndarray, gs: list[Arrays], s: DASOSettings, phases: list[Phase]) -> list[dict]:
    """A18 for T batches. gs[t][rank]: gradients of batch t; phases: one per epoch. -> T states"""
    state, states = daso_start(w, len(gs[0])), []
    for t, step_gs in enumerate(gs):
        state = heat_step(state, step_gs, phases[t // s.batches], s)
        states.append(state)
    return states


def heat_next_phase(phase: Phase, largest: int = 8) -> Phase:
    """The next phase on a plateau: as A9, but W may exceed B."""
    global_skip, local_skip, wait = phase
    if global_skip > 1:
        return global_skip // 2, max(1, local_skip // 2), max(1, wait - 1)
    return largest, largest // 4, largest // 4


def heat_phases(
    losses: list[float],
    epochs: int,
    warmup: int,
    cooldown: int,
    largest: int = 8,
    threshold: float = 0.05,
    patience: int = 2,
) -> list[Phase]:
    """A19: the phase of each epoch: as A10, but W may exceed B, and cycling needs a warm-up.

    Without one every epoch blocks. `largest` is at least 4.
    """
    phases, best, worse = [], math.inf, 0
    for epoch in range(epochs):
        if warmup == 0 or not warmup <= epoch < epochs - cooldown:
            phases.append(BLOCKING)
        elif epoch == warmup:
            phases.append((4, 1, 1))
        else:
            plateau = worse > patience
            phases.append(heat_next_phase(phases[-1], largest) if plateau else phases[-1])
            worse = 0 if plateau else worse
        if epoch + 1 >= warmup:
            better = losses[epoch] < (1 - threshold) * best
            best, worse = (losses[epoch], 0) if better else (best, worse + 1)
    return phases


def heat_traffic(
    n: int,
    p: int,
    nodes: int,
    batches: int,
    phase: Phase,
    chunk: int = 10_000_000,
    itemsize: int = 4,
    wire_itemsize: int = 2,
) -> list[tuple[int, int]]:
    """A20: what each rank sends in an epoch of one phase. -> [(messages, bytes)] * p

    These are the rings of A12, and a tree in the node for each taking over (A8, A17), also for the
    one that the last batch replaces.
    """
    k, sent = p // nodes, []
    for rank in range(p):
        calls = []  # (messages, elements, bytes of an element)
        for b in range(batches):
            number = daso_sender(b, batches, phase[0], k)
            if heat_averaged(b, batches, phase):
                calls.append((*ring_traffic(n, k, rank % k), itemsize))
            if number == rank % k:
                size = itemsize if phase[0] else wire_itemsize
                for i, j in chunk_bounds(n, chunk):
                    calls.append((*ring_traffic(j - i, nodes, rank // k), size))
            for root in heat_roots(b, batches, phase, k):
                children = tree_children((rank - root) % k, k)
                calls.append((children, children * n, itemsize))
        messages = sum(count for count, _, _ in calls)
        sent.append((messages, sum(elements * size for _, elements, size in calls)))
    return sent


def heat_roots(b: int, batches: int, phase: Phase, groups: int) -> list[int]:
    """The groups whose members' parameters their nodes take over in batch b, in order."""
    number, again = daso_sender(b, batches, phase[0], groups), heat_again(b, batches, phase, groups)
    roots = [] if again is None else [again]
    if number is None and phase[2]:  # the one sum that can be in flight
        sent = b - b % phase[0]
        before = any(heat_receives(c, sent, batches, phase) for c in range(sent + 1, b))
        if not before and heat_receives(b, sent, batches, phase):
            roots.append(sent // phase[0] % groups)
    if number is not None and daso_wait(b, batches, phase) == 0:
        roots.append(number)
    return roots
