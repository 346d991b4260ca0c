"""M4: the ratio of LARS, settings of LARS."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import flags, same_bits, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source, wide_integers
from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise
from refgf.oracle.spec.statement import FUNCTIONS, Cases, JudgedFunction, Statement
from refgf.oracle.spec.variants import variant


@dataclass(frozen=True)
class LARSSettings:
    """sizes: elements of each tensor; decayed: one bool per tensor, None for all True.

    The last three fields are the loss scale's (P4, P6) and count in scaled_lars_run only.
    """

    sizes: tuple[int, ...]
    rate: float
    momentum: float
    trust: float
    decay: float = 0.0
    decayed: tuple[bool, ...] | None = None
    scale: float = 1.0
    interval: int = 2000
    wire: str | None = "float16"


def lars_settings(case: Case) -> LARSSettings:
    """The settings of a case: what it leaves out has its default."""
    names = [name for name in LARSSettings.__dataclass_fields__ if name in case.arguments]
    sizes, stored = tuple(case["in.sizes"].tolist()), case.tensors.get("in.decayed")
    decayed = None if stored is None else tuple(flags(stored).tolist())
    return LARSSettings(sizes, decayed=decayed, **select(case, *names))


# ---- M4: the ratio ----


def lars_ratio(w: np.ndarray, g: np.ndarray, trust: float, decay: float = 0.0) -> float:
    """M4: LARS ratio = trust norm(w) / (norm(g) + decay norm(w)), Euclidean, in float64, with trust
    and decay as given; 1 where norm(w) or the denominator is 0.

    Source: You et al. 2017 (their text: Algorithm 1); where it is 1: chosen.
    """
    norm_w, norm_g = (math.sqrt(math.fsum(float(e) * float(e) for e in x)) for x in (w, g))
    denominator = norm_g + decay * norm_w
    return trust * norm_w / denominator if norm_w > 0 and denominator > 0 else 1.0


M4 = Statement("M4", lars_ratio)
M4.given("the denominator lacks the decay", decay=lambda decay: 0.0)
RATIO = JudgedFunction(lars_ratio, "M4", {"ratio": ()}, "w g")
RATIO.bounds(lambda case: {"ratio": 4 * (len(case["in.w"]) + 4) * 2.0**-53 * case["out.ratio"]})
USUAL: Given = {"rate": 0.1, "momentum": 0.9, "trust": 0.001, "decay": 0.0005}


@RATIO.fresh
def any_ratio(d: Draw) -> Given:
    settings = {"trust": pick(d.rng, 2.0 ** d.integer(-8, 8), 0.001, 0.3), "decay": 0.01}
    return {**settings, **{name: wide_integers(d.rng, 1 + d.n % 40) for name in "wg"}}


@RATIO.golden
def ratio_cases() -> Cases:
    why = "norms are exact; 1 where the weights are zero"
    for name, weights, gradients in (
        ("pythagorean", [3, 4], [6, 8]),
        ("no-weights", [0, 0], [1, 1]),
        ("nothing", [0, 0], [0, 0]),
        ("above-one", [30, 40], [0.75, 1]),
        ("beyond-float32", [4097, 1, 2], [3, 8191, 1]),
        ("squares-overflow-float32", [3 * 2.0**70, 2.0**72], [3, 4]),
        ("squares-vanish-in-float32", [3 * 2.0**-80, 2.0**-78], [2.0**-79, 0]),
    ):
        arrays: Given = {k: np.array(v, np.float32) for k, v in (("w", weights), ("g", gradients))}
        yield nearly(RATIO.case(f"lars-ratio-{name}", why, trust=0.5, decay=0.25, **arrays))
    rng = random_source("lars-ratio-usual")
    arrays = {name: rng.integers(-5000, 5001, 23).astype(np.float32) for name in "wg"}
    why = "trust and decay as given, not rounded to float32"
    settings: Given = {"trust": 0.001, "decay": 0.0005}
    case = nearly(RATIO.case("lars-ratio-usual", why, **settings, **arrays))
    rounded = ratio_of_rounded(**arrays, **settings)
    yield case.shows(
        abs(rounded - float(case["out.ratio"])) > float(case["bound.ratio"]), "float32 shows"
    )
    why = "without gradient and decay the denominator is 0"
    arrays = {"w": np.array([3, 4], np.float32), "g": np.zeros(2, np.float32)}
    case = RATIO.case("lars-ratio-no-denominator", why, trust=0.3, decay=0.0, **arrays)
    yield nearly(case.shows(float(case["out.ratio"]) == 1, "the ratio is 1"))


def nearly(case: Case) -> Case:
    """Norms may be rounded a few times."""
    case.tensors["bound.ratio"] = 8 * 2.0**-53 * case["out.ratio"]
    return case


@M4.mistake("ratio 0 for weights of zero: they never move")
def ratio_zero(w, g, trust, decay=0.0):
    return lars_ratio(w, g, trust, decay) if np.any(w) else 0.0


@M4.mistake("the ratio is clipped at 1")
def ratio_clipped(w, g, trust, decay=0.0):
    return min(1.0, lars_ratio(w, g, trust, decay))


@M4.mistake("norms are summed in float32")
def norms_in_float32(w, g, trust, decay=0.0):
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        norm_w, norm_g = (float(np.sqrt(np.square(np.float32(x)).sum())) for x in (w, g))
        denominator = norm_g + decay * norm_w
        return trust * norm_w / denominator if norm_w > 0 and denominator > 0 else 1.0


@M4.mistake("infinite where the denominator is 0")
def infinite_ratio(w, g, trust, decay=0.0):
    nothing = np.any(w) and not np.any(g) and decay == 0
    return float("inf") if nothing else lars_ratio(w, g, trust, decay)


def float32(value: float) -> float:
    return float(np.float32(value))


@M4.mistake("trust and decay are rounded to float32")
def ratio_of_rounded(w, g, trust, decay=0.0):
    return lars_ratio(w, g, float32(trust), float32(decay))


def exact_ratios(case: Case) -> bool:
    """Are the results the same with ratios 2^-45 of themselves off? Rates are float32."""
    results = []
    for share in (1 - 2.0**-45, 1 + 2.0**-45):

        def moved(*arguments: Any, share: float = share) -> float:
            return lars_ratio(*arguments) * share

        results.append(FUNCTIONS[case.function].run(variant(lars_ratio=moved), case))
    return all(same_bits(result["out.w"], case["out.w"]) for result in results)


# ---- exercise lars_ratio ----


def normal(random: np.random.Generator, n: int, factor: float = 1.0) -> np.ndarray:
    """Random float32 numbers. -> (n,)"""
    return (factor * random.standard_normal(n)).astype(np.float32)


def ratio(
    w: np.ndarray,
    g: np.ndarray,
    trust: float,
    decay: float,
    norm: Callable[..., Any] | None = None,
    zero: float = 1.0,
) -> float:
    """M4; the keywords make its typical mistakes."""
    norm = norm or (lambda x: np.linalg.norm(x.astype(np.float64)))
    w_norm, g_norm = float(norm(w)), float(norm(g))
    below = g_norm + decay * w_norm
    return trust * w_norm / below if w_norm > 0 and below > 0 else zero


def layers(decays: tuple[Any, ...], scale: float = 1.0) -> Drawn:
    def cases(random: np.random.Generator) -> list[Arguments]:
        return [
            (
                normal(random, n, scale * factor),
                normal(random, n, scale),
                float(random.random() / 10 + 0.001),
                decay,
            )
            for (n, factor), decay in zip(((3, 1.0), (300, 20.0), (7, 0.1)), decays)
        ]

    return cases


def zeros(random: np.random.Generator) -> list[Arguments]:
    w, nothing = np.array([3, -4], np.float32), np.zeros(2, np.float32)
    w *= 2.0 ** int(random.integers(-3, 4))
    trust = float(random.random() / 10 + 0.001)
    return [(nothing, w, 0.01, 0.5), (w, nothing, trust, 0.5), (w, nothing, 0.01, 0.0)]


RATIO_11 = Exercise("11.3", lars_ratio, relative=1e-12)
RATIO_11.part("ordinary layers", 2, layers((5e-4, 0.01, 0.5)))
RATIO_11.part("decay 0", 1, layers((0.0, 0.0, 0.0)))
RATIO_11.part(
    "squares outside the range of float32",
    1,
    lambda random: [
        *layers((0.01,), 1e25)(random),
        *layers((0.01,), 1e-30)(random),
    ],
)
RATIO_11.part("a norm of 0", 1, zeros)


@RATIO_11.mistake(
    "your norms are float32, where large squares are infinite and small ones 0: "
    "x.astype(np.float64) first"
)
def float32_norms(w, g, trust, decay):
    return ratio(w, g, trust, decay, norm=np.linalg.norm)


@RATIO_11.mistake(
    "you compute in float32: np.linalg.norm(w) of a float32 array is a float32 number"
)
def float32_throughout(w, g, trust, decay):
    w_norm, g_norm = np.linalg.norm(w), np.linalg.norm(g)
    below = g_norm + decay * w_norm
    return trust * w_norm / below if w_norm > 0 and below > 0 else 1.0


@RATIO_11.mistake("you forget the root: a norm is the root of the sum of squares")
def squared_norms(w, g, trust, decay):
    return ratio(w, g, trust, decay, norm=lambda x: np.sum(x.astype(np.float64) ** 2))


@RATIO_11.mistake("you add magnitudes; wanted Euclidean norms")
def sums_of_magnitudes(w, g, trust, decay):
    return ratio(w, g, trust, decay, norm=lambda x: np.abs(x.astype(np.float64)).sum())


@RATIO_11.mistake(
    "decay |w| is missing in the denominator: without it a small gradient makes the ratio as "
    "large as you like"
)
def decay_missing_in_the_denominator(w, g, trust, decay):
    return ratio(w, g, trust, 0.0)


@RATIO_11.mistake(
    "you take the norm of g + decay w; wanted the norm of g, plus decay times that of w"
)
def decay_of_elements(w, g, trust, decay):
    w, g = w.astype(np.float64), g.astype(np.float64)
    return ratio(w, g + decay * w, trust, 0.0)


@RATIO_11.mistake("your ratio is upside down: a layer with large weights may move far")
def upside_down(w, g, trust, decay):
    return trust**2 / ratio(w, g, trust, decay) if w.any() and (g.any() or decay) else 1.0


@RATIO_11.mistake("the factor trust is missing")
def without_trust(w, g, trust, decay):
    return ratio(w, g, 1.0, decay)


@RATIO_11.mistake("weights that are all 0 would stay 0 for ever: the ratio is then 1")
def zero_weights_stay(w, g, trust, decay):
    return ratio(w, g, trust, decay, zero=0.0)
