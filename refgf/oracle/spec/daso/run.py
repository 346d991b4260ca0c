"""A11: one batch of DASO, and runs."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, Run, same_bits, select, steps_of
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.daso.arithmetic import daso_broadcast, daso_merge, daso_sum, node_gradients
from refgf.oracle.spec.daso.batches import (
    BLOCKING,
    Phase,
    daso_averaged,
    daso_groups,
    daso_sender,
    daso_wait,
)
from refgf.oracle.spec.draw import Draw, random_source, some_nodes
from refgf.oracle.spec.momentum.sgd import momentum_step
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement


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


@dataclass(frozen=True)
class GlobalSum:
    """A group's sum in flight. due: batch of its receipt, counted from the first epoch on."""

    due: int
    waited: int
    number: int
    total: np.ndarray


def daso_start(w: np.ndarray, p: int) -> dict[str, Any]:
    """The state before the first batch: all ranks are alike, and nothing is in flight."""
    return {"w": [w.copy()] * p, "v": [np.zeros_like(w)] * p, "t": 0, "in_flight": []}


def daso_update(
    state: dict[str, Any], gs: Arrays, averaged: bool, s: DASOSettings
) -> tuple[Arrays, Arrays]:
    """Each rank's parameters and velocity after the update (M1) with A3's gradients."""
    ws, vs = [], []
    for w, v, g in zip(state["w"], state["v"], node_gradients(gs, s.nodes, averaged)):
        w, v = momentum_step(w, v, g, s.rate, s.momentum, s.decay, s.decayed)
        ws.append(w)
        vs.append(v)
    return ws, vs


def daso_step(state: dict[str, Any], gs: Arrays, phase: Phase, s: DASOSettings) -> dict[str, Any]:
    """A11: one batch: update (M1), send, receive what is due, the oldest first. Momentum stays on
    its rank. A sum that is received at once is divided by m in the type of the arrays and replaces
    w; in the last batch it replaces what is in flight too. One node sums and merges nothing; all
    else is as with more nodes: sendings and receipts, averaging in between (A2), broadcasts (A8)
    and their traffic.

    Source: Heat; the type of the quotient and one node: chosen. The alternative would be merging
    before sending, at B = W.

    gs: p arrays. The parameters are sent after the update and before anything is received. -> state
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


def daso_run(
    w: np.ndarray, gs: list[Arrays], s: DASOSettings, phases: list[Phase]
) -> list[dict[str, Any]]:
    """A11 for T batches. gs[t][rank]: gradients of batch t; phases: one per epoch. -> T states"""
    state, states = daso_start(w, len(gs[0])), []
    for t, step_gs in enumerate(gs):
        state = daso_step(state, step_gs, phases[t // s.batches], s)
        states.append(state)
    return states


def daso_settings(case: Case) -> DASOSettings:
    fields = [name for name in DASOSettings.__dataclass_fields__ if name in case.arguments]
    return DASOSettings(**select(case, *fields))


def run_of(name: str) -> Run:
    """Parameters and velocity per batch and rank."""

    def run(module: Any, case: Case) -> Outputs:
        phases = [tuple(phase) for phase in case.arguments["phases"]]
        w, g = case["in.w"].copy(), steps_of(case["in.g"])
        states = getattr(module, name)(w, g, daso_settings(case), phases)
        return {f"out.{key}": np.array([state[key] for state in states]) for key in "wv"}

    return run


A11 = Statement("A11", daso_step)
AXES = {key: ("step", "rank", "element") for key in "wv"}
RUN = JudgedFunction(daso_run, "A2 A3 A4 A5 A6 A7 A8 A11", AXES, "w g", run_of("daso_run"))


@RUN.fresh
def two_epochs(d: Draw, beyond: int = 0) -> Given:
    """Each node has as many ranks. beyond: how far W may exceed B."""
    p, n, batches = min(d.p, 12), min(d.n, 40) + 1, d.integer(1, 6)
    nodes = len(some_nodes(d.rng, p, True))
    between = d.integer(1, 4)
    phase = [between, d.integer(1, between), d.integer(0, between + beyond)]
    arguments = {"nodes": nodes, "batches": batches, "phases": [phase, [0, 0, 0]]}
    arguments |= {"rate": 0.1, "momentum": 0.9, "chunk": d.integer(3, 50)}
    return {**arguments, "w": d.normal(n), "g": d.normal(2 * batches, p, n)}


def run_case(
    function: JudgedFunction,
    name: str,
    why: str,
    statements: str,
    shape: tuple[int, int, int],
    phases: list[Phase],
    **settings: Any,
) -> Case:
    """A run over as many epochs as there are phases. shape: p, nodes, batches."""
    p, nodes, batches = shape
    rng = random_source(function.name.removesuffix("_run") + name)
    w = rng.standard_normal(17).astype(np.float32)
    g = (rng.standard_normal((len(phases) * batches, p, 17)) / p).astype(np.float32)
    given: Given = {"rate": 0.1, "momentum": 0.9, **settings, "w": w, "g": g}
    given |= {"batches": batches, "phases": [list(phase) for phase in phases]}
    return function.case(name, why, statements, nodes=nodes, **given)


def ranks_agree(case: Case) -> np.ndarray:
    """After which batches all ranks hold the same parameters. -> bool (T,)"""
    return np.array([all(same_bits(w[0], other) for other in w) for w in case["out.w"]])


ALIKE = "all ranks hold the same parameters after each batch"


@RUN.golden
def run_cases() -> Cases:
    """Short epochs with every kind of batch."""

    def case_of(name: str, why: str, statements: str, *shape_phases: Any, **settings: Any) -> Case:
        return run_case(RUN, name, why, f"A11 {statements}", *shape_phases, **settings)

    why = (
        "blocking in every batch: parameters are rounded to bfloat16, groups take turns, "
        "momentum stays local"
    )
    case = case_of("daso-blocking", why, "A1 A3 A4 A7 A8", (4, 2, 5), [BLOCKING])
    case.shows(ranks_agree(case).all(), ALIKE)
    apart = not same_bits(case["out.v"][-1, 0], case["out.v"][-1, 2])
    yield case.shows(apart, "nodes have different momentum")
    why = "B = 1, W = 0: blocking, but not rounded"
    case = case_of("daso-every-batch", why, "A3 A4 A5 A7", (6, 3, 4), [(1, 1, 0)])
    yield case.shows(ranks_agree(case).all(), ALIKE)
    why = "sums over three nodes, cut into chunks of 5: each has ring slices of its own"
    yield case_of("daso-chunks", why, "A7", (6, 3, 3), [(1, 1, 0)], chunk=5)
    why = (
        "B = 3, W = 2 in epochs of 8: the sum of batch 6 waits one batch instead of two; "
        "three groups take turns"
    )
    case = case_of("daso-shortened", why, "A1 A4 A5 A6 A8", (6, 2, 8), [(3, 1, 2), (3, 1, 2)])
    case.shows(daso_wait(6, 8, (3, 1, 2)) == 1, "the last wait is shortened")
    meet = ranks_agree(case)[7::8].all() and not ranks_agree(case)[:7].any()
    yield case.shows(meet, "nodes differ but at the end of an epoch")
    why = "B = W = 1: sent before the sum before is merged"
    yield case_of("daso-every-batch-late", why, "A5 A6", (4, 2, 6), [(1, 1, 1)])
    why = "B = W = 4, four nodes of one rank"
    yield case_of("daso-long-wait", why, "A5 A6", (4, 4, 10), [(4, 1, 4)])
    why = (
        "B = 8, L = 3, W = 2: gradients stay on the rank in batches 4, 5 and 7, but not "
        "while a sum is in flight"
    )
    case = case_of("daso-local-skip", why, "A2 A3 A4 A8", (4, 2, 12), [(8, 3, 2)])
    same = [same_bits(case["out.w"][t, 0], case["out.w"][t, 1]) for t in range(12)]
    part = same == [not 4 <= t <= 9 for t in range(12)]
    yield case.shows(part, "a node's ranks part in batch 4 and meet in batch 10")
    why = "warm-up, cycling, cool-down: blocking epochs are rounded, the others not"
    phases = [BLOCKING, (4, 1, 1), (2, 1, 1), BLOCKING]
    yield case_of("daso-training", why, "A4 A5 A6 A7", (4, 2, 6), phases)
    why = "one node has no sum, and nothing is rounded; its ranks take over the parameters of one"
    yield case_of("daso-one-node", why, "A2 A8", (3, 1, 6), [(4, 2, 1), BLOCKING])
    why = "one rank is momentum SGD"
    yield case_of("daso-one-rank", why, "A3", (1, 1, 5), [(2, 1, 1)])


@A11.mistake("momentum is averaged between nodes, as parameters are")
def momentum_averaged(state, gs, phase, s):
    after = daso_step(state, gs, phase, s)
    if daso_averaged(state["t"] % s.batches, s.batches, phase) and not after["in_flight"]:
        after["v"] = [np.mean(after["v"], axis=0, dtype=after["v"][0].dtype) for _ in gs]
    return after


@A11.mistake("the parameters at the receipt are summed, not the sent ones")
def summed_at_receipt(state, gs, phase, s):
    in_flight, groups = [], len(gs) // s.nodes
    for late in state["in_flight"]:
        if late.due == state["t"]:
            total = daso_sum(state["w"][late.number :: groups], s.chunk)
            late = replace(late, total=total)
        in_flight.append(late)
    return daso_step({**state, "in_flight": in_flight}, gs, phase, s)
