"""A21: the outer step of DiLoCo; exercise outer_step of lesson 13."""

from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, same_bits, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source
from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise, tenths
from refgf.oracle.spec.ring import Arrays, ring_allreduce, rounded_fold, shape_says
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement, differs_with


def diloco_outer(
    start: np.ndarray, v: np.ndarray, ws: Arrays, rate: float = 0.7, momentum: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """A21: an outer step: d is the sum over the ranks of (start - w) in ring order (R2), divided by
    p; v <- m v + d; start <- start - rate (d + m v), with the new v; each operation is rounded by
    itself. All ranks take this start as their parameters, and hold the same v. So rate 1 and m = 0
    take the mean of the parameters.

    Source: Douillard et al. 2023 (arXiv 2311.08105, read in a shortened copy): start - w averaged
    over workers, Nesterov momentum. Its rate 0.7 and momentum 0.9 stand in DiPaCo, by the same
    authors (arXiv 2403.10616, 7.1). Nesterov's form is that of PyTorch's SGD, as in OpenDiLoCo
    (train_diloco_torch.py of PrimeIntellect-ai/OpenDiloco at 828b643c). The order of sums and of
    rounding: chosen.

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
def any_outer_step(d: Draw) -> Given:
    p, momentum = min(d.p, 12), pick(d.rng, 0.0, 0.5, 0.9)
    arrays = {"w": d.normal(d.n), "v": d.normal(d.n), "x": d.normal(p, d.n)}
    return {"rate": pick(d.rng, 0.7, 1.0), "momentum": momentum, **arrays}


@OUTER.golden
def outer_cases() -> Cases:
    for n, p in ((5, 1), (0, 3), (3, 5), (13, 2), (29, 7)):
        rng, why = random_source(f"diloco-outer-n{n}-p{p}"), f"an outer step; {shape_says(p, n)}"
        w, v, x = (rng.standard_normal(size).astype(np.float32) for size in (n, n, (p, n)))
        given: Given = {"rate": 0.7, "momentum": 0.9, "w": w, "v": v, "x": x}
        case = OUTER.case(f"diloco-outer-n{n}-p{p}", why, **given)
        shows = n < 20 or differs_with(case, diloco_outer=in_rank_order)
        yield case.shows(shows, "another order of summation shows")
    w, x = (
        np.arange(7, dtype=np.float32),
        np.array([np.arange(7) + 2, np.arange(7) - 4], np.float32),
    )
    given = {"rate": 1.0, "momentum": 0.0, "w": w, "v": np.ones_like(w), "x": x}
    case = OUTER.case("diloco-outer-mean", "rate 1 without momentum", **given)
    mean = same_bits(case["out.w"], np.mean(x, axis=0))
    yield case.shows(mean, "the mean of the parameters, in whole numbers")


# ---- exercise outer_step ----


def outer_steps(*settings: tuple[int, float, float], moving: bool = True) -> Drawn:
    """Cases of nodes, outer rate and outer momentum. moving: the velocity is not 0 before."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        found = []
        for nodes, rate, momentum in settings:
            start, v, *ws = tenths(random, 2 + nodes, 3, dtype=np.float64)
            found.append(
                (start, v if moving else np.zeros(3), start + np.array(ws), rate, momentum)
            )
        return found

    return cases


OUTER_13 = Exercise("13.5", diloco_outer, "outer_step", relative=1e-9)  # sums in any order
OUTER_13.part(
    "the first outer step: no velocity before",
    1,
    outer_steps((2, 0.7, 0.9), (3, 0.5, 0.5), moving=False),
)
OUTER_13.part("rate 1, no momentum", 1, outer_steps((2, 1.0, 0.0), (4, 1.0, 0.0)))
OUTER_13.part("with a velocity", 2, outer_steps((2, 0.5, 0.5), (3, 0.7, 0.9), (4, 1.0, 0.9)))


@OUTER_13.mistake("the mean alone is local SGD: outer rate and outer velocity are left out")
def mean_alone(start, v, ws, rate=0.7, momentum=0.9):
    return np.mean(ws, axis=0), v


@OUTER_13.mistake("Nesterov's step takes d + momentum * v with the new v: yours is the new v alone")
@A21.mistake("heavy ball instead of Nesterov: start <- start - rate v")
def heavy_ball(start, v, ws, rate=0.7, momentum=0.9):
    _, v = diloco_outer(start, v, ws, rate, momentum)
    return start - start.dtype.type(rate) * v, v


@A21.mistake("Nesterov's step takes the velocity of the outer step before")
def old_velocity(start, v, ws, rate=0.7, momentum=0.9):
    kind, (_, after) = start.dtype.type, diloco_outer(start, v, ws, rate, momentum)
    d = after - kind(momentum) * v
    return start - kind(rate) * (d + kind(momentum) * v), after


@OUTER_13.mistake("d is the mean over the nodes, not their sum")
@A21.mistake("the sum of the differences is not divided by p")
def not_divided(start, v, ws, rate=0.7, momentum=0.9):
    kind, d = start.dtype.type, ring_allreduce([start - w for w in ws])[0]
    v = kind(momentum) * v + d
    return start - kind(rate) * (d + kind(momentum) * v), v


@OUTER_13.mistake("d is start minus w, not w minus start: your step leads away from the nodes")
@A21.mistake("the differences have the wrong sign: w - start")
def wrong_sign(start, v, ws, rate=0.7, momentum=0.9):
    return diloco_outer(start, v, [start + (start - w) for w in ws], rate, momentum)


@OUTER_13.mistake("the step is taken from start, not from the mean of the nodes")
@A21.mistake("the outer step begins at the mean of the parameters, not at the start")
def from_the_mean(start, v, ws, rate=0.7, momentum=0.9):
    after, v = diloco_outer(start, v, ws, rate, momentum)
    return after - (start - ring_allreduce(ws)[0] / start.dtype.type(len(ws))), v


@A21.mistake("differences are summed in rank order")
def in_rank_order(start, v, ws, rate=0.7, momentum=0.9):
    kind, d = start.dtype.type, rounded_fold([start - w for w in ws])
    v = kind(momentum) * v + d / kind(len(ws))
    return start - kind(rate) * (d / kind(len(ws)) + kind(momentum) * v), v


@OUTER_13.mistake("the velocity holds d, not rate * d: the rate is a factor of the step alone")
@A21.mistake("the velocity holds the rate: v <- m v + rate d")
def rate_in_the_velocity(start, v, ws, rate=0.7, momentum=0.9):
    kind, d = start.dtype.type, ring_allreduce([start - w for w in ws])[0]
    d = kind(rate) * (d / kind(len(ws)))
    v = kind(momentum) * v + d
    return start - (d + kind(momentum) * v), v
