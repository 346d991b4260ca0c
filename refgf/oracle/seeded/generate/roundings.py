"""Cases whose parameters are no powers of two: a factor of 0.5 or 1024 hides where it is rounded.

Each asserts that the form next to the stated one has other bits.
"""

from collections.abc import Iterator

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import same_bits
from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.seeded.generate.network import U
from refgf.oracle.spec.case import Case


def rate_cases() -> Iterator[Case]:
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
    groups = (rate_cases,)
    for group in (*groups, phase_cases):
        with np.errstate(all="ignore"):
            yield from group()
