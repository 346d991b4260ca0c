"""Mistakes in DASO's form `heat`: most are what A1 to A12 say in the same place."""

from refgf.oracle.definitions import (
    daso_averaged,
    daso_merge,
    daso_phases,
    daso_sum,
    daso_traffic,
    heat_again,
    heat_merge,
    heat_next_phase,
    heat_phases,
    heat_receives,
    heat_roots,
    heat_step,
    heat_traffic,
    on_wire,
)
from refgf.oracle.seeded.mistakes.registry import mistake


def sending(b, batches, global_skip):
    return b % global_skip == 0 or b == batches - 1


@mistake("A13", "heat_receives", "W = B - 1: received after W batches, not at the next sending")
def received_before_the_next_sending(b, sent, batches, phase):
    left = min(phase[2], batches - 1 - b)
    return sending(b, batches, phase[0]) or b - sent == left


@mistake("A13", "heat_receives", "a sum that is due in the last W batches is received when it is")
def received_near_the_end(b, sent, batches, phase):
    due = b - sent == phase[2] and (b + 1) % phase[0] != 0
    return sending(b, batches, phase[0]) or due


@mistake("A13", "heat_receives", "never received before the next sending")
def received_at_sendings_only(b, sent, batches, phase):
    return sending(b, batches, phase[0])


@mistake("A13", "heat_receives", "near the end of an epoch not received, where Heat does so early")
def never_early(b, sent, batches, phase):
    early = b - sent < phase[2] and not sending(b, batches, phase[0])
    return heat_receives(b, sent, batches, phase) and not early


@mistake("A14", "heat_averaged", "averaged while a sum is in flight, as in A2")
def averaged_as_described(b, batches, phase):
    return daso_averaged(b, batches, phase)


@mistake("A14", "heat_averaged", "averaged in every batch")
def averaged_always(b, batches, phase):
    return True


@mistake("A14", "heat_averaged", "averaged in every L-th batch only, and where a group sends")
def averaged_in_multiples(b, batches, phase):
    return phase[1] <= 1 or b % phase[1] == 0 or sending(b, batches, phase[0])


@mistake("A15", "heat_merge", "one quotient of the weighted sum, as in A6")
def merged_in_one_quotient(w, total, nodes, waited):
    return daso_merge(w, total, nodes, waited)


@mistake("A15", "heat_merge", "the parameters have weight S, not 2S")
def merged_with_half_the_weight(w, total, nodes, waited):
    return heat_merge(w, total, nodes, waited / 2)


@mistake("A15", "heat_merge", "the sum is multiplied by a reciprocal instead of divided")
def merged_by_a_reciprocal(w, total, nodes, waited):
    kind, every = w.dtype.type, 2 * waited + nodes
    return w * kind(2 * waited / every) + total * kind(1 / every)


@mistake("A16", "heat_mean", "blocking phases divide in float32, and do not round the quotient")
def divided_in_float32(ws, chunk, wire):
    total = daso_sum([on_wire(w, wire) for w in ws], chunk, wire)
    return total / total.dtype.type(len(ws))


@mistake("A16", "heat_mean", "a member adds its parameters unrounded, as in A7")
def added_unrounded(ws, chunk, wire):
    total = daso_sum(ws, chunk, wire)
    return on_wire(total / total.dtype.type(len(ws)), wire)


@mistake("A16", "heat_mean", "blocking phases are not rounded at all")
def mean_in_float32(ws, chunk, wire):
    total = daso_sum(ws, chunk)
    return total / total.dtype.type(len(ws))


@mistake("A17", "heat_again", "a sending does not spread the parameters of the group before again")
def not_again(b, batches, phase, groups):
    return None


@mistake("A17", "heat_again", "a sending spreads the parameters of the sending group")
def the_new_group_spreads(b, batches, phase, groups):
    before = heat_again(b, batches, phase, groups)
    return None if before is None else (before + 1) % groups


@mistake("A17", "heat_again", "the first group spreads, whichever was the one before")
def the_first_group_spreads(b, batches, phase, groups):
    return None if heat_again(b, batches, phase, groups) is None else 0


@mistake("A18", "heat_step", "a late sum has the weight of the batches that have passed")
def weighed_by_its_lateness(state, gs, phase, s):
    if state["in_flight"]:
        number, sent, _, total = state["in_flight"]
        passed = state["t"] % s.batches - sent
        state = {**state, "in_flight": (number, sent, passed, total)}
    return heat_step(state, gs, phase, s)


@mistake("A18", "heat_step", "what is in flight is merged before the parameters are sent")
def merged_before_sending(state, gs, phase, s):
    b, in_flight, k = state["t"] % s.batches, state["in_flight"], len(gs) // s.nodes
    if not in_flight or not heat_receives(b, in_flight[1], s.batches, phase):
        return heat_step(state, gs, phase, s)
    number, _, waited, total = in_flight
    ws = list(state["w"])
    for rank in range(number, len(ws), k):
        ws[rank] = heat_merge(ws[rank], total, s.nodes, waited)
    return heat_step({**state, "w": ws, "in_flight": None}, gs, phase, s)


@mistake("A18", "heat_step", "momentum is that of the member whose parameters a node takes over")
def momentum_taken_over(state, gs, phase, s):
    after = heat_step(state, gs, phase, s)
    k = len(gs) // s.nodes
    roots = heat_roots(state["t"] % s.batches, s.batches, phase, k)
    for root in roots:
        after["v"] = [after["v"][rank // k * k + root].copy() for rank in range(len(gs))]
    return after


@mistake("A19", "heat_next_phase", "W is at most B, as in A9")
def waits_at_most_b(phase, largest=8):
    global_skip, local_skip, wait = heat_next_phase(phase, largest)
    return global_skip, local_skip, min(global_skip, wait)


@mistake("A19", "heat_phases", "cycles without a warm-up, as in A10")
def cycles_at_once(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    if warmup == 0:
        return daso_phases(losses, epochs, warmup, cooldown, largest, threshold, patience)
    return heat_phases(losses, epochs, warmup, cooldown, largest, threshold, patience)


@mistake("A19", "heat_next_phase", "W is halved, as B is")
def wait_halved_too(phase, largest=8):
    global_skip, local_skip, wait = heat_next_phase(phase, largest)
    return global_skip, local_skip, max(1, phase[2] // 2) if phase[0] > 1 else wait


@mistake("A20", "heat_traffic", "nothing is taken over again: the traffic of A12")
def counted_as_described(
    n, p, nodes, batches, phase, chunk=10_000_000, itemsize=4, wire_itemsize=2
):
    return daso_traffic(n, p, nodes, batches, phase, chunk, itemsize, wire_itemsize)


@mistake("A20", "heat_roots", "what the last batch replaces is not counted")
def replaced_not_counted(b, batches, phase, groups):
    roots = heat_roots(b, batches, phase, groups)
    return roots[-1:] if b == batches - 1 else roots


@mistake("A20", "heat_traffic", "blocking phases are counted at 4 bytes a number, as the others")
def counted_at_4_bytes(n, p, nodes, batches, phase, chunk=10_000_000, itemsize=4, wire_itemsize=2):
    return heat_traffic(n, p, nodes, batches, phase, chunk, itemsize, itemsize)
