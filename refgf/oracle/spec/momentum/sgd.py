"""M1, M2: momentum SGD and weight decay."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, flags, same_bits, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- M1: a step ----


def momentum_step(
    w: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    rate: float,
    momentum: float,
    decay: float = 0.0,
    decayed: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """M1: v <- m v + (g + decay w); w <- w - rate v; each multiplication and addition is rounded by
    itself.

    Source: usual form.
    """
    m, rate = w.dtype.type(momentum), w.dtype.type(rate)
    v = m * v + decayed_gradient(w, g, decay, decayed)
    return w - rate * v, v


def run_momentum(module: Any, case: Case) -> Outputs:
    settings, decayed = select(case, "rate", "momentum", "decay"), case.tensors.get("in.decayed")
    settings["decayed"] = None if decayed is None else flags(decayed)
    return optimizer_steps(lambda w, v, g: module.momentum_step(w, v, g, **settings), case)


def optimizer_steps(step: Callable[..., Any], case: Case) -> Outputs:
    """Steps from w and v = 0: in.g (T, n) -> w and v after each step."""
    w, ws, vs = case["in.w"].copy(), [], []
    v = np.zeros_like(w)
    for g in case["in.g"]:
        w, v = step(w, v, g)
        ws.append(w.copy())
        vs.append(v.copy())
    return {"out.w": np.stack(ws), "out.v": np.stack(vs)}


M1 = Statement("M1", momentum_step)
STEP_AXES = {"w": ("step", "element"), "v": ("step", "element")}
STEP = JudgedFunction(momentum_step, "M1 M2", STEP_AXES, "w g decayed", run_momentum)


@STEP.fresh
def any_steps(d: Draw) -> Given:
    n = d.n + 1
    settings = {"rate": 0.1, "momentum": 0.9, "decay": pick(d.rng, 0.0, 0.01)}
    decayed = d.rng.integers(0, 2, n).astype(np.uint8)
    return {**settings, "w": d.normal(n), "g": d.normal(3, n), "decayed": decayed}


@STEP.golden
def step_cases() -> Cases:
    rng = random_source("momentum")
    w, g = (rng.standard_normal(shape).astype(np.float32) for shape in (19, (5, 19)))
    g[:, 3] = -0.0
    settings: Given = {"rate": 0.1, "momentum": 0.9, "decay": 0.0}
    for dtype in ("float32", "float64"):
        why = "each multiplication and addition rounded by itself"
        arrays: Given = {"w": w.astype(dtype), "g": g.astype(dtype)}
        case = STEP.case(f"momentum-{dtype}", why, "M1", **settings, **arrays)
        once = dtype == "float32" and same_bits(case["out.w"], fused_steps(w, g, 0.1, 0.9))
        yield case.shows(not once, "fused differs")
    why = "decay on some elements only; a gradient of -0 keeps its sign where there is none"
    decayed, settings = (np.arange(19) % 3 != 0).astype(np.uint8), settings | {"decay": 0.01}
    yield STEP.case("momentum-decay", why, **settings, w=w, g=g, decayed=decayed)
    g = np.array([SPECIAL, SPECIAL[::-1]], np.float32)
    w, why = (
        np.array(SPECIAL[3:] + SPECIAL[:3], np.float32),
        "special numbers, the denormal ones too",
    )
    for decay in (0.0, 0.0005):
        settings, name = {"rate": 0.3, "momentum": 0.7, "decay": decay}, f"momentum-special-{decay}"
        arrays = {"w": w, "g": g, "decayed": (np.arange(len(w)) % 2).astype(np.uint8)}
        yield STEP.case(name, why, family="special", **settings, **arrays)


def fused_steps(w: np.ndarray, g: np.ndarray, rate: float, momentum: float) -> np.ndarray:
    """M1 with each multiply-add rounded once: in float64 products of float32 are exact."""
    v, ws = np.zeros_like(w), []
    for step in g:
        w, v = fused(w, v, step, rate, momentum)
        ws.append(w)
    return np.array(ws)


@M1.mistake("fused multiply-add: one rounding for m v + g, one for w - rate v")
def fused(w, v, g, rate, momentum, decay=0.0, decayed=None):
    wide, m, rate = np.float64, w.dtype.type(momentum), w.dtype.type(rate)
    g = decayed_gradient(w, g, decay, decayed)
    v = (wide(m) * v.astype(wide) + g).astype(w.dtype)
    return (w.astype(wide) - wide(rate) * v.astype(wide)).astype(w.dtype), v


@M1.mistake("the rate inside the velocity")
def rate_inside(w, v, g, rate, momentum, decay=0.0, decayed=None):
    v = w.dtype.type(momentum) * v + w.dtype.type(rate) * decayed_gradient(w, g, decay, decayed)
    return w - v, v


@M1.mistake("Nesterov momentum")
def nesterov(w, v, g, rate, momentum, decay=0.0, decayed=None):
    m, g = w.dtype.type(momentum), decayed_gradient(w, g, decay, decayed)
    v = m * v + g
    return w - w.dtype.type(rate) * (g + m * v), v


@M1.mistake("the weights are updated with the old velocity")
def old_velocity(w, v, g, rate, momentum, decay=0.0, decayed=None):
    return w - w.dtype.type(rate) * v, momentum_step(w, v, g, rate, momentum, decay, decayed)[1]


@M1.mistake("the rate times v is subtracted in float64")
def update_in_float64(w, v, g, rate, momentum, decay=0.0, decayed=None):
    _, v = momentum_step(w, v, g, rate, momentum, decay, decayed)
    return (w - np.float64(rate) * v).astype(w.dtype), v


# ---- M2: decay ----


def decayed_gradient(
    w: np.ndarray, g: np.ndarray, decay: float, decayed: np.ndarray | None = None
) -> np.ndarray:
    """M2: decay is not applied to biases and normalisation; there, and if decay is 0, g keeps its
    bits.

    Source: Jia et al. 2018 by the review; that g keeps its bits: chosen.

    decayed: bool (n,), None for everywhere. Adding 0 w would turn -0 into +0.
    """
    if decay == 0:
        return g
    with_decay = g + w.dtype.type(decay) * w
    return with_decay if decayed is None else np.where(decayed, with_decay, g)


def run_decay(module: Any, case: Case) -> Outputs:
    decay, decayed = case.arguments["decay"], flags(case["in.decayed"])
    return {"out.g": module.decayed_gradient(case["in.w"], case["in.g"], decay, decayed)}


M2 = Statement("M2", decayed_gradient)
M2.given("decay everywhere, biases and normalisation included", decayed=lambda decayed: None)
DECAY = JudgedFunction(decayed_gradient, "M2", {"g": ("element",)}, "w g decayed", run_decay)
TINY = 2.0**-149
SPECIAL = [-0.0, 0.0, 1.5, -3.0, np.inf, -np.inf, np.nan, TINY, -3 * TINY, 2.0**-126, 3e38]


@DECAY.fresh
def any_decay(d: Draw) -> Given:
    """Some numbers are special: an infinity of w must not reach g where nothing decays."""
    special = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 2.0**-149, -(2.0**-130)], np.float32)
    w, g = (np.where(d.rng.random(40) < 0.5, d.rng.choice(special, 40), d.normal(40)) for _ in "wg")
    decayed = d.rng.integers(0, 2, 40).astype(np.uint8)
    return {"decay": pick(d.rng, 0.0, 0.01, 0.3), "w": w, "g": g, "decayed": decayed}


@DECAY.golden
def decay_cases() -> Cases:
    arrays: Given = {
        "w": np.array([2.0, -3.0, 0.25, -1.0], np.float32),
        "g": np.array([-0.0, 1.5, -0.0, 0.0], np.float32),
    }
    arrays["decayed"] = np.array([0, 1, 1, 0], np.uint8)
    case = DECAY.case("decayed-gradient", "-0 stays -0 without decay", decay=0.5, **arrays)
    yield case.shows(np.signbit(case["out.g"][0]), "element 0 is -0")
    w, g = (np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL)))
    w, g, every = w.astype(np.float32), g.astype(np.float32), np.ones(len(w), np.uint8)
    for decay, why in (
        (
            0.0,
            "special numbers of w and g: without decay g keeps its bits, beside an infinite w too",
        ),
        (0.3, "special numbers of w and g, denormal products kept"),
    ):
        given: Given = {"decay": decay, "w": w, "g": g, "decayed": every}
        case = DECAY.case(f"decayed-gradient-special-{decay}", why, family="special", **given)
        yield case.shows(same_bits(case["out.g"], g) == (decay == 0), "g keeps its bits")


@M2.mistake("decay forgotten")
def decay_forgotten(w, g, decay, decayed=None):
    return g


@M2.mistake("0 w is added without decay: -0 becomes +0")
def decay_of_zero(w, g, decay, decayed=None):
    factors = decay if decayed is None else np.where(decayed, decay, 0.0)
    return g + np.asarray(factors, w.dtype) * w


@M2.mistake("0 w is added where the decay is 0: -0 becomes +0, infinity NaN")
def zero_times_w(w, g, decay, decayed=None):
    with_decay = g + w.dtype.type(decay) * w
    return with_decay if decayed is None else np.where(decayed, with_decay, g)


@M2.mistake("denormal products of decay and w are flushed to zero")
def denormal_decay(w, g, decay, decayed=None):
    product = w.dtype.type(decay) * w
    product = np.where(np.abs(product) < np.finfo(w.dtype).tiny, w.dtype.type(0), product)
    return (
        decayed_gradient(w, g, decay, decayed)
        if decay == 0
        else np.where(True if decayed is None else decayed, g + product, g)
    )
