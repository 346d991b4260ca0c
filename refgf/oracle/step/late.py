"""Gradients that are summed inside the optimizer's step, or parameters averaged after it.

Before the optimizer's step ranks then hold different gradients, rightly, and nothing shows where
the right one is. But parameters that all ranks agree on can be judged: next to one rank's, which
trains by itself on the whole batch, from the same parameters. How far rounding may move them is
tried out: the same with its gradients changed by their bounds, both ways by chance.

An update may hide a factor of its gradient, as Adam's does. Where it looks the same for a gradient
that is a tenth larger, there is no verdict, unless communicated() says where the sum is.
"""

from dataclasses import replace

import numpy as np

from refgf.oracle.step.findings import StepFinding, findings_of
from refgf.oracle.step.stages import Arrays, JudgedStep, same
from refgf.oracle.step.updates import update_bound, update_causes

TENTH = 0.1  # of a gradient: what has to show
SEEDS = 0, 1, 2  # of changed gradients; 0: as they are
SLACK = 4.0  # times the largest change of an element
NOISES = [
    *({"seed": seed, "factor": 1.0} for seed in SEEDS),
    {"seed": 0, "factor": 1 + TENTH},
]
INSIDE = (
    "gradients are summed inside the optimizer's step, or parameters after it; next: in that step, "
    "call refgf.oracle.step.communicated() when .grad holds the sum"
)


def late_tensors(step: JudgedStep) -> set[str]:
    """Those whose gradient no stage shows, and whose parameters all ranks agree on."""
    found = set()
    earlier = step.previous.settings["late"] if step.previous else set()
    for t in step.exact.keys() - earlier:  # after a wrong step an optimizer's state is another one
        before, after = (step.stages[kind].get(t) for kind in ("before", "after"))
        used, seen = step.stages["used"].get(t), step.stages["backward"].get(t)
        clipped = step.stages["clip"].get(t)
        if after is None or not after.agree or after.sharded or (clipped and clipped.agree):
            continue
        if used is None:  # of an optimizer with copies of the parameters
            if (
                not np.array_equal(before.value, after.value)
                and t not in step.settings["optimized"]
            ):
                found.add(t)
        elif not used.agree and not (seen and seen.agree):
            found.add(t)
    return found


def judge_late(step: JudgedStep, late: set[str]) -> tuple[list[StepFinding], set[str]]:
    """(findings, tensors whose update hides a tenth of the gradient)"""
    alone, *changed, larger = step.free()
    slack: Arrays = {}
    for t in late:
        most = np.max([np.abs(other[t] - alone[t]) for other in changed], axis=0)
        slack[t] = SLACK * most
    by_one = replace(
        step, replay=step.replay | {"after": alone}, settings=step.settings | {"slack": slack}
    )
    states = {t: step.stages["after"][t] for t in sorted(late)}
    bounds = {t: update_bound(by_one, t) for t in states}
    wrong = {t: w for t, w in states.items() if not same(w.value, alone[t], bounds[t])}
    if wrong:
        step.settings["late"] |= wrong.keys()
        causes = update_causes(by_one, wrong)
        found = {
            t: cause if cause[1] else (f"{cause[0]}; {INSIDE}", *cause[1:])
            for t, cause in causes.items()
        }
        return findings_of("update", step, found), set()
    return [], {t for t in states if same(larger[t], alone[t], bounds[t])}
