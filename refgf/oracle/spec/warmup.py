"""C15: coarse-grained sparse communication, LARS, and both warm-ups in the same steps.

step              0     1     2     3     4     5     6     7     8   ...
density (C6)      100 % ............  60 % ...........  30 % .........
rate (M3)         0.7   0.9   1.1   1.3   1.5   1.5   1.5   1.5   1.5
ratio (C13)       whole tensors ....  the elements that are sent .....
"""

from dataclasses import dataclass, replace

import numpy as np

from refgf.oracle.spec.csc import percent_of_step
from refgf.oracle.spec.csc_step import CSCRunSettings, csc_start, csc_step
from refgf.oracle.spec.momentum import warmup_rate
from refgf.oracle.spec.ring import Arrays


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
) -> list[dict]:
    """C15: step t has the rate of M3 and the density of C6 for t; a skipped step counts too.

    s: with the form `history` and a trust, so that LARS's ratio (C13) is formed anew in each step.
    The rate is part of the velocity (M5): an earlier step stays there with its own rate.
    -> per step {"w", "chosen", "kept", "scale", "finite"} as of csc_run
    """
    state, reports = csc_start(w, len(gs[0]), s), []
    for t, step_gs in enumerate(gs):
        chosen, p = state["chosen"], len(step_gs)
        now = replace(s, rate=rate_at(t, s, plan))
        state, report = csc_step(state, step_gs, now, *density_at(t + 1, plan))
        after = {"w": [state["w"]] * p, "kept": state["kept"], "scale": state["scale"]}
        reports.append({**after, "chosen": [chosen] * p, "finite": report["finite"]})
    return reports


def rate_at(step: int, s: CSCRunSettings, plan: WarmupPlan) -> float:
    """The rate of step `step`, skipped ones counted."""
    return warmup_rate(step, plan.warmup_steps, s.rate, plan.batch_factor)


def density_at(step: int, plan: WarmupPlan) -> tuple[float, bool]:
    """(percent, dense) of step `step`, skipped ones counted."""
    return percent_of_step(step, plan.steps_per_epoch, list(plan.warmup_percents), plan.percent)
