"""Cases whose parameters are no powers of two: a factor of 0.5 or 1024 hides where it is rounded.

Each asserts that the form next to the stated one has other bits.
"""

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import lars_ratio, same_bits
from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.seeded.generate.network import U
from refgf.oracle.seeded.mistakes import roundings as mistakes
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.momentum import exact_ratios
from refgf.oracle.spec.statement import differs_with

SIZES, DECAYED = [4, 9, 3, 1], np.array([1, 1, 1, 0], np.uint8)
TINY = 2.0**-149
SPECIAL = [-0.0, 0.0, 1.5, -3.0, np.inf, -np.inf, np.nan, TINY, -3 * TINY, 2.0**-126, 3e38]
USUAL = {"rate": 0.1, "momentum": 0.9, "trust": 0.001, "decay": 0.0005}


def scale_cases() -> Iterator[Case]:
    for scale in (1000.0, 0.3):
        g = random_source(f"scale-{scale}").standard_normal((3, 40)) / 100
        why = f"divided by a scale of {scale:g}: its reciprocal is rounded, and has other bits"
        arguments = {"scale": scale, "wire": "float16"}
        name = f"scaled-allreduce-{scale:g}"
        case = make(name, "scaled_allreduce", "P4", why, arguments, x=g.astype(np.float32))
        other = differs_with(case, scaled_allreduce=mistakes.times_the_reciprocal)
        require(other, case, "the reciprocal has other bits")
        yield case
    finite = np.array([0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1], np.uint8)
    why = "a scale of 1000 is halved down to 1, and not below"
    settings = {"scale": 1000.0, "interval": 2}
    yield make("next-scale-1000", "next_scale", "P6", why, settings, finite=finite)


def decay_cases() -> Iterator[Case]:
    w, g = (np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL)))
    w, g = w.astype(np.float32), g.astype(np.float32)
    for decay in (0.0, 0.3):
        every = np.ones(len(w), np.uint8)
        why = "special numbers of w and g: without decay g keeps its bits, beside an infinite w too"
        why = why if decay == 0 else "special numbers of w and g, denormal products kept"
        arrays = {"w": w, "g": g, "decayed": every}
        name = f"decayed-gradient-special-{decay}"
        case = make(name, "decayed_gradient", "M2", why, {"decay": decay}, "special", **arrays)
        require(same_bits(case["out.g"], g) == (decay == 0), case, "g keeps its bits")
        yield case
    g = np.stack([np.float32(SPECIAL), np.float32(SPECIAL[::-1])])
    w, why = np.float32(SPECIAL[3:] + SPECIAL[:3]), "special numbers, the denormal ones too"
    for decay in (0.0, 0.0005):
        settings, name = {"rate": 0.3, "momentum": 0.7, "decay": decay}, f"momentum-special-{decay}"
        arrays = {"w": w, "g": g, "decayed": (np.arange(len(w)) % 2).astype(np.uint8)}
        yield make(name, "momentum_step", "M1 M2", why, settings, "special", **arrays)


def searched(name: str, draw: Callable[[np.random.Generator], Case], holds: Callable) -> Case:
    """The first case, of one seed after another, of which this holds."""
    for seed in count():
        case = draw(random_source(name, seed))
        if holds(case) or seed == 200:
            require(holds(case), case, "exact ratios that show the roundings")
            return case


def lars_cases() -> Iterator[Case]:
    for rate in (0.1, 0.3):
        settings, name = {**USUAL, "rate": rate}, f"lars-bits-rate-{rate}"
        why = "rate times ratio is formed in float64 and rounded once: of rounded ones it differs"

        def draw(rng: np.random.Generator, settings: dict = settings, text: tuple = (name, why)):
            w = rng.integers(-5000, 5001, 17).astype(np.float32)
            g = rng.integers(-5000, 5001, (4, 17)).astype(np.float32)
            arrays = {"w": w, "g": g, "sizes": SIZES, "decayed": DECAYED}
            name, why = text
            return make(name, "lars_step", "M4 M5", why, settings, **arrays)

        def shows(case: Case) -> bool:
            other = differs_with(case, lars_step=mistakes.factors_rounded_first)
            return other and exact_ratios(case)

        yield searched(name, draw, shows)
    rng = random_source("lars-ratio-usual")
    arrays = {name: rng.integers(-5000, 5001, 23).astype(np.float32) for name in "wg"}
    why, settings = "trust and decay as given, not rounded to float32", {**USUAL}
    settings = {key: settings[key] for key in ("trust", "decay")}
    case = make("lars-ratio-usual", "lars_ratio", "M4", why, settings, **arrays)
    case.tensors["bound.ratio"] = 8 * 2.0**-53 * case["out.ratio"]
    rounded = lars_ratio(*arrays.values(), *(float(np.float32(v)) for v in settings.values()))
    require(abs(rounded - case["out.ratio"]) > case["bound.ratio"], case, "float32 shows")
    yield case
    why = "the usual rate, momentum, trust and decay; rates have these bits"

    def run(rng: np.random.Generator) -> Case:
        w = (rng.standard_normal(17) * 3).astype(np.float32)
        g = (rng.standard_normal((4, 3, 17)) / 64).astype(np.float32)
        settings = {**USUAL, "scale": 1024.0, "interval": 3, "wire": "float16"}
        arrays = {"w": w, "g": g, "sizes": SIZES, "decayed": DECAYED}
        return make("scaled-lars-usual", "scaled_lars_run", "M9", why, settings, **arrays)

    def shows_too(case: Case) -> bool:
        other = differs_with(case, lars_step=mistakes.factors_rounded_first)
        return other and exact_ratios(case)

    yield searched("scaled-lars-usual", run, shows_too)


def rate_cases() -> Iterator[Case]:
    why = "the power of a root and a half"
    arguments = {"step": 3, "steps": 11, "rate": 0.3, "power": 1.5}
    case = make("polynomial-rate-power-1.5", "polynomial_rate", "M6", why, arguments)
    case.tensors["bound.rate"] = 8 * 2.0**-53 * case["out.rate"]
    yield case
    why = "three times 0.3, in seven steps"
    arguments = {"step": 4, "warmup_steps": 7, "base_rate": 0.3, "batch_factor": 3}
    case = make("warmup-rate-factor-3", "warmup_rate", "M3", why, arguments)
    case.tensors["bound.rate"] = 4 * 2.0**-53 * case["out.rate"]
    yield case
    rng = random_source("dropout-0.1")
    x, kept = rng.standard_normal(20), (rng.random(20) < 0.9).astype(np.uint8)
    why = "0.1 as given: of float32's 0.1 the results are out of bounds"
    case = make("dropout-0.1", "dropout", "N7", why, {"rate": 0.1}, x=x, kept=kept)
    case.tensors["bound.y"] = 3 * U * np.abs(case["out.y"])
    yield case


def phase_cases() -> Iterator[Case]:
    """Halves and quarters of a B that is no power of two are rounded down."""
    for kind, statements in (("daso", "A9 A10"), ("heat", "A19")):
        for largest in (6, 13):
            settings = {"epochs": 30, "warmup": 3, "cooldown": 3, "largest": largest}
            name, why = f"{kind}-phases-largest-{largest}", "halves of B are rounded down"
            losses = [1.0] * 30
            case = make(name, f"{kind}_phases", statements, why, settings, losses=losses)
            found = {int(b) for b in case["out.phases"][:, 0]}
            require({largest, largest // 2} <= found, case, why)
            yield case
    rng = random_source("late-sum-3")
    w, total = (rng.standard_normal(23).astype(np.float32) for _ in range(2))
    why = "three nodes, two and five batches later: each operation rounded"
    for waited in (2, 5):
        arguments = {"nodes": 3, "waited": waited}
        name = f"daso-merge-3-after-{waited}"
        case = make(name, "daso_merge", "A6", why, arguments, w=w, total=total)
        other = definitions.heat_merge(w, total, 3, waited)
        require(not same_bits(other, case["out.w"]), case, "Heat's rounding is another one")
        yield case


def cases() -> Iterator[Case]:
    groups = (scale_cases, decay_cases, lars_cases, rate_cases)
    for group in (*groups, phase_cases):
        with np.errstate(all="ignore"):
            yield from group()
