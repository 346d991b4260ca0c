"""How gradients were changed before the optimizer got them, where one rank changes them otherwise.

form of each rank, and of one rank      not clipped, by one factor, by value, each tensor
by one factor                           by which norm: limit / factor
a multiple of the weights               weight decay, next to one rank's
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from refgf.oracle.step.compared import (
    JudgedStep,
    Whole,
    close,
    factor,
    fitted,
    flat,
    listed,
    multiple,
)
from refgf.oracle.step.fits import RATIO_TOLERANCE, Cause, names_of

Pairs = dict[str, tuple[np.ndarray, np.ndarray]]  # {tensor: (before, after)}
LEAST_NEAR = 1e-4  # relative; coarser types have larger roundings
KINDS = "factor", "not clipped"


@dataclass
class Clip:
    """kind: "not clipped", "factor", "value", "tensors" (a factor each) or "changed".

    factor: of all numbers; of a clip by value its limit.
    """

    kind: str
    text: str
    factor: float = 1.0
    tensors: dict[str, float] = field(default_factory=dict)


def near(step: JudgedStep) -> float:
    return max(LEAST_NEAR, 16 * step.unit)


def factor_of(pairs: Pairs, error: float) -> float | None:
    """k, if every number after is k times the one before."""
    before, after = (flat({t: pair[i] for t, pair in pairs.items()}) for i in (0, 1))
    k = factor(after, before)
    largest = max(abs(k) * np.linalg.norm(before), np.linalg.norm(after))
    return k if np.linalg.norm(after - k * before) <= error * largest else None


def clip_of(pairs: Pairs, error: float) -> Clip | None:
    """How these gradients were changed. None where all are 0, as in an empty shard."""
    if not any(before.any() for before, _ in pairs.values()):
        return None
    k = factor_of(pairs, error)
    if k is not None and abs(k - 1) <= error:
        return Clip("not clipped", "not clipped")
    if k is not None:
        norm = norm_of(after for _, after in pairs.values())
        return Clip("factor", f"clipped to a norm of {norm:.5g}", k)
    limit = max(float(np.abs(after).max(initial=0.0)) for _, after in pairs.values())
    if all(close(np.clip(b, -limit, limit), a, error * limit) for b, a in pairs.values()):
        return Clip("value", f"clipped by value at {limit:.5g}", limit)
    each = {t: factor_of({t: pair}, error) for t, pair in pairs.items()}
    if all(each[t] is not None for t in each):
        untouched = [t for t, own in each.items() if abs(own - 1) <= error]
        text = "clipped by another factor in each tensor"
        if untouched:
            text += f", not in {listed(untouched)}"
        return Clip("tensors", text, tensors=each)
    return Clip("changed", "changed, by no one factor")


def clip_cause(step: JudgedStep, states: dict[str, Whole], base: dict[str, Whole]) -> Cause:
    """states: gradients after clipping; base: before it."""
    wanted, error = step.replay["used"], near(step)
    one = clip_of({t: (base[t].value, wanted[t]) for t in states}, error)
    each = [
        clip_of({t: (base[t].of_rank(rank), states[t].of_rank(rank)) for t in states}, error)
        for rank in range(step.size)
    ]
    known = [clip for clip in each if clip]
    if one is None or not known:
        return Cause("changed before the optimizer", [])
    right = norm_of(base[t].value for t in states)
    own, theirs = step.max_norm, step.one["max_norm"]
    by_limit = [abs(clip.factor - min(1.0, (own or 0) / right)) <= error for clip in known]
    if own and theirs and own != theirs and all(by_limit):
        text = f"max_norm is {own:.6g}, {own / theirs:.6g} times one rank's {theirs:.6g}"
        return Cause(text, ["max_norm", *names_of(own / theirs, step)], own / theirs)
    kinds = {clip.kind for clip in known}
    if kinds == {"not clipped"}:
        if one.kind == "changed":
            return Cause("not changed before the optimizer, on one rank it is", ["not changed"])
        return Cause(f"not clipped; on one rank: {one.text}", ["not clipped"])
    if one.kind == "not clipped" and kinds == {"factor"} and theirs is None:
        return only_on_ranks(step, known)
    if one.kind in ("factor", "not clipped") and kinds <= {"factor", "not clipped"}:
        return norm_cause(step, one, each, base)
    if kinds == {"tensors"} and by_own_norms(base, known[0].tensors, error):
        text = f"each tensor by its own norm; on one rank: {one.text}"
        return Cause(text, ["each tensor's norm"])
    if kinds == {one.kind} == {"value"}:
        k = known[0].factor / one.factor
        text = f"{known[0].text}, {k:.6g} times one rank's {one.factor:.5g}"
        return Cause(text, ["clipped by value", *names_of(k, step, error)], k)
    texts = [clip.text for clip in known]
    text = texts[0] if len(set(texts)) == 1 else f"{', '.join(texts)} (by rank)"
    names = ["clipped by value"] * (kinds == {"value"})
    return Cause(f"{text}; on one rank: {one.text}", names)


def only_on_ranks(step: JudgedStep, known: list[Clip]) -> Cause:
    """One rank does not change the gradient."""
    k = known[0].factor
    if k > 1:
        text = f"{k:.6g} times one rank's before the optimizer"
        return Cause(text, names_of(k, step, near(step)), k)
    return Cause(f"{known[0].text}; on one rank: not clipped", ["not clipped on one rank"])


def norm_cause(
    step: JudgedStep, one: Clip, each: list[Clip | None], base: dict[str, Whole]
) -> Cause:
    """By which norm each rank clips, when one rank clips by the whole gradient's."""
    right = norm_of(state.value for state in base.values())
    limit = step.max_norm or one.factor * right
    factors = [clip.factor if clip else np.nan for clip in each]
    names = norm_names(step, factors, limit, right, base)
    ranks = {
        kind: [r for r, clip in enumerate(each) if clip and clip.kind == kind] for kind in KINDS
    }
    if not names and all(ranks.values()):
        some, others = (", ".join(map(str, ranks[kind])) for kind in KINDS)
        text = f"clipped on rank {some}, not on rank {others}; on one rank: {one.text}"
        return Cause(text, ["clipped on some ranks"])
    implied = [f"{limit / k:.5g}" if k else "infinity" for k in factors]
    norms = implied[0] if len(set(implied)) == 1 else f"{', '.join(implied)} (by rank)"
    text = f"the norm of the whole gradient is {right:.5g}, clipped as by a norm of {norms}"
    return Cause(text, names, limit / factors[0] / right if factors[0] else np.inf)


def by_own_norms(base: dict[str, Whole], factors: dict[str, float], error: float) -> bool:
    """Does each tensor's own norm, next to one limit, explain its factor?"""
    norms = {t: float(np.linalg.norm(base[t].value)) for t in factors}
    clipped = [k * norms[t] for t, k in factors.items() if k < 1 - error]
    limit = max(clipped, default=0.0)
    wanted = {t: min(1.0, limit / norm) if norm else 1.0 for t, norm in norms.items()}
    return bool(clipped) and all(abs(k - wanted[t]) <= error for t, k in factors.items())


def norm_names(
    step: JudgedStep, factors: list[float], limit: float, right: float, base: dict[str, Whole]
) -> list[str]:
    """Which wrong norm explains the factor of every rank."""
    p, scale = step.size, step.scale or 1.0
    norms = [norm_of(state.of_rank(rank) for state in base.values()) for rank in range(p)]
    candidates = {
        "norm of each rank's shard alone": norms,
        "norm of each rank's own gradient": own_norms(step, list(base)),
        "the norm scaled by the loss scale": [right * scale] * p,
        "sqrt(p)": [right * p**0.5] * p,
        "1 / sqrt(p)": [right / p**0.5] * p,
        "p": [right * p] * p,
        "1 / p": [right / p] * p,
        "sum of the shards' norms": [sum(norms)] * p,
        "mean of the shards' norms": [sum(norms) / p] * p,
        "largest of the shards' norms": [max(norms)] * p,
        "norm_type inf": [max(float(np.abs(w.value).max(initial=0.0)) for w in base.values())] * p,
        "norm_type 1": [sum(float(np.abs(w.value).sum()) for w in base.values())] * p,
    }
    for kind, chosen in (("sharded", True), ("replicated", False)):
        part = [w.value for w in base.values() if w.sharded is chosen]
        if part and len(part) < len(base):
            candidates[f"norm of the {kind} tensors alone"] = [norm_of(part)] * p
    found, error = [], near(step)
    for name, values in candidates.items():
        pairs = [(k, v) for k, v in zip(factors, values) if np.isfinite(k)]
        differs = any(abs(v - right) > error * right for _, v in pairs)
        wanted = [min(1.0, limit / v) if v else 1.0 for _, v in pairs]
        if differs and all(abs(k - w) <= error * k for (k, _), w in zip(pairs, wanted)):
            found.append(name)
    return found


def own_norms(step: JudgedStep, tensors: list[str]) -> list[float]:
    """The norm of each rank's own gradient, before it is communicated."""
    return [
        norm_of(np.asarray(sum(own.get(t, 0.0) for own in calls)) for t in tensors)
        for calls in step.local
    ]


def norm_of(arrays: Iterable[np.ndarray]) -> float:
    return float(np.sqrt(sum((a**2).sum() for a in arrays)))


# -- weight decay that code of a step's own adds to gradients


def decays_alone(step: JudgedStep, tensors: list[str]) -> bool:
    """Does one rank's code add a multiple of the weights? That hides no factor of a gradient."""
    added = {t: step.of_one(t) - step.exact[t] for t in tensors}
    weights = {t: step.stages["before"][t].value for t in tensors}

    def decay(names: list[str]) -> bool:
        own, of, bound = flat(added, names), flat(weights, names), max(map(step.bounds.get, names))
        return own.size > 1 and multiple(own, of, bound) is not None  # not of any one number

    return decay(tensors) or all(decay([t]) for t in tensors)


def decay_cause(step: JudgedStep, states: dict[str, Whole], base: dict[str, Whole]) -> Cause | None:
    """What the optimizer gets is one rank's plus one multiple of the weights, for all tensors."""
    if not all(state.agree for state in states.values()):
        return None
    bound, alone = max(step.bounds[t] for t in states), flat(step.replay["used"], states)
    got, before, weights = (
        flat({t: own[t].value for t in states}) for own in (states, base, step.stages["before"])
    )
    c = multiple(got - alone, weights, bound)
    if not c:
        return None
    (_, one), value = fitted([before, weights], alone)  # one rank may clip before it decays
    text, names = f"one rank's before the optimizer plus {c:.4g} times the weights: ", []
    text += "weight decay in the gradient"
    if close(value, alone, bound) and not close(one * weights, 0.0, bound):
        text += f", {round(1 + c / one, 6) + 0.0:.4g} times one rank's"
        names = names_of(1 + c / one, step, RATIO_TOLERANCE)
    return Cause(text, ["weight decay in the gradient", *names], c)
