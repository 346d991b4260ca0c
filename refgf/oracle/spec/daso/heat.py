"""A13, A14, A16 to A18: DASO as the authors' public code runs it."""

import math
from typing import Any

import numpy as np

from refgf.oracle.spec.daso.arithmetic import daso_broadcast, daso_sum, heat_merge
from refgf.oracle.spec.daso.batches import (
    Phase,
    daso_averaged,
    daso_groups,
    daso_sender,
    daso_wait,
)
from refgf.oracle.spec.daso.run import (
    AXES,
    DASOSettings,
    daso_start,
    daso_update,
    run_of,
    two_epochs,
)
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.statement import JudgedFunction, Statement

# ---- A13: when a sum is received ----


def heat_receives(b: int, sent: int, batches: int, phase: Phase) -> bool:
    """A13: `heat`: a sum is received in the next batch in which a group sends, after that. Before,
    it is in the batch b in which b minus the batch of sending is min(W, batches left after b),
    unless b + 1 is a multiple of B. So with W = B - 1 it is received B batches late. A sum due in
    the last W batches of an epoch is received early, half way to the last batch, where that is a
    batch; otherwise only in the last batch, which replaces it.

    Source: Heat: `step` compares with a wait that it shortens anew in each batch, after it has
    looked at the next one.

    -> is a sum that was sent in batch `sent`, and is still in flight, received in batch b?
    """
    global_skip, _, wait = phase
    last = batches - 1
    if b % global_skip == 0 or b == last:
        return True
    return b - sent == min(wait, last - b) and (b + 1) % global_skip != 0


A13 = Statement("A13", heat_receives)


def sending(b: int, batches: int, global_skip: int) -> bool:
    return b % global_skip == 0 or b == batches - 1


@A13.mistake("W = B - 1: received after W batches, not at the next sending")
def received_before_the_next_sending(b, sent, batches, phase):
    left = min(phase[2], batches - 1 - b)
    return sending(b, batches, phase[0]) or b - sent == left


@A13.mistake("a sum that is due in the last W batches is received when it is")
def received_near_the_end(b, sent, batches, phase):
    due = b - sent == phase[2] and (b + 1) % phase[0] != 0
    return sending(b, batches, phase[0]) or due


@A13.mistake("never received before the next sending")
def received_at_sendings_only(b, sent, batches, phase):
    return sending(b, batches, phase[0])


@A13.mistake("near the end of an epoch not received, where Heat does so early")
def never_early(b, sent, batches, phase):
    early = b - sent < phase[2] and not sending(b, batches, phase[0])
    return heat_receives(b, sent, batches, phase) and not early


# ---- A14: means in the node ----


def heat_averaged(b: int, batches: int, phase: Phase) -> bool:
    """A14: `heat`: averaging is switched for the next batch: on if that is a multiple of B or the
    last one; otherwise, once b minus the batch of sending is at least A13's min: on if b + 1 is a
    multiple of L, else off where the two are equal and where b is a multiple of L. Other batches,
    and those that send, leave it. L = 1 averages always.

    Source: Heat.

    -> are gradients averaged in the node in batch b?
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


A14 = Statement("A14", heat_averaged)
A14.mistake("averaged while a sum is in flight, as in A2")(daso_averaged)


@A14.mistake("averaged in every batch")
def averaged_always(b, batches, phase):
    return True


@A14.mistake("averaged in every L-th batch only, and where a group sends")
def averaged_in_multiples(b, batches, phase):
    return phase[1] <= 1 or b % phase[1] == 0 or sending(b, batches, phase[0])


# ---- A16: the mean of a sum that is received at once ----


def heat_mean(ws: Arrays, chunk: int, wire: str | None) -> np.ndarray:
    """A16: `heat`: in blocking phases all numbers are bfloat16: parameters are rounded before the
    sum, and the quotient by m after it.

    Source: Heat.

    Without a wire type nothing is rounded to bfloat16. m arrays (n,) -> (n,)
    """
    total = daso_sum([on_wire(w, wire) for w in ws], chunk, wire)
    return on_wire(total / total.dtype.type(len(ws)), wire)


A16 = Statement("A16", heat_mean)


@A16.mistake("blocking phases divide in float32, and do not round the quotient")
def divided_in_float32(ws, chunk, wire):
    total = daso_sum([on_wire(w, wire) for w in ws], chunk, wire)
    return total / total.dtype.type(len(ws))


@A16.mistake("a member adds its parameters unrounded, as in A7")
def added_unrounded(ws, chunk, wire):
    total = daso_sum(ws, chunk, wire)
    return on_wire(total / total.dtype.type(len(ws)), wire)


@A16.mistake("blocking phases are not rounded at all")
def mean_in_float32(ws, chunk, wire):
    total = daso_sum(ws, chunk)
    return total / total.dtype.type(len(ws))


# ---- A17: taking over again ----


def heat_again(b: int, batches: int, phase: Phase, groups: int) -> int | None:
    """A17: `heat`: where a group sends and W > 0, except in batch 0, nodes take over the parameters
    of the group before (A8), also if they have already. Where that group's sum is received in the
    same batch (A13), both are one taking over.

    Source: Heat.

    -> the number of the group before; None where nothing is taken over
    """
    global_skip, _, wait = phase
    sends = daso_sender(b, batches, global_skip, groups) is not None
    if not sends or b == 0 or wait == 0:
        return None
    return (math.ceil(b / global_skip) - 1) % groups


A17 = Statement("A17", heat_again)


@A17.mistake("a sending does not spread the parameters of the group before again")
def not_again(b, batches, phase, groups):
    return None


@A17.mistake("a sending spreads the parameters of the sending group")
def the_new_group_spreads(b, batches, phase, groups):
    before = heat_again(b, batches, phase, groups)
    return None if before is None else (before + 1) % groups


@A17.mistake("the first group spreads, whichever was the one before")
def the_first_group_spreads(b, batches, phase, groups):
    return None if heat_again(b, batches, phase, groups) is None else 0


# ---- A18: one batch ----


def heat_step(state: dict[str, Any], gs: Arrays, phase: Phase, s: DASOSettings) -> dict[str, Any]:
    """A18: `heat`: one batch: update (M1), send, receive (A13), take over (A17), and where S = 0
    replace w by A16 and take over. One node does so with its own parameters: it merges those that
    it sent by A15 with m = 1. Otherwise as A11.

    Source: Heat.

    In the last batch what is in flight is merged too, and then replaced. -> state
    """
    t, p, b = state["t"], len(gs), state["t"] % s.batches
    ws, vs = daso_update(state, gs, heat_averaged(b, s.batches, phase), s)
    groups, in_flight = daso_groups(p, s.nodes), state["in_flight"] or None
    number, new = daso_sender(b, s.batches, phase[0], len(groups)), ws[0]
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


def heat_run(
    w: np.ndarray, gs: list[Arrays], s: DASOSettings, phases: list[Phase]
) -> list[dict[str, Any]]:
    """A18 for T batches. gs[t][rank]: gradients of batch t; phases: one per epoch. -> T states"""
    state, states = daso_start(w, len(gs[0])), []
    for t, step_gs in enumerate(gs):
        state = heat_step(state, step_gs, phases[t // s.batches], s)
        states.append(state)
    return states


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


A18 = Statement("A18", heat_step)
HEAT_RUN = JudgedFunction(heat_run, "A13 A14 A15 A16 A17 A18", AXES, "w g", run_of("heat_run"))
HEAT_RUN.fresh(lambda d: two_epochs(d, beyond=2))


@A18.mistake("a late sum has the weight of the batches that have passed")
def weighed_by_its_lateness(state, gs, phase, s):
    if state["in_flight"]:
        number, sent, _, total = state["in_flight"]
        passed = state["t"] % s.batches - sent
        state = {**state, "in_flight": (number, sent, passed, total)}
    return heat_step(state, gs, phase, s)


@A18.mistake("what is in flight is merged before the parameters are sent")
def merged_before_sending(state, gs, phase, s):
    b, in_flight, k = state["t"] % s.batches, state["in_flight"], len(gs) // s.nodes
    if not in_flight or not heat_receives(b, in_flight[1], s.batches, phase):
        return heat_step(state, gs, phase, s)
    number, _, waited, total = in_flight
    ws = list(state["w"])
    for rank in range(number, len(ws), k):
        ws[rank] = heat_merge(ws[rank], total, s.nodes, waited)
    return heat_step({**state, "w": ws, "in_flight": None}, gs, phase, s)


@A18.mistake("momentum is that of the member whose parameters a node takes over")
def momentum_taken_over(state, gs, phase, s):
    after = heat_step(state, gs, phase, s)
    k = len(gs) // s.nodes
    roots = heat_roots(state["t"] % s.batches, s.batches, phase, k)
    for root in roots:
        after["v"] = [after["v"][rank // k * k + root].copy() for rank in range(len(gs))]
    return after
