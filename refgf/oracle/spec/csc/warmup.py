"""C15: coarse-grained sparse communication, LARS, and both warm-ups in the same steps.

step              0     1     2     3     4     5     6     7     8   ...
density (C6)      100 % ............  60 % ...........  30 % .........
rate (M3)         0.7   0.9   1.1   1.3   1.5   1.5   1.5   1.5   1.5
ratio (C13)       whole tensors ....  the elements that are sent .....
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, select, steps_of
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.csc.cases import CHUNK, DECAYED, SIZES
from refgf.oracle.spec.csc.choice import percent_of_step
from refgf.oracle.spec.csc.importance import chunk_bounds
from refgf.oracle.spec.csc.step import (
    AXES,
    after_step,
    csc_outputs,
    csc_settings,
    csc_start,
    csc_step,
)
from refgf.oracle.spec.csc.update import CSCRunSettings
from refgf.oracle.spec.draw import random_source, relative
from refgf.oracle.spec.momentum.rates import warmup_rate
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement


@dataclass(frozen=True)
class WarmupPlan:
    """warmup_steps, batch_factor: of M3; the rest: of C6. The base rate is the settings' own."""

    warmup_steps: int
    batch_factor: float
    steps_per_epoch: int
    warmup_percents: tuple[float, ...]
    percent: float


def sparse_warmup_run(
    w: np.ndarray, gs: list[Arrays], s: CSCRunSettings, plan: WarmupPlan
) -> list[dict[str, Any]]:
    """C15: LARS (C13), both warm-ups and the sparse exchange in one run: step t has the rate of M3
    and the density of C6 for t, and a skipped step counts in both; in dense steps the ratio is that
    of whole tensors (M4). The rate is part of the velocity (M5), where earlier steps keep theirs.

    Source: as C6, C13 and M3; that both warm-ups run side by side, and that skipped steps count:
    chosen.

    s: with the form `history` and a trust, so that LARS's ratio (C13) is formed anew in each step.
    -> per step {"w", "chosen", "kept", "scale", "finite"} as of csc_run
    """
    state, reports = csc_start(w, len(gs[0]), s), []
    for t, step_gs in enumerate(gs):
        chosen, now = state["chosen"], replace(s, rate=rate_at(t, s, plan))
        state, report = csc_step(state, step_gs, now, *density_at(t + 1, plan))
        reports.append(after_step(state, chosen, report))
    return reports


def rate_at(step: int, s: CSCRunSettings, plan: WarmupPlan) -> float:
    """The rate of step `step`, skipped ones counted."""
    return warmup_rate(step, plan.warmup_steps, s.rate, plan.batch_factor)


def density_at(step: int, plan: WarmupPlan) -> tuple[float, bool]:
    """(percent, dense) of step `step`, skipped ones counted."""
    return percent_of_step(step, plan.steps_per_epoch, list(plan.warmup_percents), plan.percent)


def run_warmup(module: Any, case: Case) -> Outputs:
    """The outputs of csc_run."""
    s, w = csc_settings(case), case["in.w"]
    plan = WarmupPlan(**select(case, *WarmupPlan.__dataclass_fields__))
    steps = module.sparse_warmup_run(w.copy(), steps_of(case["in.g"]), s, plan)
    return csc_outputs(steps, len(chunk_bounds(len(w), s.chunk)))


C15 = Statement("C15", sparse_warmup_run)
C15.given("plain CSC: momentum SGD, and no ratio in any step", s=lambda s: replace(s, trust=None))
WARMUP = JudgedFunction(sparse_warmup_run, "C15", AXES, "w g sizes decayed", run_warmup)


PLAN: Given = {"warmup_steps": 5, "batch_factor": 3, "steps_per_epoch": 3}
PLAN |= {"warmup_percents": [100, 60], "percent": 30}


@WARMUP.golden
def warmup_cases() -> Cases:
    why = "dense, then 60 %, then 30 %; the rate rises in steps 0 to 4; steps {} are skipped"
    settings: Given = {
        "chunk": CHUNK,
        "form": "history",
        "rate": 0.5,
        "momentum": 0.5,
        "trust": 0.25,
    }
    for name, bad, more in (
        ("", (), {"wire": None, "scale": 1.0, "decay": 0.25}),
        ("-skipped", (1, 4, 7), {"wire": None, "scale": 4.0, "decay": 0.0}),
        ("-float16", (4,), {"wire": "float16", "scale": 64.0, "decay": 0.25}),
    ):
        rng = random_source("warmup" + name)
        n, steps, p = sum(SIZES), 9, 3
        w = rng.integers(-16, 17, n).astype(np.float32) / 4
        g = rng.integers(-4, 5, (steps, p, n)).astype(np.float32)
        for step in bad:
            g[step, 1, 7] = np.inf
        arrays: Given = {"w": w, "g": g, "sizes": SIZES, "decayed": DECAYED}
        said = why.format(", ".join(map(str, bad)) or "none")
        case = WARMUP.case(f"warmup-lars{name}", said, **settings, **PLAN, **more, **arrays)
        wanted = [int(t not in bad) for t in range(steps)]
        case.shows(case["out.finite"].tolist() == wanted, "these steps are skipped")
        sent = case["out.chosen"][:, 0].sum(axis=-1).tolist()
        case.shows(sent[0] == 7 and 5 in sent and sent[-1] == 3, "7, 5 and 3 of 7 chunks")
        case.tensors["bound.w"] = relative(case["out.w"], 2.0**-20)  # norms in any order
        yield case
    rng = random_source("warmup-usual")
    w = rng.integers(-16, 17, sum(SIZES)).astype(np.float32) / 4
    g = rng.integers(-4, 5, (7, 2, sum(SIZES))).astype(np.float32)
    why = "the usual rate, trust and decay, in chunks of 7; with a momentum of 3/4 norms are exact"
    settings = {"rate": 0.1, "momentum": 0.75, "trust": 0.001, "decay": 0.0005, "chunk": 7}
    settings |= {"form": "history", "wire": None, "scale": 1.0, **PLAN}
    arrays = {"w": w, "g": g, "sizes": SIZES, "decayed": DECAYED}
    case = WARMUP.case("warmup-lars-usual", why, **settings, **arrays)
    case.tensors["bound.w"] = relative(case["out.w"], 2.0**-20)
    yield case


def run_with(
    w: np.ndarray,
    gs: list[Arrays],
    s: CSCRunSettings,
    plan: WarmupPlan,
    now: Callable[..., Any],
    rate_counts: int = 0,
    density_counts: int = 0,
) -> list[dict[str, Any]]:
    """C15 with other settings in a step: now(t, s, plan).

    rate_counts, density_counts: 1 where a warm-up counts accepted steps only.
    """
    state, reports, skipped = csc_start(w, len(gs[0]), s), [], 0
    for t, step_gs in enumerate(gs):
        chosen, own = state["chosen"], now(t - rate_counts * skipped, s, plan)
        density = density_at(t + 1 - density_counts * skipped, plan)
        state, report = csc_step(state, step_gs, own, *density)
        skipped += not report["finite"]
        reports.append(after_step(state, chosen, report))
    return reports


def as_stated(t: int, s: CSCRunSettings, plan: WarmupPlan) -> CSCRunSettings:
    return replace(s, rate=rate_at(t, s, plan))


@C15.mistake("the rate has no warm-up: its target from the first step on", rate_at)
def no_warmup(step, s, plan):
    return s.rate * plan.batch_factor


@C15.mistake("the rate stays at its base", rate_at)
def base_rate(step, s, plan):
    return s.rate


@C15.mistake("the rate warms up once an epoch, not in each step", rate_at)
def rate_by_epoch(step, s, plan):
    return rate_at(step // plan.steps_per_epoch * plan.steps_per_epoch, s, plan)


@C15.mistake("the density has no warm-up", density_at)
def density_without_warmup(step, plan):
    return density_at(step, replace(plan, warmup_percents=()))


@C15.mistake("a skipped step does not count in the rate's warm-up")
def rate_counts_accepted(w, gs, s, plan):
    return run_with(w, gs, s, plan, as_stated, rate_counts=1)


@C15.mistake("a skipped step does not count in the density's warm-up")
def density_counts_accepted(w, gs, s, plan):
    return run_with(w, gs, s, plan, as_stated, density_counts=1)


@C15.mistake("no LARS while the rate warms up: the ratio is 1")
def lars_after_warmup(w, gs, s, plan):
    def now(t, s, plan):
        trust = s.trust if t >= plan.warmup_steps else None
        return replace(as_stated(t, s, plan), trust=trust)

    return run_with(w, gs, s, plan, now)


@C15.mistake("the rate is not in the velocity: old steps get today's rate")
def rate_outside(w, gs, s, plan):
    """w <- w - rate v with v <- m v + ratio g is M5 at a constant rate, on a rescaled velocity."""
    state, reports, before = csc_start(w, len(gs[0]), s), [], None
    for t, step_gs in enumerate(gs):
        chosen, now = state["chosen"], as_stated(t, s, plan)
        if before:
            factor = w.dtype.type(now.rate / before)
            state["velocity"] = state["velocity"] * factor
        before = now.rate
        state, report = csc_step(state, step_gs, now, *density_at(t + 1, plan))
        reports.append(after_step(state, chosen, report))
    return reports
