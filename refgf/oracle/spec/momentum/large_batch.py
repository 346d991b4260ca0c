"""M7 to M9: accumulation, and LARS in parallel and under loss scaling."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, flags, same_bits, steps_of
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source, relative, some_sizes, wide_integers
from refgf.oracle.spec.exercise import Exercise, tenths
from refgf.oracle.spec.families import inputs
from refgf.oracle.spec.momentum.lars import (
    USUAL,
    LARSSettings,
    exact_ratios,
    lars_ratio,
    lars_settings,
    normal,
)
from refgf.oracle.spec.momentum.lars_step import DECAYED as FEW_DECAYED
from refgf.oracle.spec.momentum.lars_step import SIZES as FEW
from refgf.oracle.spec.momentum.lars_step import (
    any_settings,
    lars_step,
    norms_in_any_order,
    searched,
)
from refgf.oracle.spec.momentum.sgd import decayed_gradient
from refgf.oracle.spec.precision.master import SCALED_AXES, scaled_steps, working_copy
from refgf.oracle.spec.precision.scale import all_finite, next_scale, scaled_allreduce
from refgf.oracle.spec.ring import Arrays, slice_bounds
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- M7: micro-batches ----


def accumulated(gs: Arrays) -> np.ndarray:
    """M7: gradients of the micro-batches of a batch are added from the first to the last; each loss
    is divided by the global batch, so nothing else is. With D1 one rank with K micro-batches has
    the bits of K ranks.

    Source: chosen.

    Additions are in the type of the arrays. K arrays (n,) -> (n,)
    """
    total = gs[0]
    for g in gs[1:]:
        total = total + g
    return total


def run_accumulated(module: Any, case: Case) -> Outputs:
    return {"out.x": module.accumulated(list(case["in.x"]))}


M7 = Statement("M7", accumulated)
ACCUMULATED = JudgedFunction(accumulated, "M7", {"x": ("element",)}, "x", run_accumulated)
ACCUMULATED.fresh(lambda d: {"x": inputs("sensitive", d.p, d.n, "float32", d.rng)})


@ACCUMULATED.golden
def accumulation_cases() -> Cases:
    for parts in (1, 4):
        x = inputs("sensitive", parts, 13, "float32", random_source(f"accumulated-{parts}"))
        name, why = f"accumulated-{parts}", "from the first part to the last"
        case = ACCUMULATED.case(name, why, family="sensitive", x=x)
        other = parts == 1 or not same_bits(accumulated(list(x[::-1])), case["out.x"])
        yield case.shows(other, "another order differs")


ACCUMULATED_11 = Exercise("11.1", accumulated)
ACCUMULATED_11.part(
    "several micro-batches",
    2,
    lambda random: [
        *[(list(tenths(random, 3, 4)),) for _ in range(3)],
        ([normal(random, 50) for _ in range(8)],),
    ],
)
ACCUMULATED_11.part(
    "one micro-batch, no elements",
    1,
    lambda random: [([tenths(random, 4)],), ([tenths(random, 0)] * 3,)],
)
ACCUMULATED_11.given("you add from the last to the first: the bits differ", gs=lambda gs: gs[::-1])


@M7.mistake(
    "the mean over micro-batches: divided twice, because each loss is divided by the global batch"
)
@ACCUMULATED_11.mistake("you take the mean, but each loss is divided by the whole batch already")
def mean_of_micro_batches(gs):
    return accumulated(gs) / np.float32(len(gs))


@M7.mistake("only the last micro-batch counts: backward overwrites")
def last_micro_batch(gs):
    return gs[-1].copy()


@M7.mistake("added in float64")
@ACCUMULATED_11.mistake("you add in float64: the bits differ")
def added_wide(gs):
    return np.sum(np.asarray(gs, np.float64), axis=0).astype(gs[0].dtype)


# ---- M8: norms in parallel ----


def lars_partial_squares(
    w: np.ndarray,
    g: np.ndarray,
    sizes: list[int],
    rank: int,
    p: int,
    by: str = "slices",
    decayed: np.ndarray | None = None,
) -> np.ndarray:
    """M8: LARS's norms in parallel: each rank squares and adds, in float64, the rank-th slice (R1)
    of the elements of all tensors with a ratio, one tensor after another, or, by layers, those of
    the rank-th slice of these L tensors; one allreduce of 2L float64 adds the shares, and M4 takes
    the roots.

    Source: parallel tensor operator: the abstract of Shi et al. 2021 names it; that it divides
    layers and gathers norms: unverified; slices of elements, and squares: chosen.

    by: "slices" or "layers". L: tensors with a ratio (decayed True). -> float64 (2, L): of w, of g
    """
    starts = np.cumsum([0, *sizes])
    with_ratio = [i for i in range(len(sizes)) if decayed is None or decayed[i]]
    elements = [
        (row, j) for row, i in enumerate(with_ratio) for j in range(starts[i], starts[i + 1])
    ]
    if by == "slices":
        start, stop = slice_bounds(len(elements), p)[rank]
        own = elements[start:stop]
    else:
        start, stop = slice_bounds(len(with_ratio), p)[rank]
        own = [(row, j) for row, j in elements if start <= row < stop]
    squares = np.zeros((2, len(with_ratio)))
    for of, x in enumerate((w, g)):
        for row in range(len(with_ratio)):
            squares[of, row] = math.fsum(float(x[j]) ** 2 for owner, j in own if owner == row)
    return squares


def run_squares(module: Any, case: Case) -> Outputs:
    """-> (p, 2, L), the shares of all ranks"""
    p, by, decayed = case.arguments["p"], case.arguments["by"], flags(case["in.decayed"])
    arrays = case["in.w"], case["in.g"], case["in.sizes"].tolist()
    shares = [module.lars_partial_squares(*arrays, r, p, by, decayed) for r in range(p)]
    return {"out.squares": np.stack(shares)}


M8 = Statement("M8", lars_partial_squares)
SQUARES_AXES = {"squares": ("rank", "w, g", "tensor")}
SQUARES = JudgedFunction(lars_partial_squares, "M8", SQUARES_AXES, "w g sizes decayed", run_squares)
TENSORS: Given = {  # 37 elements, 31 of tensors with a ratio
    "sizes": [2, 7, 0, 1, 23, 4],
    "decayed": np.array([0, 1, 1, 1, 1, 0], np.uint8),
}


@SQUARES.fresh
def any_squares(d: Draw) -> Given:
    sizes = some_sizes(d.rng, d.n)
    decayed = d.rng.integers(0, 2, len(sizes)).astype(np.uint8)
    w, g = (wide_integers(d.rng, d.n) for _ in "wg")
    arguments = {"p": d.p, "by": pick(d.rng, "slices", "layers")}
    return {**arguments, "w": w, "g": g, "sizes": sizes, "decayed": decayed}


@SQUARES.golden
def square_cases() -> Cases:
    rng = random_source("lars-squares")
    arrays = {name: (rng.integers(-64, 65, 37) / 16).astype(np.float32) for name in "wg"}
    why = "{} ranks; tensors of awkward sizes, an empty one, two without a ratio; squares and sums "
    why += "are exact"
    for by in ("slices", "layers"):
        for p in (1, 3, 7):
            given: Given = {"p": p, "by": by, **arrays, **TENSORS}
            case = SQUARES.case(f"lars-squares-{by}-p{p}", why.format(p), **given)
            whole = lars_partial_squares(
                arrays["w"], arrays["g"], TENSORS["sizes"], 0, 1, decayed=TENSORS["decayed"]
            )
            same = np.array_equal(case["out.squares"].sum(axis=0), whole)
            yield case.shows(same, "the ranks' shares add up to the whole")
    arrays = {name: rng.integers(-5000, 5001, 37).astype(np.float32) for name in "wg"}
    why = "3 ranks; squares beyond float32, whose sums are exact in float64"
    for by in ("slices", "layers"):
        given = {"p": 3, "by": by, **arrays, **TENSORS}
        case = SQUARES.case(f"lars-squares-{by}-beyond-float32", why, **given)
        narrow = case["out.squares"].astype(np.float32)
        yield case.shows(not np.array_equal(narrow, case["out.squares"]), "float32 rounds")


@M8.mistake("norms in place of their squares: they do not add up")
def norms_not_squares(w, g, sizes, rank, p, by="slices", decayed=None):
    return np.sqrt(lars_partial_squares(w, g, sizes, rank, p, by, decayed))


@M8.mistake("the remainder of n / p elements (L / p tensors) is lost")
def rest_is_lost(w, g, sizes, rank, p, by="slices", decayed=None):
    starts = np.cumsum([0, *sizes])
    adapted = [i for i in range(len(sizes)) if decayed is None or decayed[i]]
    squares, at = np.zeros((2, len(adapted))), 0
    each = (sum(sizes[i] for i in adapted) if by == "slices" else len(adapted)) // p
    for row, i in enumerate(adapted):
        for j in range(starts[i], starts[i + 1]):
            number = at if by == "slices" else row
            if each * rank <= number < each * (rank + 1):
                squares[:, row] += float(w[j]) ** 2, float(g[j]) ** 2
            at += 1
    return squares


@M8.mistake("squares are summed in float32")
def squares_in_float32(w, g, sizes, rank, p, by="slices", decayed=None):
    with np.errstate(over="ignore", under="ignore"):
        return np.float64(np.float32(lars_partial_squares(w, g, sizes, rank, p, by, decayed)))


@M8.mistake("layers are assigned round robin")
def round_robin(w, g, sizes, rank, p, by="slices", decayed=None):
    if by == "slices":
        return lars_partial_squares(w, g, sizes, rank, p, by, decayed)
    squares = lars_partial_squares(w, g, sizes, 0, 1, by, decayed)
    squares[:, [row for row in range(squares.shape[1]) if row % p != rank]] = 0
    return squares


# ---- M9: under loss scaling ----


def scaled_lars_run(w: np.ndarray, gs: list[Arrays], s: LARSSettings) -> list[dict[str, Any]]:
    """M9: under 16-bit training LARS is that of the float32 master weights and of the float32 sums,
    divided by the scale.

    Source: Jia et al. 2018 by the review: LARS and the update in float32; sums divided by the scale
    first: chosen.

    Steps with dynamic loss scaling: P4, P5, then M5 on the master weights, then P6.
    gs[t][rank]: unscaled gradients of step t.
    -> per step {"w", "working", "scale", "finite"} after it
    """
    v, scale, good_steps, reports = np.zeros_like(w), s.scale, 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, s.wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = lars_step(w, v, total, s)
        scale, good_steps = next_scale(scale, good_steps, finite, s.interval)
        working = working_copy(w, s.wire)
        reports.append({"w": w, "working": working, "scale": scale, "finite": finite})
    return reports


def run_scaled(module: Any, case: Case) -> Outputs:
    w, gs, settings = case["in.w"].copy(), steps_of(case["in.g"]), lars_settings(case)
    return scaled_steps(module.scaled_lars_run(w, gs, settings))


M9 = Statement("M9", scaled_lars_run)
SCALED = JudgedFunction(scaled_lars_run, "M9", SCALED_AXES, "w g sizes decayed", run_scaled)
SCALED.bounds(norms_in_any_order)


@SCALED.fresh
def any_scaled(d: Draw) -> Given:
    sizes, settings = any_settings(d)
    settings |= {"scale": 1024.0, "interval": 2, "wire": "float16"}
    decayed = d.rng.integers(0, 2, len(sizes)).astype(np.uint8)
    g = d.normal(3, d.p, d.n) * np.float32(2.0**-6)
    return {**settings, "w": d.normal(d.n), "g": g, "sizes": sizes, "decayed": decayed}


@SCALED.golden
def scaled_cases() -> Cases:
    """Weights whose squares overflow in float16, gradients whose squares are zero; one NaN."""
    rng = random_source("scaled-lars")
    w = (rng.standard_normal(37) * 300).astype(np.float32)
    g = (rng.standard_normal((6, 3, 37)) * 2.0**-12).astype(np.float32)
    g[3, 2, 9] = np.nan
    why = (
        "float16 holds neither the squares of these weights nor those of the gradients; step 3 has "
    )
    why += "a NaN on one rank"
    settings: Given = {"rate": 0.5, "momentum": 0.5, "trust": 0.25, "scale": 1024.0, "interval": 3}
    settings |= {"decay": 2.0**-12, "wire": "float16"}
    case = SCALED.case("scaled-lars-run", why, **settings, w=w, g=g, **TENSORS)
    case.shows(case["out.finite"].tolist() == [1, 1, 1, 0, 1, 1], "step 3 is skipped")
    case.shows(np.isinf((w.astype(np.float16) ** 2).sum()), "the squares overflow in float16")
    sizes, decayed = TENSORS.values()
    s = LARSSettings(sizes, 0.5, 0.5, 0.25, 2.0**-12, decayed)
    unrounded = lars_step(w, np.zeros_like(w), g[0].sum(axis=0), s)[0]
    case.shows(not same_bits(unrounded, case["out.w"][0]), "the wire rounds")
    case.tensors["bound.w"] = relative(case["out.w"], 2.0**-22)
    yield case
    why, settings = "norms in float64: the rates have these bits", settings | {"decay": 2.0**-20}
    case = SCALED.case("scaled-lars-bits", why, **settings, w=w, g=g, **TENSORS)
    yield case.shows(exact_ratios(case), "no order of summing the norms moves a rate")
    why = "the usual rate, momentum, trust and decay; rates have these bits"

    def run(rng: np.random.Generator) -> Case:
        w = (rng.standard_normal(17) * 3).astype(np.float32)
        g = (rng.standard_normal((4, 3, 17)) / 64).astype(np.float32)
        settings: Given = {**USUAL, "scale": 1024.0, "interval": 3, "wire": "float16"}
        arrays: Given = {"w": w, "g": g, "sizes": FEW, "decayed": FEW_DECAYED}
        return SCALED.case("scaled-lars-usual", why, **settings, **arrays)

    yield searched("scaled-lars-usual", run)


def run_with(
    step: Callable[..., Any], w: np.ndarray, gs: list[Arrays], s: LARSSettings
) -> list[dict[str, Any]]:
    """M9 with another update: step(w, v, total, scale) -> (w, v)."""
    v, scale, good_steps, reports = np.zeros_like(w), s.scale, 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, s.wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = step(w, v, total, scale)
        scale, good_steps = next_scale(scale, good_steps, finite, s.interval)
        reports.append({"w": w, "scale": scale, "finite": finite})
    return reports


def with_ratio(ratio: Callable[..., Any]) -> Callable[..., Any]:
    """M5 with another function for the ratio."""

    def step(w, v, g, s):
        w, v, stop = w.copy(), v.copy(), 0
        for i, size in enumerate(s.sizes):
            tensor, stop = slice(stop, stop + size), stop + size
            adapted = s.decayed is None or s.decayed[i]
            factor = ratio(w[tensor], g[tensor], s.trust, s.decay) if adapted else 1.0
            decayed = decayed_gradient(w[tensor], g[tensor], s.decay if adapted else 0.0)
            change = w.dtype.type(s.rate * factor) * decayed
            v[tensor] = w.dtype.type(s.momentum) * v[tensor] + change
            w[tensor] = w[tensor] - v[tensor]
        return w, v

    return step


def ratio_of_working_copy(w: np.ndarray, g: np.ndarray, trust: float, decay: float) -> float:
    return lars_ratio(working_copy(w), g, trust, decay)


def ratio_in_float16(w: np.ndarray, g: np.ndarray, trust: float, decay: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        norm_w, norm_g = (math.sqrt(float((x.astype(np.float16) ** 2).sum())) for x in (w, g))
    denominator = norm_g + decay * norm_w
    usable = 0 < norm_w < math.inf and denominator > 0
    return trust * norm_w / denominator if usable else 1.0


M9.mistake("the ratio is that of the working copy", lars_step)(with_ratio(ratio_of_working_copy))
M9.mistake("squares in float16: norms are infinite or zero, and the ratio is 1", lars_step)(
    with_ratio(ratio_in_float16)
)


@M9.mistake("the ratio is that of gradients not yet divided by the scale")
def ratio_of_scaled(w, gs, s):
    def step(w, v, total, scale):
        ratio = with_ratio(
            lambda w, g, trust, decay: lars_ratio(w, g * np.float32(scale), trust, decay)
        )
        return ratio(w, v, total, s)

    return run_with(step, w, gs, s)


@M9.mistake("the working copy is updated, not the master")
def updates_the_copy(w, gs, s):
    return run_with(
        lambda w, v, total, scale: lars_step(working_copy(w, s.wire), v, total, s), w, gs, s
    )
