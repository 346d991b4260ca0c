"""Cases at edges that changed definitions showed to be missing: each was a change nobody saw."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import daso_phases
from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.spec.case import Case


def number_cases() -> Iterator[Case]:
    why, arrays = "without gradient and decay the denominator is 0", {"w": [3, 4], "g": [0, 0]}
    arrays = {name: np.float32(values) for name, values in arrays.items()}
    settings = {"trust": 0.3, "decay": 0.0}
    case = make("lars-ratio-no-denominator", "lars_ratio", "M4", why, settings, **arrays)
    require(case["out.ratio"] == 1, case, "the ratio is 1")
    case.tensors["bound.ratio"] = 8 * 2.0**-53 * case["out.ratio"]
    yield case
    for name, numbers, why in (
        ("zeros", [0.0, -0.0, 0.0], "no element is nonzero: a share of 0"),
        ("one", [0.0, 2.0**-30, 0.0], "the only element that is nonzero becomes zero"),
    ):
        arguments, x = {"wire": "float16"}, np.float32(numbers)
        yield make(f"underflow-share-{name}", "underflow_share", "P3", why, arguments, x=x)


def merge_cases() -> Iterator[Case]:
    rng = random_source("late-sum-0")
    w, total = (rng.standard_normal(23).astype(np.float32) for _ in range(2))
    why = "after no batch the own parameters count once"
    for kind, statement in (("daso", "A6"), ("heat", "A15")):
        arguments, name = {"nodes": 3, "waited": 0}, f"{kind}-merge-3-after-0"
        yield make(name, f"{kind}_merge", statement, why, arguments, w=w, total=total)
    losses = [1.0] * 3 + [0.95] * 9
    why = "a loss exactly 5 % below the best is not better: plateaus come as without it"
    settings = {"epochs": 12, "warmup": 2, "cooldown": 2, "largest": 8}
    for kind, statements in (("daso", "A9 A10"), ("heat", "A19")):
        name = f"{kind}-phases-at-the-threshold"
        case = make(name, f"{kind}_phases", statements, why, settings, losses=losses)
        flat = np.array(daso_phases([1.0] * 12, **settings))
        require((case["out.phases"][:, 0] == flat[:, 0]).all(), case, "as with equal losses")
        yield case


MSTOPK = [  # magnitudes, k, start, rounds
    ([-5, -6, 5, -1, -6, 0, -2, -1, -1, -2, 0, 0], 8, 0.9, 3, "fewer than k reach the mean"),
    ([-6, 1, -1, -6, 1, 4, 3, 6, 0, 1, 6, -2], 7, 0.3, 1, "a threshold that elements just reach"),
    ([6, 0, 1, 2, 6, -1, 4, -3, 4, -5, 5, -2], 6, 0.3, 1, "exactly k reach the mean"),
    ([-1, -2, 2, -2, 1, 0, -2, 0, -3, -4, 1, 6], 5, 0.3, 3, "some just reach the mean"),
]


def bisection_cases() -> Iterator[Case]:
    for number, (x, k, start, rounds, why) in enumerate(MSTOPK):
        arguments, name = {"k": k, "start": start, "rounds": rounds}, f"mstopk-edge-{number}"
        yield make(name, "mstopk", "T3", why, arguments, x=np.float32(x))


def traffic_cases() -> Iterator[Case]:
    why = "10 elements in slices of 4, 3 and 3, all of them sent: whose slice a rank sends shows"
    nodes = [[0, 1, 2], [3, 4, 5]]
    arguments = {"n": 10, "nodes": nodes, "percent": 100, "hierarchical": True}
    yield make("topk-traffic-nodes-uneven", "topk_traffic", "T7", why, arguments)


def scale_cases() -> Iterator[Case]:
    """Gradients of 30 with a scale of 1024: each rank sends 30720, which float16 has."""
    rng = random_source("scaled-run-sum")
    w = rng.standard_normal(13).astype(np.float32)
    g = (rng.standard_normal((6, 4, 13)) * 0.01).astype(np.float32)
    g[2, :, 5] = 30
    why = "in step 2 every rank's numbers are finite on the wire, and only their sum is not"
    arguments = {"rate": 0.1, "momentum": 0.9, "scale": 1024.0, "interval": 2, "wire": "float16"}
    name, statements = "scaled-run-sum-overflow", "P4 P5 P6 P7 P8"
    case = make(name, "scaled_run", statements, why, arguments, w=w, g=g)
    require(case["out.finite"].tolist() == [1, 1, 0, 1, 1, 1], case, "step 2 is skipped")
    yield case
    finite = np.array([1, 1, 1, 1, 0, 1, 1, 1, 1, 1], np.uint8)
    why = "a scale of 1000 grows to 2^24, between two of its doublings, and is halved from there"
    settings = {"scale": 1000.0 * 2**13, "interval": 1}
    case = make("next-scale-largest-1000", "next_scale", "P6", why, settings, finite=finite)
    require(2.0**24 in case["out.scale"], case, "it is at the limit")
    yield case


def cases() -> Iterator[Case]:
    for group in (
        scale_cases,
        number_cases,
        merge_cases,
        bisection_cases,
        traffic_cases,
    ):
        with np.errstate(all="ignore"):
            yield from group()
