"""Mistakes where coarse-grained sparse communication, LARS and both warm-ups meet."""

from dataclasses import replace

from refgf.oracle.definitions import (
    csc_start,
    csc_step,
    density_at,
    rate_at,
    sparse_warmup_run,
)
from refgf.oracle.seeded.mistakes.registry import mistake


def run_with(w, gs, s, plan, now, rate_counts=0, density_counts=0):
    """C15 with other settings in a step: now(t, s, plan).

    rate_counts, density_counts: 1 where a warm-up counts accepted steps only.
    """
    state, reports, skipped = csc_start(w, len(gs[0]), s), [], 0
    for t, step_gs in enumerate(gs):
        chosen, p = state["chosen"], len(step_gs)
        own = now(t - rate_counts * skipped, s, plan)
        density = density_at(t + 1 - density_counts * skipped, plan)
        state, report = csc_step(state, step_gs, own, *density)
        skipped += not report["finite"]
        after = {"w": [state["w"]] * p, "kept": state["kept"], "scale": state["scale"]}
        reports.append({**after, "chosen": [chosen] * p, "finite": report["finite"]})
    return reports


def as_stated(t, s, plan):
    return replace(s, rate=rate_at(t, s, plan))


@mistake("C15", "rate_at", "the rate has no warm-up: its target from the first step on")
def no_warmup(step, s, plan):
    return s.rate * plan.batch_factor


@mistake("C15", "rate_at", "the rate stays at its base")
def base_rate(step, s, plan):
    return s.rate


@mistake("C15", "rate_at", "the rate warms up once an epoch, not in each step")
def rate_by_epoch(step, s, plan):
    return rate_at(step // plan.steps_per_epoch * plan.steps_per_epoch, s, plan)


@mistake("C15", "density_at", "the density has no warm-up")
def density_without_warmup(step, plan):
    return density_at(step, replace(plan, warmup_percents=()))


@mistake("C15", "sparse_warmup_run", "a skipped step does not count in the rate's warm-up")
def rate_counts_accepted(w, gs, s, plan):
    return run_with(w, gs, s, plan, as_stated, rate_counts=1)


@mistake("C15", "sparse_warmup_run", "a skipped step does not count in the density's warm-up")
def density_counts_accepted(w, gs, s, plan):
    return run_with(w, gs, s, plan, as_stated, density_counts=1)


@mistake("C15", "sparse_warmup_run", "no LARS while the rate warms up: the ratio is 1")
def lars_after_warmup(w, gs, s, plan):
    def now(t, s, plan):
        trust = s.trust if t >= plan.warmup_steps else None
        return replace(as_stated(t, s, plan), trust=trust)

    return run_with(w, gs, s, plan, now)


@mistake("C15", "sparse_warmup_run", "the rate is not in the velocity: old steps get today's rate")
def rate_outside(w, gs, s, plan):
    """w <- w - rate v with v <- m v + ratio g is M5 at a constant rate, on a rescaled velocity."""
    state, reports, before = csc_start(w, len(gs[0]), s), [], None
    for t, step_gs in enumerate(gs):
        chosen, p, now = state["chosen"], len(step_gs), as_stated(t, s, plan)
        if before:
            factor = w.dtype.type(now.rate / before)
            state["velocity"] = state["velocity"] * factor
        before = now.rate
        state, report = csc_step(state, step_gs, now, *density_at(t + 1, plan))
        after = {"w": [state["w"]] * p, "kept": state["kept"], "scale": state["scale"]}
        reports.append({**after, "chosen": [chosen] * p, "finite": report["finite"]})
    return reports


@mistake("C15", "sparse_warmup_run", "plain CSC: momentum SGD, and no ratio in any step")
def never_lars(w, gs, s, plan):
    return sparse_warmup_run(w, gs, replace(s, trust=None), plan)
