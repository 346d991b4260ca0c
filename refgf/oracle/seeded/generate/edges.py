"""Cases at edges that changed definitions showed to be missing: each was a change nobody saw."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import daso_phases
from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.spec.case import Case


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


def cases() -> Iterator[Case]:
    for group in (
        merge_cases,
        bisection_cases,
        traffic_cases,
    ):
        with np.errstate(all="ignore"):
            yield from group()
