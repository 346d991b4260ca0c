"""A22: inner and outer steps of DiLoCo, and runs."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, same_bits, select, steps_of
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.daso.arithmetic import node_gradients
from refgf.oracle.spec.diloco.outer import diloco_outer
from refgf.oracle.spec.draw import Draw, pick, random_source, some_nodes
from refgf.oracle.spec.momentum.sgd import momentum_step
from refgf.oracle.spec.ring import Arrays, ring_allreduce
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement


@dataclass(frozen=True)
class DiLoCoSettings:
    """nodes: workers; inner_steps: H; early: steps, counted from 1, after which an outer step is
    asked for, as before an evaluation; outer_rate and outer_momentum: A21's."""

    nodes: int
    inner_steps: int
    early: tuple[int, ...] = ()
    rate: float = 0.1
    momentum: float = 0.9
    outer_rate: float = 0.7
    outer_momentum: float = 0.9


def diloco_start(w: np.ndarray, p: int) -> dict[str, Any]:
    """The state before the first step: all ranks are alike. v: outer velocities, u: inner ones."""
    alike = {key: [array] * p for key, array in zip("wuv", (w, np.zeros_like(w), np.zeros_like(w)))}
    return {**alike, "start": [w] * p, "step": 0, "inner": 0}


def diloco_step(state: dict[str, Any], gs: Arrays, s: DiLoCoSettings) -> dict[str, Any]:
    """A22: a step: each rank updates (M1) by A3's gradient, averaged in every step: m times the sum
    over its node, and p times its own where a node has one rank. After H such inner steps, or after
    a step for which one is asked, all ranks take an outer step (A21), and inner steps are counted
    from 0 again. The inner velocity stays on its rank, also through outer steps.

    Source: Douillard et al. 2023: H = 500 and AdamW inside; OpenDiLoCo's state of it stays, too.
    M1, nodes, and asking: chosen.

    gs: p arrays -> state
    """
    ws, us = inner_step(state, gs, s)
    starts, vs, after = state["start"], state["v"], {"step": state["step"] + 1}
    after["inner"] = state["inner"] + 1
    if after["inner"] == s.inner_steps or after["step"] in s.early:
        pairs = [
            diloco_outer(start, v, ws, s.outer_rate, s.outer_momentum)
            for start, v in zip(starts, vs)
        ]
        starts, vs, after["inner"] = [start for start, _ in pairs], [v for _, v in pairs], 0
        ws = starts
    return {"w": ws, "u": us, "v": vs, "start": starts, **after}


def inner_step(state: dict[str, Any], gs: Arrays, s: DiLoCoSettings) -> tuple[Arrays, Arrays]:
    pairs = [
        momentum_step(w, u, g, s.rate, s.momentum)
        for w, u, g in zip(state["w"], state["u"], node_gradients(gs, s.nodes, averaged=True))
    ]
    return [w for w, _ in pairs], [u for _, u in pairs]


def diloco_run(w: np.ndarray, gs: list[Arrays], s: DiLoCoSettings) -> list[dict[str, Any]]:
    """A22 for T steps. gs[t][rank]: gradients of step t -> T states"""
    state, states = diloco_start(w, len(gs[0])), []
    for step in gs:
        state = diloco_step(state, step, s)
        states.append(state)
    return states


def diloco_settings(case: Case) -> DiLoCoSettings:
    given = select(case, *DiLoCoSettings.__dataclass_fields__)
    return DiLoCoSettings(**{**given, "early": tuple(given["early"])})


def run_steps(module: Any, case: Case) -> Outputs:
    """Parameters and outer velocity per step and rank."""
    states = module.diloco_run(case["in.w"].copy(), steps_of(case["in.g"]), diloco_settings(case))
    return {f"out.{key}": np.array([state[key] for state in states]) for key in "wv"}


A22 = Statement("A22", diloco_step)
AXES = {key: ("step", "rank", "element") for key in "wv"}
RUN = JudgedFunction(diloco_run, "A3 A21 A22", AXES, "w g", run_steps)


def settings_of(nodes: int, inner_steps: int, early: list[int], **changed: float) -> dict[str, Any]:
    s = DiLoCoSettings(nodes, inner_steps)
    values = {name: getattr(s, name) for name in s.__dataclass_fields__}
    return {**values, "early": early, **changed}


@RUN.fresh
def any_steps(d: Draw) -> Given:
    p, n, steps = min(d.p, 12), d.n, d.integer(4, 8)
    nodes, early = len(some_nodes(d.rng, p, True)), sorted({d.integer(1, steps) for _ in range(2)})
    given = settings_of(nodes, d.integer(1, 4), early, outer_momentum=pick(d.rng, 0.0, 0.9))
    return {**given, "w": d.normal(n), "g": d.normal(steps, p, n)}


def alike(case: Case) -> list[bool]:
    """After which steps all ranks hold the same parameters."""
    return [all(same_bits(w[0], other) for other in w) for w in case["out.w"]]


@RUN.golden
def run_cases() -> Cases:
    for name, why, n, p, nodes, inner_steps, early, meet in (
        ("h3", "H = 3: ranks meet after every third step", 17, 4, 4, 3, [], {3, 6}),
        ("h1", "H = 1: an outer step after every step", 17, 3, 3, 1, [], {*range(1, 9)}),
        ("h2-uneven", "n that p does not divide", 29, 7, 7, 2, [], {2, 4, 6, 8}),
        ("few", "fewer elements than ranks", 3, 5, 5, 3, [], {3, 6}),
        ("early", "an outer step comes early, and H counts from it", 17, 3, 3, 4, [2], {2, 6}),
        ("twice", "asked for where one is due: one outer step", 17, 3, 3, 3, [3, 4], {3, 4, 7}),
        ("nodes", "nodes of two ranks: gradients are averaged inside", 17, 6, 3, 3, [], {3, 6}),
        ("one-node", "one node: all gradients are averaged in every step", 17, 3, 1, 3, [], None),
        (
            "one-rank",
            "one rank: an outer step moves it further than its own steps",
            5,
            1,
            1,
            3,
            [],
            None,
        ),
        ("nothing", "no elements", 0, 3, 3, 2, [], None),
    ):
        rng = random_source(f"diloco-{name}")
        w, g = (rng.standard_normal(shape).astype(np.float32) for shape in (n, (8, p, n)))
        given = settings_of(nodes, inner_steps, early)
        case = RUN.case(f"diloco-{name}", why, **given, w=w, g=g / np.float32(p))
        wanted = [meet is None or t in meet for t in range(1, 9)]
        case.shows(alike(case) == wanted, "ranks hold the same after an outer step only")
        moved = [not same_bits(a, b) for a, b in zip(case["out.v"][:-1, 0], case["out.v"][1:, 0])]
        outer = [t + 1 in meet for t in range(1, 8)] if meet else moved
        yield case.shows(moved == outer, "the outer velocity changes in outer steps only")
    given = settings_of(3, 2, [], outer_rate=1.0, outer_momentum=0.0)
    rng, why = random_source("diloco-mean"), "outer rate 1, no outer momentum: local SGD"
    w, g = (rng.standard_normal(shape).astype(np.float32) for shape in (17, (4, 3, 17)))
    yield RUN.case("diloco-mean", why, **given, w=w, g=g)


@A22.mistake("inner steps are counted on after an outer step: then every step is an outer one")
def counter_not_reset(state, gs, s):
    after = diloco_step(state, gs, s)
    return after | {"inner": after["inner"] or s.inner_steps - 1}


@A22.mistake("an outer step that is asked for leaves the counter: the next one comes early")
def early_one_not_counted(state, gs, s):
    after = diloco_step(state, gs, s)
    return after | {"inner": (state["inner"] + 1) % s.inner_steps}


@A22.mistake("an outer step that is asked for where one is due is taken twice")
def taken_twice(state, gs, s):
    after = diloco_step(state, gs, s)
    if after["step"] in s.early and state["inner"] + 1 == s.inner_steps:
        alone = replace(s, rate=0.0, early=(after["step"] + 1,))
        again = diloco_step(after, [np.zeros_like(g) for g in gs], alone)
        after |= {key: again[key] for key in ("w", "v", "start")}
    return after


@A22.mistake("each rank's outer velocity sums its own differences")
def own_velocities(state, gs, s):
    after = diloco_step(state, gs, s)
    if after["inner"]:
        return after
    ws, _ = inner_step(state, gs, s)
    rate, m = (w.dtype.type(a) for w, a in zip(ws[:1] * 2, (s.outer_rate, s.outer_momentum)))
    ds = [start - w for start, w in zip(state["start"], ws)]
    vs = [m * v + d for v, d in zip(state["v"], ds)]
    d = ring_allreduce(ds)[0] / rate.dtype.type(len(ws))
    starts = [start - rate * (d + m * v) for start, v in zip(state["start"], vs)]
    return after | {"start": starts, "w": starts, "v": vs}


@A22.mistake("differences are always taken from the first parameters")
def first_start(state, gs, s):
    return diloco_step(state, gs, s) | {"start": state["start"]}


@A22.mistake("an outer step clears the inner velocity")
def inner_cleared(state, gs, s):
    after = diloco_step(state, gs, s)
    return after if after["inner"] else after | {"u": [0 * u for u in after["u"]]}


@A22.mistake("an outer step averages the inner velocities too")
def inner_averaged(state, gs, s):
    after = diloco_step(state, gs, s)
    if after["inner"]:
        return after
    return after | {"u": [np.mean(after["u"], axis=0, dtype=gs[0].dtype) for _ in gs]}


@A22.mistake("an outer step clears the outer velocity: no momentum between outer steps")
def outer_cleared(state, gs, s):
    return diloco_step({**state, "v": [0 * v for v in state["v"]]}, gs, s)


A22.given("gradients are averaged over all ranks in every step", s=lambda s: replace(s, nodes=1))
A22.given(
    "a rank's own gradient is not multiplied by p: its loss is divided by the global batch",
    gs=lambda gs: [g / g.dtype.type(len(gs)) for g in gs],
)
A22.given(
    "the first outer step after H + 1 steps", s=lambda s: replace(s, inner_steps=s.inner_steps + 1)
)
