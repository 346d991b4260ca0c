"""A9, A10, A19: the phase of each epoch."""

import math
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, Run, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.daso.batches import BLOCKING, Phase
from refgf.oracle.spec.exercise import given
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- A9, A10: as described ----


def daso_next_phase(phase: Phase, largest: int = 8) -> Phase:
    """A9: on a plateau B and L are halved and W decreases by one, with L and W at least 1 and W at
    most B; B = 1 becomes the largest B (8), with L and W a quarter of it, at least 1.

    Source: Heat; W at most B, and at least 1 for a largest B below 4: chosen, Heat's: A19.
    """
    global_skip, local_skip, wait = phase
    if global_skip > 1:
        return global_skip // 2, max(1, local_skip // 2), max(1, min(wait - 1, global_skip // 2))
    return largest, max(1, largest // 4), max(1, largest // 4)


def daso_phases(
    losses: list[float],
    epochs: int,
    warmup: int,
    cooldown: int,
    largest: int = 8,
    threshold: float = 0.05,
    patience: int = 2,
) -> list[Phase]:
    """A10: the first and last epochs block (4 and 4); between them phases cycle from (min(4,
    largest B), 1, 1); more than 2 epochs in a row without a loss 5 % below the best are a plateau,
    after which that count is 0 and the best stays. Losses count from the last warm-up epoch on,
    though it blocks.

    Source: Heat; (4, 1, 1) at once where there is no warm-up, and a largest B below 4: chosen,
    Heat's: A19.

    losses[e]: the mean loss of epoch e. -> the phase of each epoch
    """
    phases, best, worse = [], math.inf, 0
    for epoch in range(epochs):
        if not warmup <= epoch < epochs - cooldown:
            phases.append(BLOCKING)
        elif epoch == warmup:
            phases.append((min(4, largest), 1, 1))
        else:
            plateau = worse > patience
            phases.append(daso_next_phase(phases[-1], largest) if plateau else phases[-1])
            worse = 0 if plateau else worse
        if epoch + 1 >= warmup:
            better = losses[epoch] < (1 - threshold) * best
            best, worse = (losses[epoch], 0) if better else (best, worse + 1)
    return phases


def phases_of(name: str) -> Run:
    def run(module: Any, case: Case) -> Outputs:
        settings = select(case, "epochs", "warmup", "cooldown", "largest")
        phases = getattr(module, name)(case["in.losses"].tolist(), **settings)
        return {"out.phases": np.array(phases, np.int64)}

    return run


A9 = Statement("A9", daso_next_phase)
A10 = Statement("A10", daso_phases)
AXES = {"phases": ("epoch", "B, L, W")}
PHASES = JudgedFunction(daso_phases, "A9 A10", AXES, "losses", phases_of("daso_phases"))


@PHASES.golden
def phase_cases() -> Cases:
    plateau = [1.0, 0.9, *[0.88] * 6, 0.8, *[0.79] * 18]
    why = (
        "three epochs without a gain of 5 % are a plateau: B 4, 2, 1, then 8 again, last "
        "epochs blocking"
    )
    settings: Given = {"epochs": 24, "warmup": 2, "cooldown": 3, "largest": 8}
    case = PHASES.case("daso-phases", why, **settings, losses=plateau[:24])
    bs = {int(b) for b in case["out.phases"][:, 0]}
    yield case.shows(bs == {0, 1, 2, 4, 8}, "every B occurs")
    for name, why, statements, *values in (
        ("no-ends", "cycles from the first epoch", "A9 A10", 24, 0, 0, 16),
        ("large", "the wait never exceeds B", "A9", 24, 1, 1, 32),
        ("short", "cool-down leaves no room", "A10", 5, 2, 4, 8),
        ("small", "B begins at the largest", "A10", 6, 1, 1, 2),
    ):
        settings = dict(zip(settings, values))
        losses = [1.0] * settings["epochs"]
        yield PHASES.case(f"daso-phases-{name}", why, statements, **settings, losses=losses)


@A9.mistake("the wait is halved too")
def wait_halved(phase, largest=8):
    after = daso_next_phase(phase, largest)
    return (*after[:2], max(1, phase[2] // 2)) if phase[0] > 1 else after


@A9.mistake("stays at B = 1")
def stays_at_one(phase, largest=8):
    return daso_next_phase(phase, largest) if phase[0] > 1 else phase


# ---- A19: as in Heat ----


def heat_next_phase(phase: Phase, largest: int = 8) -> Phase:
    """The next phase on a plateau: as A9, but W may exceed B."""
    global_skip, local_skip, wait = phase
    if global_skip > 1:
        return global_skip // 2, max(1, local_skip // 2), max(1, wait - 1)
    return largest, largest // 4, largest // 4


def heat_phases(
    losses: list[float],
    epochs: int,
    warmup: int,
    cooldown: int,
    largest: int = 8,
    threshold: float = 0.05,
    patience: int = 2,
) -> list[Phase]:
    """A19: `heat`: as A9, A10 for a largest B of at least 4, but W may exceed B, and without a
    warm-up no epoch cycles.

    Source: Heat, where a largest B below 4 leads to L = W = 0 and W = -1.

    -> the phase of each epoch
    """
    phases, best, worse = [], math.inf, 0
    for epoch in range(epochs):
        if warmup == 0 or not warmup <= epoch < epochs - cooldown:
            phases.append(BLOCKING)
        elif epoch == warmup:
            phases.append((4, 1, 1))
        else:
            plateau = worse > patience
            phases.append(heat_next_phase(phases[-1], largest) if plateau else phases[-1])
            worse = 0 if plateau else worse
        if epoch + 1 >= warmup:
            better = losses[epoch] < (1 - threshold) * best
            best, worse = (losses[epoch], 0) if better else (best, worse + 1)
    return phases


A19 = Statement("A19", heat_phases)
HEAT_PHASES = JudgedFunction(heat_phases, "A19", AXES, "losses", phases_of("heat_phases"))


@HEAT_PHASES.golden
def heat_phase_cases() -> Cases:
    for name, why, epochs, warmup, largest in [
        ("", "the phases of Heat's defaults", 30, 4, 8),
        ("-large", "B is halved faster than W falls: W exceeds B", 36, 1, 32),
        ("-no-warmup", "without warm-up no epoch cycles", 12, 0, 8),
    ]:
        settings: Given = {"epochs": epochs, "warmup": warmup, "cooldown": 2, "largest": largest}
        losses = [1.0] * epochs
        case = HEAT_PHASES.case(f"heat-phases{name}", why, **settings, losses=losses)
        other = daso_phases(losses, **settings)
        same = [tuple(phase) for phase in case["out.phases"].tolist()] == other
        claim = "A9 and A10 have other phases, but for the defaults"
        yield case.shows(same == (name == ""), claim)


@PHASES.golden
def cases_of_both() -> Cases:
    why = "a loss exactly 5 % below the best is not better: plateaus come as without it"
    settings: Given = {"epochs": 12, "warmup": 2, "cooldown": 2, "largest": 8}
    flat = np.array(daso_phases([1.0] * 12, **settings))
    for function, kind in ((PHASES, "daso"), (HEAT_PHASES, "heat")):
        name, losses = f"{kind}-phases-at-the-threshold", [1.0] * 3 + [0.95] * 9
        case = function.case(name, why, **settings, losses=losses)
        same = (case["out.phases"][:, 0] == flat[:, 0]).all()
        yield case.shows(same, "as with equal losses")
    why = "halves of B are rounded down"
    for function, kind in ((PHASES, "daso"), (HEAT_PHASES, "heat")):
        for largest in (6, 13):
            settings = {"epochs": 30, "warmup": 3, "cooldown": 3, "largest": largest}
            name = f"{kind}-phases-largest-{largest}"
            case = function.case(name, why, **settings, losses=[1.0] * 30)
            found = {int(b) for b in case["out.phases"][:, 0]}
            yield case.shows({largest, largest // 2} <= found, why)


def rounded_up(largest: int) -> int:
    """The next power of two: what halves of it are, a bit shift would take."""
    return 1 << (largest - 1).bit_length() if largest > 0 else largest


A10.given("a plateau begins after `patience` epochs, not after more", patience=lambda p: p - 1)
A10.given("any smaller loss counts as better", threshold=lambda threshold: 0.0)
A10.given("no cool-down", cooldown=lambda epochs: 0)
for statement in (A10, A19):
    statement.given(
        "a loss exactly at the threshold counts as better", threshold=lambda share: share - 1e-12
    )
A9.mistake("the largest B becomes a power of two", daso_phases)(
    given(daso_phases, largest=rounded_up)
)
A19.given("the largest B becomes a power of two", largest=rounded_up)


@A19.mistake("W is at most B, as in A9", heat_next_phase)
def waits_at_most_b(phase, largest=8):
    global_skip, local_skip, wait = heat_next_phase(phase, largest)
    return global_skip, local_skip, min(global_skip, wait)


@A19.mistake("cycles without a warm-up, as in A10")
def cycles_at_once(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    if warmup == 0:
        return daso_phases(losses, epochs, warmup, cooldown, largest, threshold, patience)
    return heat_phases(losses, epochs, warmup, cooldown, largest, threshold, patience)


@A19.mistake("W is halved, as B is", heat_next_phase)
def wait_halved_too(phase, largest=8):
    global_skip, local_skip, wait = heat_next_phase(phase, largest)
    return global_skip, local_skip, max(1, phase[2] // 2) if phase[0] > 1 else wait
