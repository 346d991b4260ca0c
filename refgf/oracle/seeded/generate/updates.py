"""Cases of precision, loss scaling, momentum SGD and LARS."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import momentum_step, on_wire, same_bits
from refgf.oracle.seeded.generate.families import make, random_source, relative, require
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.floats import beyond_float32, nans
from refgf.oracle.spec.momentum import exact_ratios

AWKWARD = [
    0.0,
    1.0,
    1 + 2**-11,
    1 + 3 * 2**-11,
    1 + 2**-11 + 2**-20,
    65504.0,
    65519.99,
    65520.0,
    65536.0,  # float16
    2**-24,
    2**-25,
    2**-25 * 1.0001,
    2**-14,
    2**-14 * (1 - 2**-11),  # float16: denormals
    1 + 2**-8,
    1 + 3 * 2**-8,
    1 + 2**-8 + 2**-20,
    3.39e38,
    3.4e38,  # bfloat16: ties, limits
    2**-133,
    2**-134,
    2**-126 * (1 - 2**-8),
    1e-45,
    np.inf,
]


def awkward_numbers(dtype: str = "float32") -> np.ndarray:
    """Numbers at which a cast to 16 bits can go wrong, with their negatives."""
    return np.array([*AWKWARD, *(-v for v in AWKWARD), np.nan]).astype(dtype)


def narrow_cases() -> Iterator[Case]:
    """Casts by way of float32, and NaN of every payload."""
    x = beyond_float32()
    twice = x.astype(np.float32).astype(np.float64)
    for wire, statements, why in (
        ("float16", "P1", "float64 becomes float16 in one rounding, not by way of float32"),
        ("bfloat16", "P1 P2", "float64 becomes bfloat16 by way of float32, in two roundings"),
    ):
        case = make(
            f"cast-beyond-float32-to-{wire}", "on_wire", statements, why, {"wire": wire}, x=x
        )
        same = same_bits(on_wire(twice, wire), case["out.x"])
        require(same == (wire == "bfloat16"), case, "the way matters")
        yield case
    why, arguments = "a NaN stays a NaN, whatever its payload", {"wire": "bfloat16"}
    case = make("cast-nan-payloads", "on_wire", "P1 P2", why, arguments, "special", x=nans())
    require(np.isnan(case["out.x"]).all(), case, "all are NaN")
    yield case


def cast_cases() -> Iterator[Case]:
    why = "ties to even, overflow at and just below the limit, denormals, both signs, NaN"
    for wire, statements in (("float16", "P1"), ("bfloat16", "P1 P2")):
        for dtype in ("float32", "float64"):
            name, x = f"cast-{dtype}-to-{wire}", awkward_numbers(dtype)
            yield make(name, "on_wire", statements, why, {"wire": wire}, "special", x=x)
    x = np.concatenate([awkward_numbers(), nans()])
    case = make(
        "bfloat16-bits", "bfloat16_bits", "P2", "the 16 bits themselves", family="special", x=x
    )
    truncated = (x.view(np.uint32) >> 16).astype(np.uint16)
    require(not same_bits(case["out.bits"], truncated), case, "cutting off differs from rounding")
    yield case
    why = "zeros of both signs do not count; 2^-25 is a tie and goes to 0"
    x = np.array([0.0, -0.0, 1.0, 2**-24, 2**-25, -(2**-26), 3e-8, 65504, 1e-30], np.float32)
    for wire in ("float16", "bfloat16"):
        yield make(f"underflow-share-{wire}", "underflow_share", "P3", why, {"wire": wire}, x=x)


def scaling_cases() -> Iterator[Case]:
    rng = random_source("scaling")
    g = (rng.standard_normal((3, 17)) * 2.0**-20).astype(np.float32)
    for power, why in (
        (0, "unscaled most of these underflow"),
        (12, "scaled they survive"),
        (38, "scaled too far"),
    ):
        arguments = {"scale": 2.0**power, "wire": "float16"}
        case = make(f"scaled-allreduce-2-to-{power}", "scaled_allreduce", "P4", why, arguments, x=g)
        require(
            np.isfinite(case["out.x"]).all() == (power < 20),
            case,
            "only the largest scale overflows",
        )
        yield case
    finite = np.array([1, 1, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], np.uint8)
    why = "grows after 3 good steps, halves at once and counts again, stays at least 1"
    yield make("next-scale", "next_scale", "P6", why, {"scale": 4.0, "interval": 3}, finite=finite)
    arguments, finite = {"scale": 2.0**22, "interval": 2}, np.ones(9, np.uint8)
    yield make(
        "next-scale-largest",
        "next_scale",
        "P6",
        "does not grow beyond 2^24",
        arguments,
        finite=finite,
    )
    for name, bad in (("finite", 1.0), ("inf", np.inf), ("nan", np.nan)):
        x = np.array([[1.0, 65504.0], [2.0, bad]], np.float32)
        yield make(
            f"all-finite-{name}", "all_finite", "P5", "one rank's element decides for all", x=x
        )
    w = np.concatenate([awkward_numbers()[:10], rng.standard_normal(9).astype(np.float32)])
    yield make(
        "working-copy", "working_copy", "P7", "rounded, not cut off", {"wire": "float16"}, w=w
    )
    yield overflow_case(rng)


def overflow_case(rng: np.random.Generator) -> Case:
    """Ten steps: one gradient overflows at the first scale, one is NaN; the scale recovers."""
    w = rng.standard_normal(13).astype(np.float32)
    g = (rng.standard_normal((10, 3, 13)) * 0.01).astype(np.float32)
    g[2, 1, 5], g[6, 2, 0] = 40.0, np.nan
    why = (
        "step 2 overflows on the wire, step 6 has a NaN on one rank: all ranks skip "
        "both, and w keeps its bits"
    )
    arguments = {"rate": 0.1, "momentum": 0.9, "scale": 2048.0, "interval": 3, "wire": "float16"}
    case = make("scaled-run-overflow", "scaled_run", "P4 P5 P6 P7 P8", why, arguments, w=w, g=g)
    require(
        case["out.finite"].tolist() == [1, 1, 0, 1, 1, 1, 0, 1, 1, 1],
        case,
        "steps 2 and 6 are skipped",
    )
    require(same_bits(case["out.w"][1], case["out.w"][2]), case, "a skipped step leaves w")
    return case


def momentum_cases() -> Iterator[Case]:
    rng = random_source("momentum")
    w, g = (
        rng.standard_normal(19).astype(np.float32),
        rng.standard_normal((5, 19)).astype(np.float32),
    )
    g[:, 3] = -0.0
    settings = {"rate": 0.1, "momentum": 0.9, "decay": 0.0}
    for dtype in ("float32", "float64"):
        why, arrays = (
            "each multiplication and addition rounded by itself",
            {"w": w.astype(dtype), "g": g.astype(dtype)},
        )
        case = make(f"momentum-{dtype}", "momentum_step", "M1", why, settings, **arrays)
        require(
            dtype == "float64" or not same_bits(case["out.w"], fused(w, g, 0.1, 0.9)),
            case,
            "fused differs",
        )
        yield case
    why = "decay on some elements only; a gradient of -0 keeps its sign where there is none"
    decayed = (np.arange(19) % 3 != 0).astype(np.uint8)
    yield make(
        "momentum-decay",
        "momentum_step",
        "M1 M2",
        why,
        {**settings, "decay": 0.01},
        w=w,
        g=g,
        decayed=decayed,
    )
    g = np.array([-0.0, 1.5, -0.0, 0.0], np.float32)
    arrays = {
        "w": np.array([2.0, -3.0, 0.25, -1.0], np.float32),
        "g": g,
        "decayed": np.array([0, 1, 1, 0], np.uint8),
    }
    case = make(
        "decayed-gradient",
        "decayed_gradient",
        "M2",
        "-0 stays -0 without decay",
        {"decay": 0.5},
        **arrays,
    )
    require(np.signbit(case["out.g"][0]), case, "element 0 is -0")
    yield case
    for step, why in (
        (0, "one amount above the base"),
        (3, "on the way"),
        (4, "reaches the target"),
        (9, "stays there"),
    ):
        arguments = {"step": step, "warmup_steps": 5, "base_rate": 0.1, "batch_factor": 8}
        case = make(f"warmup-rate-step-{step}", "warmup_rate", "M3", why, arguments)
        case.tensors["bound.rate"] = 4 * 2.0**-53 * case["out.rate"]  # four roundings
        yield case


def fused(w: np.ndarray, g: np.ndarray, rate: float, momentum: float) -> np.ndarray:
    """M1 with each multiply-add rounded once: in float64 products of float32 are exact."""
    v, ws = np.zeros_like(w), []
    for step in g:
        v = (np.float64(np.float32(momentum)) * v + step).astype(np.float32)
        w = (w - np.float64(np.float32(rate)) * v).astype(np.float32)
        ws.append(w)
    return np.array(ws)


LARS_RATIOS = [
    ("pythagorean", [3, 4], [6, 8]),
    ("no-weights", [0, 0], [1, 1]),
    ("nothing", [0, 0], [0, 0]),
    ("above-one", [30, 40], [0.75, 1]),
    ("beyond-float32", [4097, 1, 2], [3, 8191, 1]),
    ("squares-overflow-float32", [3 * 2.0**70, 2.0**72], [3, 4]),
    ("squares-vanish-in-float32", [3 * 2.0**-80, 2.0**-78], [2.0**-79, 0]),
]


def lars_cases() -> Iterator[Case]:
    rng = random_source("lars")
    w, g = (
        rng.integers(-4, 5, 17).astype(np.float32),
        rng.integers(-4, 5, (4, 17)).astype(np.float32),
    )
    w[:4], g[:, :4] = [1, 2, 2, 4], [2, 4, 4, 8]  # norms 5 and 10
    w[14:] = 0.0  # a tensor of zeros
    why = "one tensor without decay has ratio 1, and so has one of zeros"
    for decay in (0.0, 0.125):
        arguments = {"rate": 0.5, "momentum": 0.5, "trust": 0.25, "decay": decay}
        tensors = {"sizes": [4, 1, 9, 3], "decayed": np.array([1, 0, 1, 1], np.uint8)}
        case = make(
            f"lars-decay-{decay}", "lars_step", "M4 M5", why, arguments, w=w, g=g, **tensors
        )
        plain = momentum_step(w, np.zeros_like(w), g[0], 0.5, 0.5)[0]
        require(not same_bits(plain[:4], case["out.w"][0][:4]), case, "the ratio matters")
        case.tensors.update({f"bound.{k}": relative(case[f"out.{k}"], 2.0**-22) for k in "wv"})
        yield case
    why = "norms are exact; 1 where the weights are zero"
    for name, weights, gradients in LARS_RATIOS:
        arrays = {"w": np.float32(weights), "g": np.float32(gradients)}
        case = make(
            f"lars-ratio-{name}", "lars_ratio", "M4", why, {"trust": 0.5, "decay": 0.25}, **arrays
        )
        case.tensors["bound.ratio"] = 8 * 2.0**-53 * case["out.ratio"]
        yield case


def wide_norms_case() -> Iterator[Case]:
    """Squares that float32 cannot add up, and ratios above 1 and below."""
    rng = random_source("lars-bits")
    w, g = rng.integers(-5000, 5001, 17), rng.integers(-5000, 5001, (4, 17))
    w[4:13] *= 64
    arguments = {"rate": 0.5, "momentum": 0.5, "trust": 0.25, "decay": 0.125}
    tensors = {"sizes": [4, 9, 3, 1], "decayed": np.array([1, 1, 1, 0], np.uint8)}
    why = "ratios above 1 and below, from norms in float64: the rates have these bits"
    arrays = {"w": w.astype(np.float32), "g": g.astype(np.float32), **tensors}
    case = make("lars-bits", "lars_step", "M4 M5", why, arguments, **arrays)
    require(exact_ratios(case), case, "no order of summing the norms moves a rate")
    yield case


def cases() -> Iterator[Case]:
    for group in (
        cast_cases,
        narrow_cases,
        scaling_cases,
        momentum_cases,
        lars_cases,
        wide_norms_case,
    ):
        yield from group()
