"""How the gradients were clipped, where one rank clips the same gradients otherwise.

form of each rank, and of one rank      not clipped, by one factor, by value, each tensor
by one factor                           by which norm: limit / factor
"""

from dataclasses import dataclass, field

import numpy as np

from refgf.oracle.step.factors import Cause, names_of
from refgf.oracle.step.stages import JudgedStep, Whole, close

Pairs = dict[str, tuple[np.ndarray, np.ndarray]]  # {tensor: (before, after)}
LEAST_NEAR = 1e-4  # relative; coarser types have larger roundings
KINDS = "factor", "not clipped"
SHOWN = 4  # tensors in a sentence


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
    before, after = (np.concatenate([pair[i].ravel() for pair in pairs.values()]) for i in (0, 1))
    square = float((before * before).sum())
    k = float((after * before).sum()) / square if square else 1.0
    rest = np.linalg.norm(after - k * before)
    return k if rest <= error * max(abs(k) * square**0.5, np.linalg.norm(after)) else None


def clip_of(pairs: Pairs, error: float) -> Clip | None:
    """How these gradients were changed. None where all are 0, as in an empty shard."""
    if not any(before.any() for before, _ in pairs.values()):
        return None
    k = factor_of(pairs, error)
    norm = float(np.sqrt(sum((after**2).sum() for _, after in pairs.values())))
    if k is not None and abs(k - 1) <= error:
        return Clip("not clipped", "not clipped")
    if k is not None:
        return Clip("factor", f"clipped to a norm of {norm:.5g}", k)
    limit = max(float(np.abs(after).max(initial=0.0)) for _, after in pairs.values())
    if all(close(np.clip(b, -limit, limit), a, error * limit) for b, a in pairs.values()):
        return Clip("value", f"clipped by value at {limit:.5g}", limit)
    each = {t: factor_of({t: pair}, error) for t, pair in pairs.items()}
    if all(each[t] is not None for t in each):
        untouched = [t for t, own in each.items() if abs(own - 1) <= error]
        text = "clipped by another factor in each tensor"
        if untouched:
            names = ", ".join(untouched[:SHOWN]) + ", ..." * (len(untouched) > SHOWN)
            text += f", not in {names}"
        return Clip("tensors", text, tensors=each)
    return Clip("changed", "changed, by no one factor")


def clip_cause(step: JudgedStep, states: dict[str, Whole], base: dict[str, Whole]) -> Cause:
    """states: gradients after clipping; base: before it."""
    wanted, error = step.replay["used"], near(step)
    one = clip_of({t: (base[t].value, wanted[t]) for t in states}, error)
    each = [
        clip_of({t: (_own(base[t], rank), _own(states[t], rank)) for t in states}, error)
        for rank in range(step.size)
    ]
    known = [clip for clip in each if clip]
    if one is None or not known:
        return "changed before the optimizer", [], None
    right = float(np.sqrt(sum((base[t].value ** 2).sum() for t in states)))
    own, theirs = step.settings["max_norm"], step.settings["one"]["max_norm"]
    by_limit = [abs(clip.factor - min(1.0, (own or 0) / right)) <= error for clip in known]
    if own and theirs and own != theirs and all(by_limit):
        text = f"max_norm is {own:.6g}, {own / theirs:.6g} times one rank's {theirs:.6g}"
        return text, ["max_norm", *names_of(own / theirs, step)], own / theirs
    kinds = {clip.kind for clip in known}
    if kinds == {"not clipped"}:
        if one.kind == "changed":
            return "not changed before the optimizer, on one rank it is", ["not changed"], None
        return f"not clipped; on one rank: {one.text}", ["not clipped"], None
    if one.kind == "not clipped" and kinds == {"factor"} and theirs is None:
        return only_on_ranks(step, known)
    if one.kind in ("factor", "not clipped") and kinds <= {"factor", "not clipped"}:
        return norm_cause(step, one, each, base)
    if kinds == {"tensors"} and by_own_norms(base, known[0].tensors, error):
        return f"each tensor by its own norm; on one rank: {one.text}", ["each tensor's norm"], None
    if kinds == {one.kind} == {"value"}:
        k = known[0].factor / one.factor
        text = f"{known[0].text}, {k:.6g} times one rank's {one.factor:.5g}"
        return text, ["clipped by value", *names_of(k, step, error)], k
    texts = [clip.text for clip in known]
    text = texts[0] if len(set(texts)) == 1 else f"{', '.join(texts)} (by rank)"
    return f"{text}; on one rank: {one.text}", ["clipped by value"] * (kinds == {"value"}), None


def only_on_ranks(step: JudgedStep, known: list[Clip]) -> Cause:
    """One rank does not change the gradient."""
    k = known[0].factor
    if k > 1:
        return f"{k:.6g} times one rank's before the optimizer", names_of(k, step, near(step)), k
    return f"{known[0].text}; on one rank: not clipped", ["not clipped on one rank"], None


def norm_cause(
    step: JudgedStep, one: Clip, each: list[Clip | None], base: dict[str, Whole]
) -> Cause:
    """By which norm each rank clips, when one rank clips by the whole gradient's."""
    right = float(np.sqrt(sum((state.value**2).sum() for state in base.values())))
    limit = step.settings["max_norm"] or one.factor * right
    factors = [clip.factor if clip else np.nan for clip in each]
    names = norm_names(step, factors, limit, right, base)
    ranks = {
        kind: [r for r, clip in enumerate(each) if clip and clip.kind == kind] for kind in KINDS
    }
    if not names and all(ranks.values()):
        some, others = (", ".join(map(str, ranks[kind])) for kind in KINDS)
        text = f"clipped on rank {some}, not on rank {others}; on one rank: {one.text}"
        return text, ["clipped on some ranks"], None
    implied = [f"{limit / k:.5g}" if k else "infinity" for k in factors]
    norms = implied[0] if len(set(implied)) == 1 else f"{', '.join(implied)} (by rank)"
    text = f"the norm of the whole gradient is {right:.5g}, clipped as by a norm of {norms}"
    return text, names, limit / factors[0] / right if factors[0] else np.inf


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
    p, scale, norms = step.size, step.settings["scale"] or 1.0, rank_norms(base, step.size)
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
            norm = float(np.sqrt(sum((a**2).sum() for a in part)))
            candidates[f"norm of the {kind} tensors alone"] = [norm] * p
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
    totals = [dict.fromkeys(tensors, 0.0) for _ in range(step.size)]
    each = len(step.local) // step.size
    for i, own in enumerate(step.local):
        for t in tensors:
            totals[i // each][t] = totals[i // each][t] + own.get(t, 0.0)
    return [float(np.sqrt(sum(np.sum(a**2) for a in total.values()))) for total in totals]


def _own(state: Whole, rank: int) -> np.ndarray:
    return state.value[state.shards[rank]] if state.sharded else state.copies[rank]


def rank_norms(base: dict[str, Whole], size: int) -> list[float]:
    """The norm of what each rank holds of the gradient."""
    return [
        float(np.sqrt(sum((_own(state, rank) ** 2).sum() for state in base.values())))
        for rank in range(size)
    ]
