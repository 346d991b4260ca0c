"""Cases of polynomial decay, accumulation, and LARS in parallel and under float16 training."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import (
    LARSSettings,
    accumulated,
    lars_partial_squares,
    lars_step,
    same_bits,
)
from refgf.oracle.seeded.generate.families import inputs, make, random_source, require
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.draw import relative
from refgf.oracle.spec.momentum import exact_ratios

SIZES, DECAYED = (
    [2, 7, 0, 1, 23, 4],
    np.array([0, 1, 1, 1, 1, 0], np.uint8),
)  # 37 elements, 31 of tensors with a ratio


def rate_cases() -> Iterator[Case]:
    for step, power, why in (
        (0, 2.0, "the whole rate"),
        (3, 2.0, "on the way"),
        (3, 1.0, "along a line"),
        (11, 2.0, "the last step still moves"),
        (12, 2.0, "nothing from here on"),
        (40, 0.5, "nothing, also of a root"),
    ):
        arguments = {"step": step, "steps": 12, "rate": 0.3, "power": power}
        case = make(
            f"polynomial-rate-step-{step}-power-{power:g}", "polynomial_rate", "M6", why, arguments
        )
        case.tensors["bound.rate"] = (
            8 * 2.0**-53 * case["out.rate"]
        )  # a few roundings, the power included
        yield case


def accumulation_cases() -> Iterator[Case]:
    for parts in (1, 4):
        x = inputs("sensitive", parts, 13, "float32", random_source(f"accumulated-{parts}"))
        case = make(
            f"accumulated-{parts}",
            "accumulated",
            "M7",
            "from the first part to the last",
            family="sensitive",
            x=x,
        )
        require(
            parts == 1 or not same_bits(accumulated(x[::-1]), case["out.x"]),
            case,
            "another order differs",
        )
        yield case


def parallel_cases() -> Iterator[Case]:
    rng = random_source("lars-squares")
    arrays = {name: (rng.integers(-64, 65, 37) / 16).astype(np.float32) for name in "wg"}
    why = (
        "{} ranks; tensors of awkward sizes, an empty one, two without a ratio; squares "
        "and sums are exact"
    )
    for by in ("slices", "layers"):
        for p in (1, 3, 7):
            tensors, name = {"sizes": SIZES, "decayed": DECAYED}, f"lars-squares-{by}-p{p}"
            case = make(
                name,
                "lars_partial_squares",
                "M8",
                why.format(p),
                {"p": p, "by": by},
                **arrays,
                **tensors,
            )
            whole = lars_partial_squares(*arrays.values(), SIZES, 0, 1, decayed=DECAYED)
            require(
                np.array_equal(case["out.squares"].sum(axis=0), whole),
                case,
                "the ranks' shares add up to the whole",
            )
            yield case
    arrays = {name: rng.integers(-5000, 5001, 37).astype(np.float32) for name in "wg"}
    why = "3 ranks; squares beyond float32, whose sums are exact in float64"
    for by in ("slices", "layers"):
        tensors, arguments = {"sizes": SIZES, "decayed": DECAYED}, {"p": 3, "by": by}
        name = f"lars-squares-{by}-beyond-float32"
        case = make(name, "lars_partial_squares", "M8", why, arguments, **arrays, **tensors)
        narrow = case["out.squares"].astype(np.float32)
        require(not np.array_equal(narrow, case["out.squares"]), case, "float32 rounds")
        yield case


def half_case() -> Iterator[Case]:
    """Weights whose squares overflow in float16, gradients whose squares are zero; one NaN."""
    rng = random_source("scaled-lars")
    w = (rng.standard_normal(37) * 300).astype(np.float32)
    g = (rng.standard_normal((6, 3, 37)) * 2.0**-12).astype(np.float32)
    g[3, 2, 9] = np.nan
    why = (
        "float16 holds neither the squares of these weights nor those of the gradients; "
        "step 3 has a NaN on one rank"
    )
    arguments = {
        "rate": 0.5,
        "momentum": 0.5,
        "trust": 0.25,
        "scale": 1024.0,
        "interval": 3,
        "decay": 2.0**-12,
        "wire": "float16",
    }
    tensors = {"sizes": SIZES, "decayed": DECAYED}
    case = make("scaled-lars-run", "scaled_lars_run", "M9", why, arguments, w=w, g=g, **tensors)
    require(case["out.finite"].tolist() == [1, 1, 1, 0, 1, 1], case, "step 3 is skipped")
    require(np.isinf((w.astype(np.float16) ** 2).sum()), case, "the squares overflow in float16")
    total = g[0].sum(axis=0)
    settings = LARSSettings(SIZES, 0.5, 0.5, 0.25, 2.0**-12, DECAYED)
    unrounded = lars_step(w, np.zeros_like(w), total, settings)[0]
    require(not same_bits(unrounded, case["out.w"][0]), case, "the wire rounds")
    case.tensors["bound.w"] = relative(case["out.w"], 2.0**-22)
    yield case
    why, arguments = "norms in float64: the rates have these bits", {**arguments, "decay": 2.0**-20}
    case = make("scaled-lars-bits", "scaled_lars_run", "M9", why, arguments, w=w, g=g, **tensors)
    require(exact_ratios(case), case, "no order of summing the norms moves a rate")
    yield case


def cases() -> Iterator[Case]:
    for group in (rate_cases, accumulation_cases, parallel_cases):
        yield from group()
    with np.errstate(over="ignore", under="ignore"):
        yield from half_case()
