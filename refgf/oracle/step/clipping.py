"""Which norm the gradients were clipped by, when it is not the norm of the whole gradient."""

import numpy as np

from refgf.oracle.step.causes import RATIO_TOLERANCE, Cause
from refgf.oracle.step.stages import JudgedStep, Whole


def clip_cause(step: JudgedStep, states: dict[str, Whole], base: dict[str, Whole]) -> Cause:
    """states: gradients after clipping; base: before it."""
    wanted = step.replay["used"]
    right = np.sqrt(sum(float((base[t].value ** 2).sum()) for t in states))
    square = sum(float((base[t].value * wanted[t]).sum()) for t in states)
    coefficient = square / right**2 if right else 0.0
    limit = step.settings["max_norm"]
    limit = coefficient * right if limit is None else limit
    norms = rank_norms(base, step.size)
    used = []
    for rank in range(step.size):
        pairs = [(_own(states[t], rank), _own(base[t], rank)) for t in states]
        above = sum(float((x * y).sum()) for x, y in pairs)
        below = sum(float((y * y).sum()) for _, y in pairs)
        used.append(above / below if below else np.nan)
    known = [k for k in used if np.isfinite(k)]
    if known and max(abs(k - 1) for k in known) < RATIO_TOLERANCE:
        return "not clipped, on one rank it is", ["not clipped"], None
    implied = [limit / k if k else np.inf for k in used]
    text = f"clipped as by a norm of {', '.join(f'{n:.5g}' for n in implied)} (by rank); the "
    text += f"norm of the whole gradient is {right:.5g}"
    return text, norm_names(step, implied, right, norms, base), implied[0] / right


def norm_names(
    step: JudgedStep, implied: list[float], right: float, norms: list[float], base: dict[str, Whole]
) -> list[str]:
    """Which wrong norm explains the coefficient of every rank."""
    p, scale = step.size, step.settings["scale"] or 1.0
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
    }
    for kind, chosen in (("sharded", True), ("replicated", False)):
        part = [w.value for w in base.values() if w.sharded is chosen]
        if part and len(part) < len(base):
            norm = float(np.sqrt(sum((a**2).sum() for a in part)))
            candidates[f"norm of the {kind} tensors alone"] = [norm] * p
    found, near = [], max(1e-4, 16 * step.unit)
    for name, values in candidates.items():
        pairs = [(n, v) for n, v in zip(implied, values) if np.isfinite(n)]
        differs = any(abs(v - right) > near * right for _, v in pairs)
        if differs and all(abs(n - v) <= near * v for n, v in pairs):
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
