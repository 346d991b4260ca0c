"""A21 to A23: DiLoCo. Workers train alone for H steps, then take one outer step together.

    inner step     A3 in the node, M1 on each rank; nothing else is sent
    outer step     A21 on the differences of all ranks: after H inner steps, or where one is asked

p ranks on `nodes` nodes of k ranks; a node is a worker, and with p nodes each rank is one.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, same_bits, select, steps_of
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.daso.arithmetic import node_gradients
from refgf.oracle.spec.draw import Draw, pick, random_source, some_nodes
from refgf.oracle.spec.momentum.sgd import momentum_step
from refgf.oracle.spec.ring import Arrays, ring_allreduce, rounded_fold, shape_says
from refgf.oracle.spec.ring_steps import ring_traffic
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement, differs_with

# ---- A21: an outer step ----


def diloco_outer(
    start: np.ndarray, v: np.ndarray, ws: Arrays, rate: float = 0.7, momentum: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """A21: an outer step: d is the sum over the ranks of (start - w) in ring order (R2), divided by
    p; v <- m v + d; start <- start - rate (d + m v), with the new v; each operation is rounded by
    itself. All ranks take this start as their parameters, and hold the same v. So rate 1 and m = 0
    take the mean of the parameters.

    Source: Douillard et al. 2023 (arXiv 2311.08105): Nesterov momentum on the mean of the
    differences, by what later papers and public code say of it; its own text was not at hand.
    Nesterov's form: PyTorch's SGD; the order of sums and of rounding: chosen.

    ws: p arrays (n,), each rank's parameters; start (n,): those of the outer step before
    -> (start, v)
    """
    kind = start.dtype.type
    d = ring_allreduce([start - w for w in ws])[0] / kind(len(ws))
    v = kind(momentum) * v + d
    return start - kind(rate) * (d + kind(momentum) * v), v


def run_outer(module: Any, case: Case) -> Outputs:
    start, v, ws = case["in.w"].copy(), case["in.v"].copy(), [x.copy() for x in case["in.x"]]
    start, v = module.diloco_outer(start, v, ws, **select(case, "rate", "momentum"))
    return {"out.w": np.asarray(start), "out.v": np.asarray(v)}


A21 = Statement("A21", diloco_outer)
OUTER_AXES = {key: ("element",) for key in "wv"}
OUTER = JudgedFunction(diloco_outer, "A21", OUTER_AXES, "w v x", run_outer)


@OUTER.fresh
def any_outer_step(d: Draw) -> dict:
    p, momentum = min(d.p, 12), pick(d.rng, 0.0, 0.5, 0.9)
    arrays = {"w": d.normal(d.n), "v": d.normal(d.n), "x": d.normal(p, d.n)}
    return {"rate": pick(d.rng, 0.7, 1.0), "momentum": momentum, **arrays}


@OUTER.golden
def outer_cases() -> Cases:
    for n, p in ((5, 1), (0, 3), (3, 5), (13, 2), (29, 7)):
        rng, why = random_source(f"diloco-outer-n{n}-p{p}"), f"an outer step; {shape_says(p, n)}"
        w, v, x = (rng.standard_normal(size).astype(np.float32) for size in (n, n, (p, n)))
        given = {"rate": 0.7, "momentum": 0.9, "w": w, "v": v, "x": x}
        case = OUTER.case(f"diloco-outer-n{n}-p{p}", why, **given)
        shows = n < 20 or differs_with(case, diloco_outer=in_rank_order)
        yield case.shows(shows, "another order of summation shows")
    w, x = np.arange(7, dtype=np.float32), np.float32([np.arange(7) + 2, np.arange(7) - 4])
    given = {"rate": 1.0, "momentum": 0.0, "w": w, "v": np.ones_like(w), "x": x}
    case = OUTER.case("diloco-outer-mean", "rate 1 without momentum", **given)
    mean = same_bits(case["out.w"], np.mean(x, axis=0))
    yield case.shows(mean, "the mean of the parameters, in whole numbers")


@A21.mistake("heavy ball instead of Nesterov: start <- start - rate v")
def heavy_ball(start, v, ws, rate=0.7, momentum=0.9):
    _, v = diloco_outer(start, v, ws, rate, momentum)
    return start - start.dtype.type(rate) * v, v


@A21.mistake("Nesterov's step takes the velocity of the outer step before")
def old_velocity(start, v, ws, rate=0.7, momentum=0.9):
    kind, (_, after) = start.dtype.type, diloco_outer(start, v, ws, rate, momentum)
    d = after - kind(momentum) * v
    return start - kind(rate) * (d + kind(momentum) * v), after


@A21.mistake("the sum of the differences is not divided by p")
def not_divided(start, v, ws, rate=0.7, momentum=0.9):
    kind, d = start.dtype.type, ring_allreduce([start - w for w in ws])[0]
    v = kind(momentum) * v + d
    return start - kind(rate) * (d + kind(momentum) * v), v


@A21.mistake("the differences have the wrong sign: w - start")
def wrong_sign(start, v, ws, rate=0.7, momentum=0.9):
    return diloco_outer(start, v, [start + (start - w) for w in ws], rate, momentum)


@A21.mistake("the outer step begins at the mean of the parameters, not at the start")
def from_the_mean(start, v, ws, rate=0.7, momentum=0.9):
    after, v = diloco_outer(start, v, ws, rate, momentum)
    return after - (start - ring_allreduce(ws)[0] / start.dtype.type(len(ws))), v


@A21.mistake("differences are summed in rank order")
def in_rank_order(start, v, ws, rate=0.7, momentum=0.9):
    kind, d = start.dtype.type, rounded_fold([start - w for w in ws])
    v = kind(momentum) * v + d / kind(len(ws))
    return start - kind(rate) * (d / kind(len(ws)) + kind(momentum) * v), v


@A21.mistake("the velocity holds the rate: v <- m v + rate d")
def rate_in_the_velocity(start, v, ws, rate=0.7, momentum=0.9):
    kind, d = start.dtype.type, ring_allreduce([start - w for w in ws])[0]
    d = kind(rate) * (d / kind(len(ws)))
    v = kind(momentum) * v + d
    return start - (d + kind(momentum) * v), v


# ---- A22: runs ----


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


def diloco_start(w: np.ndarray, p: int) -> dict:
    """The state before the first step: all ranks are alike. v: outer velocities, u: inner ones."""
    alike = {key: [array] * p for key, array in zip("wuv", (w, np.zeros_like(w), np.zeros_like(w)))}
    return {**alike, "start": [w] * p, "step": 0, "inner": 0}


def diloco_step(state: dict, gs: Arrays, s: DiLoCoSettings) -> dict:
    """A22: a step: each rank updates (M1) by A3's gradient, averaged in every step: m times the sum
    over its node, and p times its own where a node has one rank. After H such inner steps, or after
    a step for which one is asked, all ranks take an outer step (A21), and inner steps are counted
    from 0 again. The inner velocity stays on its rank, also through outer steps.

    Source: Douillard et al. 2023, as A21, with H = 500 and AdamW inside; there, too, the inner
    state stays, by public code. M1, nodes, and asking: chosen.

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


def inner_step(state: dict, gs: Arrays, s: DiLoCoSettings) -> tuple[Arrays, Arrays]:
    pairs = [
        momentum_step(w, u, g, s.rate, s.momentum)
        for w, u, g in zip(state["w"], state["u"], node_gradients(gs, s.nodes, averaged=True))
    ]
    return [w for w, _ in pairs], [u for _, u in pairs]


def diloco_run(w: np.ndarray, gs: list[Arrays], s: DiLoCoSettings) -> list[dict]:
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


def settings_of(nodes: int, inner_steps: int, early: list[int], **changed: float) -> dict:
    s = DiLoCoSettings(nodes, inner_steps)
    values = {name: getattr(s, name) for name in s.__dataclass_fields__}
    return {**values, "early": early, **changed}


@RUN.fresh
def any_steps(d: Draw) -> dict:
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


# ---- A23: what is sent ----


def diloco_traffic(
    n: int, p: int, nodes: int, steps: int, inner_steps: int, rank: int, itemsize: int = 4
) -> tuple[int, int]:
    """A23: T steps have T // H outer steps, each a ring over all ranks (R6): 2(p-1) messages, empty
    ones too, and 2n - len(slice r+1) - len(slice r+2) elements. An inner step sends nothing between
    nodes, and a ring in the node where that has more ranks than one. So with H a divisor of T bytes
    are those of synchronous training, divided by H. Start and velocity are not sent.

    Source: Douillard et al. 2023, as A21: one sum each H steps; the ring: chosen.

    -> (messages, bytes)
    """
    k, (messages, elements) = p // nodes, ring_traffic(n, p, rank)
    inside, elements_inside = ring_traffic(n, k, rank % k)
    outer = steps // inner_steps
    return (
        outer * messages + steps * inside,
        itemsize * (outer * elements + steps * elements_inside),
    )


def run_traffic(module: Any, case: Case) -> Outputs:
    given = select(case, "n", "p", "nodes", "steps", "inner_steps").values()
    p, itemsize = case.arguments["p"], case.arguments["itemsize"]
    sent = [module.diloco_traffic(*given, rank, itemsize) for rank in range(p)]
    return {"out.traffic": np.array(sent, np.int64)}


A23 = Statement("A23", diloco_traffic)
SENT = {"traffic": ("rank", "messages, bytes")}
TRAFFIC = JudgedFunction(diloco_traffic, "A23", SENT, run=run_traffic)


@TRAFFIC.fresh
def any_traffic(d: Draw) -> dict:
    """Few ranks and steps: an implementation may count by sending."""
    p = min(d.p, 12)
    shape = {"n": d.n, "p": p, "nodes": len(some_nodes(d.rng, p, True))}
    return {**shape, "steps": d.integer(1, 7), "inner_steps": d.integer(1, 4), "itemsize": 4}


@TRAFFIC.golden
def traffic_cases() -> Cases:
    for n, p, nodes, steps, inner_steps in (
        (5, 1, 1, 6, 2),
        (0, 4, 4, 6, 3),
        (3, 5, 5, 6, 2),
        (13, 4, 4, 7, 3),
        (13, 4, 4, 2, 3),
        (12, 3, 3, 5, 1),
        (29, 6, 3, 6, 3),
        (17, 6, 2, 7, 2),
    ):
        name = f"diloco-traffic-n{n}-p{p}-nodes{nodes}-{steps}-{inner_steps}"
        why = f"{steps} steps, H = {inner_steps}, {p // nodes} ranks a node; {shape_says(p, n)}"
        given = {"n": n, "p": p, "nodes": nodes, "steps": steps, "inner_steps": inner_steps}
        yield TRAFFIC.case(name, why, **given, itemsize=4)


A23.given("every step sends, as synchronous training does", inner_steps=lambda h: 1)


@A23.mistake("the ring in the node is not counted")
def inside_not_counted(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    return diloco_traffic(n, p, p, steps, inner_steps, rank, itemsize)


@A23.mistake("steps after the last outer step count as H")
def rest_counts(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    whole = -(-steps // inner_steps) * inner_steps
    return diloco_traffic(n, p, nodes, whole, inner_steps, rank, itemsize)


@A23.mistake("the new start is broadcast after the sum, by a ring of n elements")
def broadcast_too(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    messages, nbytes = diloco_traffic(n, p, nodes, steps, inner_steps, rank, itemsize)
    outer = steps // inner_steps
    return messages + outer * (p > 1), nbytes + outer * (p > 1) * n * itemsize


@A23.mistake("the outer velocity is summed as well as the differences")
def velocity_too(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    outer = diloco_traffic(n, p, p, steps, inner_steps, rank, itemsize)
    all_sent = diloco_traffic(n, p, nodes, steps, inner_steps, rank, itemsize)
    return tuple(a + b for a, b in zip(all_sent, outer))


@A23.mistake("the mean over the ranks, 2n (p-1)/p, where slices differ")
def mean_traffic(n, p, nodes, steps, inner_steps, rank, itemsize=4):
    messages, _ = diloco_traffic(n, p, nodes, steps, inner_steps, rank, itemsize)
    k, outer = p // nodes, steps // inner_steps
    return messages, itemsize * (outer * 2 * n * (p - 1) // p + steps * 2 * n * (k - 1) // k)
