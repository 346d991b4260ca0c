"""The stage `update`: parameters after the step, next to one rank's with the same gradient.

Gradients may be summed inside the optimizer's step, or parameters averaged after it. Before the
optimizer's step ranks then hold different gradients, rightly, and nothing shows where the right one
is. But parameters that all ranks agree on can be judged: next to one rank's, which trains by itself
on the whole batch, from the same parameters. How far rounding may move them is tried out: the same
with its gradients changed by their bounds, both ways by chance. An update may hide a factor of its
gradient, as Adam's does. Where it looks the same for a gradient that is a tenth larger, there is no
verdict, unless communicated() says where the sum is.
"""

from dataclasses import replace

import numpy as np

from refgf.oracle.step.compared import TENTH, Arrays, JudgedStep, Whole, multiple, same
from refgf.oracle.step.fits import Cause, factor_text, names_of
from refgf.oracle.step.hypotheses import UNKNOWN, farthest
from refgf.oracle.step.verdict import INSIDE, StepFinding, findings_of

CALLED = {"lr": "learning rate", "weight_decay": "weight decay"}
NO_SETTINGS = "optimizer", "state", "depth"
SEEDS = 0, 1, 2  # of changed gradients; 0: as they are
SLACK = 4.0  # times the largest change of an element
NOISES = [
    *({"seed": seed, "factor": 1.0} for seed in SEEDS),
    {"seed": 0, "factor": 1 + TENTH},
]
REMADE = (
    "the optimizer has no state of the steps before, on one rank it has: is it made anew? next: "
    "make it once, before the loop"
)


def judge_update(step: JudgedStep, late: set[str]) -> list[StepFinding]:
    """late: tensors that are judged elsewhere."""
    found, wrong = {}, {}
    for t, state in step.stages["after"].items():
        if t in late:
            continue
        if not state.agree:
            used = step.stages["used"].get(t)
            if used is None or used.agree:
                text = "ranks have different parameters after the same gradient"
                found[t] = Cause(text, ["different updates"])
        elif not same(state.value, step.replay["after"][t], update_bound(step, t)):
            wrong[t] = state
    return findings_of("update", step, found | update_causes(step, wrong))


def update_causes(step: JudgedStep, states: dict[str, Whole]) -> dict[str, Cause]:
    found = {t: update_cause(step, t, state) for t, state in states.items()}
    without = [t for t, cause in found.items() if cause.text == UNKNOWN]
    if without:
        before = {t: step.stages["before"][t].value for t in without}
        got = {t: states[t].value - before[t] for t in without}
        wanted = {t: step.replay["after"][t] - before[t] for t in without}
        found |= dict.fromkeys(without, farthest(got, wanted))
    return found


def update_cause(step: JudgedStep, tensor: str, state: Whole) -> Cause:
    before = step.stages["before"][tensor].value
    change, wanted = state.value - before, step.replay["after"][tensor] - before
    rounding = update_bound(step, tensor)
    updates = [record["updates"] for record in step.records]
    made, alone = max(own.get(tensor, 0) for own in updates), step.one["updates"].get(tensor, 0)
    if made != alone and (made or not any(updates)):
        text = f"{made} optimizer step{'s' * (made != 1)} on the {step.size} ranks, {alone} on one"
        return Cause(text, ["optimizer steps"])
    if not change.any():
        return Cause("not updated", ["not updated"], 0.0)
    bound = float(np.max(rounding))
    other = _other_settings(step, tensor)
    if other:
        return other
    decay = step.setting(tensor, "weight_decay") * step.setting(tensor, "lr")
    c = multiple(change - wanted, before, bound)
    if c is None:  # decayed after the update
        c = multiple(change - wanted, step.replay["after"][tensor], bound)
    if decay and c is not None and abs(c) > 0.1 * decay:
        times = 1 - c / decay
        text = f"weight decay is applied {times:.4g} times as strongly as on one rank"
        return Cause(text, ["weight decay", *names_of(times, step, 0.01)], times)
    k = multiple(change, wanted, bound)
    if k is not None:
        text, names, k = factor_text(k, step, bound / float(np.abs(wanted).max()))
        whose = "the whole batch's" if tensor in step.slack else "the same"
        return Cause(f"the update is {text} with {whose} gradient", names, k)
    if c is not None and before.size > 1:  # one number is a multiple of any other
        text = f"the update is off by {c:.4g} times the weights: weight decay outside the optimizer"
        return Cause(text, ["weight decay"])
    return Cause(UNKNOWN, [])


def _other_settings(step: JudgedStep, tensor: str) -> Cause | None:
    """The optimizer's own settings, where one rank's are others."""
    own, one = step.settings(tensor), step.one["settings"].get(tensor)
    if own is None or one is None:
        return None
    found: list[Cause] = []
    if own["optimizer"] != one["optimizer"]:
        text = f"the optimizer is {own['optimizer']}, on one rank it is {one['optimizer']}"
        found.append(Cause(text, ["optimizer class"]))
    for key in own.keys() & one.keys() if not found else CALLED.keys() & own.keys() & one.keys():
        if key not in NO_SETTINGS and own[key] != one[key]:
            found.append(_setting(step, tensor, key, own[key], one[key]))
    if not found and one["state"] and not own["state"]:
        found.append(Cause(REMADE, ["state lost"]))
    if len(found) < 2:
        return found[0] if found else None
    found.sort(key=lambda cause: cause.names)
    texts = [" = ".join([text, *names]) for text, (_, *names), _ in found]  # each with its own
    return Cause("; ".join(texts), [name for cause in found for name in cause.names])


def _setting(step: JudgedStep, tensor: str, key: str, own: object, one: object) -> Cause:
    what = CALLED.get(key, key)
    text, numbers = f"the optimizer's {what} is {_shown(own)}", (int, float)
    if type(own) not in numbers or type(one) not in numbers or not one:
        return Cause(f"{text}, one rank's is {_shown(one)}", [what])
    factor = own / one
    text += f", {factor:.6g} times one rank's {_shown(one)}"
    if key == "lr" and _of_another_step(step, tensor):
        text += "; one rank has it in another step: is the schedule's step() called as often there?"
        return Cause(text, [what, "schedule"])
    return Cause(text, [what, *names_of(factor, step)], factor)


def _of_another_step(step: JudgedStep | None, tensor: str) -> bool:
    """Is this rate, or that of a step before, one rank's of another step?"""
    while step is not None:
        own = step.setting(tensor, "lr")
        rates = [settings.get(tensor, {}).get("lr") for settings in step.rates]
        if own in rates and own != step.one["settings"].get(tensor, {}).get("lr"):
            return True
        step = step.previous
    return False


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def update_bound(step: JudgedStep, tensor: str) -> np.ndarray:
    """Same gradient, same optimizer: only the order of its few operations may differ."""
    before, after = step.stages["before"][tensor].value, step.replay["after"][tensor]
    bound = step.unit * (4 * np.abs(before) + 4 * np.abs(after) + 64 * np.abs(after - before))
    return bound + step.slack.get(tensor, 0.0)


# -- sums inside the optimizer's step, or after it


def late_tensors(step: JudgedStep) -> set[str]:
    """Those whose gradient no stage shows, and whose parameters all ranks agree on."""
    found = set()
    earlier = step.previous.late if step.previous else set()
    for t in step.exact.keys() - earlier:  # after a wrong step an optimizer's state is another one
        before, after = (step.stages[kind].get(t) for kind in ("before", "after"))
        used, seen = step.stages["used"].get(t), step.stages["backward"].get(t)
        clipped = step.stages["clip"].get(t)
        if after is None or not after.agree or after.sharded or (clipped and clipped.agree):
            continue
        if used is None:  # of an optimizer with copies of the parameters
            if t not in step.optimized and not np.array_equal(before.value, after.value):
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
    by_one = replace(step, replay=step.replay | {"after": alone}, slack=slack)
    states = {t: step.stages["after"][t] for t in sorted(late)}
    bounds = {t: update_bound(by_one, t) for t in states}
    wrong = {t: w for t, w in states.items() if not same(w.value, alone[t], bounds[t])}
    if wrong:
        step.late |= wrong.keys()
        found = {
            t: cause if cause.names else cause._replace(text=f"{cause.text}; {INSIDE}")
            for t, cause in update_causes(by_one, wrong).items()
        }
        return findings_of("update", step, found), set()
    return [], {t for t in states if same(larger[t], alone[t], bounds[t])}
