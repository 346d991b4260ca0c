"""The stage `update`: parameters after the step, next to one rank's with the same gradient."""

import numpy as np

from refgf.oracle.step.causes import UNKNOWN, unknown
from refgf.oracle.step.factors import Cause, factor_text, names_of
from refgf.oracle.step.findings import StepFinding, findings_of
from refgf.oracle.step.stages import JudgedStep, Whole, multiple, same

CALLED = {"lr": "learning rate", "weight_decay": "weight decay"}
NO_SETTINGS = "optimizer", "state", "depth"
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
                found[t] = text, ["different updates"], None
        elif not same(state.value, step.replay["after"][t], update_bound(step, t)):
            wrong[t] = state
    return findings_of("update", step, found | update_causes(step, wrong))


def update_causes(step: JudgedStep, states: dict[str, Whole]) -> dict[str, Cause]:
    found = {t: update_cause(step, t, state) for t, state in states.items()}
    without = [t for t, cause in found.items() if cause[0] == UNKNOWN]
    if without:
        before = {t: step.stages["before"][t].value for t in without}
        got = {t: states[t].value - before[t] for t in without}
        wanted = {t: step.replay["after"][t] - before[t] for t in without}
        found |= dict.fromkeys(without, unknown(got, wanted))
    return found


def update_cause(step: JudgedStep, tensor: str, state: Whole) -> Cause:
    before = step.stages["before"][tensor].value
    change, wanted = state.value - before, step.replay["after"][tensor] - before
    rounding = update_bound(step, tensor)
    made = max(updates.get(tensor, 0) for updates in step.settings["updates"])
    alone = step.settings["one"]["updates"].get(tensor, 0)
    if made != alone and (made or not any(step.settings["updates"])):
        text = f"{made} optimizer step{'s' * (made != 1)} on the {step.size} ranks, {alone} on one"
        return text, ["optimizer steps"], None
    if not change.any():
        return "not updated", ["not updated"], 0.0
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
        return text, ["weight decay", *names_of(times, step, 0.01)], times
    k = multiple(change, wanted, bound)
    if k is not None:
        text, names, k = factor_text(k, step, bound / float(np.abs(wanted).max()))
        whose = "the whole batch's" if tensor in step.settings["slack"] else "the same"
        return f"the update is {text} with {whose} gradient", names, k
    if c is not None and before.size > 1:  # one number is a multiple of any other
        text = f"the update is off by {c:.4g} times the weights: weight decay outside the optimizer"
        return text, ["weight decay"], None
    return UNKNOWN, [], None


def _other_settings(step: JudgedStep, tensor: str) -> Cause | None:
    """The optimizer's own settings, where one rank's are others."""
    own, one = (held["optimizer"].get(tensor) for held in (step.settings, step.settings["one"]))
    if own is None or one is None:
        return None
    found: list[Cause] = []
    if own["optimizer"] != one["optimizer"]:
        text = f"the optimizer is {own['optimizer']}, on one rank it is {one['optimizer']}"
        found.append((text, ["optimizer class"], None))
    for key in own.keys() & one.keys() if not found else CALLED.keys() & own.keys() & one.keys():
        if key not in NO_SETTINGS and own[key] != one[key]:
            found.append(_setting(step, tensor, key, own[key], one[key]))
    if not found and one["state"] and not own["state"]:
        found.append((REMADE, ["state lost"], None))
    if len(found) < 2:
        return found[0] if found else None
    found.sort(key=lambda cause: cause[1])
    texts = [" = ".join([text, *names]) for text, (_, *names), _ in found]  # each with its own
    return "; ".join(texts), [name for _, names, _ in found for name in names], None


def _setting(step: JudgedStep, tensor: str, key: str, own: object, one: object) -> Cause:
    what = CALLED.get(key, key)
    text, numbers = f"the optimizer's {what} is {_shown(own)}", (int, float)
    if type(own) not in numbers or type(one) not in numbers or not one:
        return f"{text}, one rank's is {_shown(one)}", [what], None
    factor = own / one
    text += f", {factor:.6g} times one rank's {_shown(one)}"
    if key == "lr" and _of_another_step(step, tensor):
        text += "; one rank has it in another step: is the schedule's step() called as often there?"
        return text, [what, "schedule"], None
    return text, [what, *names_of(factor, step)], factor


def _of_another_step(step: JudgedStep | None, tensor: str) -> bool:
    """Is this rate, or that of a step before, one rank's of another step?"""
    while step is not None:
        own, rates = step.setting(tensor, "lr"), step.settings["rates"].get(tensor, [])
        if own in rates and own != step.settings["one"]["optimizer"].get(tensor, {}).get("lr"):
            return True
        step = step.previous
    return False


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def update_bound(step: JudgedStep, tensor: str) -> np.ndarray:
    """Same gradient, same optimizer: only the order of its few operations may differ."""
    before, after = step.stages["before"][tensor].value, step.replay["after"][tensor]
    bound = step.unit * (4 * np.abs(before) + 4 * np.abs(after) + 64 * np.abs(after - before))
    return bound + step.settings["slack"].get(tensor, 0.0)
