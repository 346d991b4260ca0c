"""M5: a step of LARS."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, same_bits
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source, relative, some_sizes
from refgf.oracle.spec.exercise import Exercise, tenths
from refgf.oracle.spec.momentum.lars import (
    USUAL,
    LARSSettings,
    exact_ratios,
    lars_ratio,
    lars_settings,
)
from refgf.oracle.spec.momentum.sgd import (
    STEP_AXES,
    decayed_gradient,
    momentum_step,
    optimizer_steps,
    rate_inside,
)
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement, differs_with


def lars_step(
    w: np.ndarray, v: np.ndarray, g: np.ndarray, s: LARSSettings
) -> tuple[np.ndarray, np.ndarray]:
    """M5: per tensor, v <- m v + (rate ratio)(g + decay w); w <- w - v; rate times ratio is formed
    in float64, of the rate as given, and rounded once; tensors without decay have ratio 1.

    Source: You et al. 2017 (Algorithm 1); one rounding of the rate: chosen; the last is usual
    practice.

    Tensors without decay are biases and normalisation.
    """
    w, v, stop = w.copy(), v.copy(), 0
    for i, size in enumerate(s.sizes):
        tensor, stop = slice(stop, stop + size), stop + size
        adapted = s.decayed is None or s.decayed[i]
        decay = s.decay if adapted else 0.0
        ratio = lars_ratio(w[tensor], g[tensor], s.trust, s.decay) if adapted else 1.0
        rate = w.dtype.type(s.rate * ratio)
        change = rate * decayed_gradient(w[tensor], g[tensor], decay)
        v[tensor] = w.dtype.type(s.momentum) * v[tensor] + change
        w[tensor] = w[tensor] - v[tensor]
    return w, v


def run_lars(module: Any, case: Case) -> Outputs:
    settings = lars_settings(case)
    return optimizer_steps(lambda w, v, g: module.lars_step(w, v, g, settings), case)


M5 = Statement("M5", lars_step)
LARS = JudgedFunction(lars_step, "M4 M5", STEP_AXES, "w g sizes decayed", run_lars)
SIZES, DECAYED = [4, 9, 3, 1], np.array([1, 1, 1, 0], np.uint8)


@LARS.fresh
def any_lars(d: Draw) -> Given:
    sizes, settings = any_settings(d)
    decayed = d.rng.integers(0, 2, len(sizes)).astype(np.uint8)
    g = d.normal(3, d.n)
    return {**settings, "w": d.normal(d.n), "g": g, "sizes": sizes, "decayed": decayed}


def any_settings(d: Draw) -> tuple[np.ndarray, Given]:
    sizes, rate = some_sizes(d.rng, d.n), pick(d.rng, 0.1, 0.3)
    return sizes, {"rate": rate, "momentum": 0.9, "trust": 0.001, "decay": 0.0005}


@LARS.bounds
def norms_in_any_order(case: Case) -> Given:
    names = (name for name in ("w", "v") if f"out.{name}" in case.tensors)
    arrays = {name: case[f"out.{name}"] for name in names}
    return {name: relative(a, 2.0**-20) for name, a in arrays.items() if a.size}


@LARS.golden
def step_cases() -> Cases:
    rng = random_source("lars")
    w, g = (rng.integers(-4, 5, shape).astype(np.float32) for shape in (17, (4, 17)))
    w[:4], g[:, :4] = [1, 2, 2, 4], [2, 4, 4, 8]  # norms 5 and 10
    w[14:] = 0.0  # a tensor of zeros
    why = "one tensor without decay has ratio 1, and so has one of zeros"
    for decay in (0.0, 0.125):
        settings: Given = {"rate": 0.5, "momentum": 0.5, "trust": 0.25, "decay": decay}
        tensors: Given = {"sizes": [4, 1, 9, 3], "decayed": np.array([1, 0, 1, 1], np.uint8)}
        case = LARS.case(f"lars-decay-{decay}", why, **settings, w=w, g=g, **tensors)
        plain = momentum_step(w, np.zeros_like(w), g[0], 0.5, 0.5)[0]
        case.shows(not same_bits(plain[:4], case["out.w"][0][:4]), "the ratio matters")
        case.tensors.update({f"bound.{k}": relative(case[f"out.{k}"], 2.0**-22) for k in "wv"})
        yield case


@LARS.golden
def exact_cases() -> Cases:
    """Squares that float32 cannot add up, and ratios above 1 and below."""
    rng = random_source("lars-bits")
    w, g = rng.integers(-5000, 5001, 17), rng.integers(-5000, 5001, (4, 17))
    w[4:13] *= 64
    settings: Given = {"rate": 0.5, "momentum": 0.5, "trust": 0.25, "decay": 0.125}
    arrays: Given = {"w": w.astype(np.float32), "g": g.astype(np.float32), "sizes": SIZES}
    why = "ratios above 1 and below, from norms in float64: the rates have these bits"
    case = LARS.case("lars-bits", why, **settings, **arrays, decayed=DECAYED)
    yield case.shows(exact_ratios(case), "no order of summing the norms moves a rate")
    why = "rate times ratio is formed in float64 and rounded once: of rounded ones it differs"
    for rate in (0.1, 0.3):

        def draw(rng: np.random.Generator, rate: float = rate) -> Case:
            w = rng.integers(-5000, 5001, 17).astype(np.float32)
            g = rng.integers(-5000, 5001, (4, 17)).astype(np.float32)
            arrays: Given = {"w": w, "g": g, "sizes": SIZES, "decayed": DECAYED}
            return LARS.case(f"lars-bits-rate-{rate}", why, **USUAL | {"rate": rate}, **arrays)

        yield searched(f"lars-bits-rate-{rate}", draw)


def searched(name: str, draw: Callable[[np.random.Generator], Case]) -> Case:
    """The first case, of one seed after another, with exact ratios that show the roundings."""
    for seed in range(200):
        case = draw(random_source(name, seed))
        if differs_with(case, lars_step=factors_rounded_first) and exact_ratios(case):
            break
    else:
        case.shows(False, "exact ratios that show the roundings")
    return case


def decayed_elements(s: LARSSettings) -> np.ndarray:
    """LARSSettings.decayed per element instead of per tensor."""
    decayed = [True] * len(s.sizes) if s.decayed is None else np.asarray(s.decayed, bool)
    return np.repeat(decayed, s.sizes)


@M5.mistake("the ratio of the whole network for every tensor")
def one_ratio(w, v, g, s):
    change = decayed_gradient(w, g, s.decay, decayed_elements(s))
    rate = w.dtype.type(s.rate * lars_ratio(w, g, s.trust, s.decay))
    v = w.dtype.type(s.momentum) * v + rate * change
    return w - v, v


@M5.mistake("the rate outside the velocity")
def rate_outside(w, v, g, s):
    w, v, stop = w.copy(), v.copy(), 0
    for i, size in enumerate(s.sizes):
        tensor, stop = slice(stop, stop + size), stop + size
        adapted = s.decayed is None or s.decayed[i]
        ratio = lars_ratio(w[tensor], g[tensor], s.trust, s.decay) if adapted else 1.0
        decayed = decayed_gradient(w[tensor], g[tensor], s.decay if adapted else 0.0)
        v[tensor] = w.dtype.type(s.momentum) * v[tensor] + w.dtype.type(ratio) * decayed
        w[tensor] = w[tensor] - w.dtype.type(s.rate) * v[tensor]
    return w, v


@M5.mistake("no ratio: momentum SGD with the rate inside the velocity")
def no_ratio_at_all(w, v, g, s):
    return rate_inside(w, v, g, s.rate, s.momentum, s.decay, decayed_elements(s))


@M5.mistake("rate and ratio are rounded before their product")
def factors_rounded_first(w, v, g, s):
    w, v, stop, t = w.copy(), v.copy(), 0, w.dtype.type
    for i, size in enumerate(s.sizes):
        tensor, stop = slice(stop, stop + size), stop + size
        adapted = s.decayed is None or s.decayed[i]
        ratio = lars_ratio(w[tensor], g[tensor], s.trust, s.decay) if adapted else 1.0
        change = decayed_gradient(w[tensor], g[tensor], s.decay if adapted else 0.0)
        v[tensor] = t(s.momentum) * v[tensor] + t(s.rate) * t(ratio) * change
        w[tensor] = w[tensor] - v[tensor]
    return w, v


# ---- exercise lars_step, of one layer ----


def layer_step(
    w: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    rate: float,
    trust: float,
    momentum: float,
    decay: float,
    adapted: bool,
) -> tuple[np.ndarray, np.ndarray]:
    settings = LARSSettings((w.size,), rate, momentum, trust, decay, (adapted,))
    return lars_step(w, v, g, settings)


def layer_rate(
    w: np.ndarray, g: np.ndarray, rate: float, trust: float, decay: float, adapted: bool
) -> tuple[np.float32, np.float32]:
    """float32 rate * ratio, and the decay, of this layer."""
    own = lars_ratio(w, g, trust, decay) if adapted else 1.0
    return np.float32(rate * own), np.float32(decay if adapted else 0)


def layer(
    random: np.random.Generator,
    moving: bool,
    momentum: float = 0.9,
    decay: float = 0.05,
    adapted: bool = True,
    weights: float = 1.0,
    n: int = 4,
) -> tuple[Any, ...]:
    """w, v, g and settings whose effects are all far above rounding."""
    w, v, g = (tenths(random, n) * np.float32(f) for f in (weights, 0.1 * moving, 1.0))
    rate, trust = (random.integers(5, 15, 2) / (10, 100)).tolist()
    return w, v, g, rate, trust, momentum, decay, adapted


STEP_11 = Exercise("11.4", layer_step, "lars_step", relative=1e-6)
STEP_11.part("the first step: v is 0", 2, lambda random: [layer(random, False) for _ in range(2)])
STEP_11.part("later steps", 2, lambda random: [layer(random, True, m) for m in (0.9, 0.5)])
STEP_11.part(
    "biases and normalisation",
    1,
    lambda random: [layer(random, True, adapted=False) for _ in range(2)],
)
STEP_11.part(
    "weights of 0, momentum 0, decay 0",
    1,
    lambda random: [
        layer(random, True, weights=0.0),
        layer(random, True, momentum=0.0, decay=0.0),
    ],
)


@STEP_11.mistake(
    "you multiply the velocity by the rate at the end; wanted rate * ratio inside the velocity, "
    "where an older gradient keeps the rate of its own step"
)
def rate_outside_the_velocity(w, v, g, rate, trust, momentum, decay, adapted):
    own, decay = layer_rate(w, g, 1.0, trust, decay, adapted)
    v = np.float32(momentum) * v + own * (g + decay * w)
    return w - np.float32(rate) * v, v


@STEP_11.mistake("your step does not use the ratio")
def without_ratio(w, v, g, rate, trust, momentum, decay, adapted):
    v = np.float32(momentum) * v + np.float32(rate) * (g + np.float32(decay * adapted) * w)
    return w - v, v


@STEP_11.mistake("you use decay in the ratio only: decay w is added to the gradient too")
def decay_in_the_ratio_only(w, v, g, rate, trust, momentum, decay, adapted):
    own, _ = layer_rate(w, g, rate, trust, decay, adapted)
    v = np.float32(momentum) * v + own * g
    return w - v, v


@STEP_11.mistake(
    "you subtract the decay from the weights; wanted added to the gradient, so that it is in the "
    "velocity"
)
def decay_outside_the_velocity(w, v, g, rate, trust, momentum, decay, adapted):
    own, decay = layer_rate(w, g, rate, trust, decay, adapted)
    v = np.float32(momentum) * v + own * g
    return w - v - own * decay * w, v


@STEP_11.mistake("you multiply the new term by momentum too; wanted only the old velocity")
def momentum_of_all(w, v, g, rate, trust, momentum, decay, adapted):
    own, decay = layer_rate(w, g, rate, trust, decay, adapted)
    v = np.float32(momentum) * (v + own * (g + decay * w))
    return w - v, v


@STEP_11.mistake("your velocity is an average: the new term has no factor 1 - momentum")
def average(w, v, g, rate, trust, momentum, decay, adapted):
    own, decay = layer_rate(w, g, rate, trust, decay, adapted)
    m = np.float32(momentum)
    v = m * v + (1 - m) * own * (g + decay * w)
    return w - v, v


@STEP_11.mistake("your momentum is missing: the old velocity is part of the new one")
def without_momentum(w, v, g, rate, trust, momentum, decay, adapted):
    return layer_step(w, v, g, rate, trust, 0.0, decay, adapted)


@STEP_11.mistake("you move the weights by the old velocity; wanted the new one")
def velocity_of_before(w, v, g, rate, trust, momentum, decay, adapted):
    return w - v, layer_step(w, v, g, rate, trust, momentum, decay, adapted)[1]


@STEP_11.mistake("biases and normalisation (adapted False) have ratio 1 and no decay")
def biases_adapted_too(w, v, g, rate, trust, momentum, decay, adapted):
    return layer_step(w, v, g, rate, trust, momentum, decay, True)


@STEP_11.mistake("biases and normalisation have no decay")
def biases_decayed(w, v, g, rate, trust, momentum, decay, adapted):
    if adapted:
        return layer_step(w, v, g, rate, trust, momentum, decay, adapted)
    v = np.float32(momentum) * v + np.float32(rate) * (g + np.float32(decay) * w)
    return w - v, v


@STEP_11.mistake("you add the velocity to the weights: a step goes downhill, w - v")
def uphill(w, v, g, rate, trust, momentum, decay, adapted):
    _, v = layer_step(w, v, g, rate, trust, momentum, decay, adapted)
    return w + v, v


@STEP_11.mistake(
    "your arrays are float64: np.float64 times a float32 array is float64, so convert rate * "
    "ratio with float()"
)
def float64_arrays(w, v, g, rate, trust, momentum, decay, adapted):
    w, v, g = (x.astype(np.float64) for x in (w, v, g))
    return layer_step(w, v, g, rate, trust, momentum, decay, adapted)
