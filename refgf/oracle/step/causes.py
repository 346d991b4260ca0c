"""What a wrong stage looks like: names of factors, and of other mistakes.

A cause is (sentence, names, factor). The sentence says what was found, `names` which quantities of
this training explain it, and `factor` by how much, if there is one number.
"""

import numpy as np

from refgf.oracle.step.decay import decay_in_gradient
from refgf.oracle.step.factors import (
    NEAR,
    RATIO_TOLERANCE,
    Cause,
    factor_causes,
    factor_text,
    fit,
    names_of,
)
from refgf.oracle.step.patterns import pattern_cause
from refgf.oracle.step.samples import own_gradients, sample_cause
from refgf.oracle.step.stages import JudgedStep, Whole, close, explains, multiple

LEAST_SHARE = 0.02  # of the largest weight: below it a share is lost
COARSE_UNIT = 2.0**-20  # types with larger roundings are of 16 bits
UNKNOWN = "no known pattern"
CLIPPED_EARLY: Cause = (
    "each rank clips its own gradient, and communicates afterwards; "
    "next: clip what was communicated",
    ["clipped before communication"],
    None,
)
SAME_DATA: Cause = (
    "every rank computes the gradient of the same samples, which are not the whole batch; next: "
    "give rank r its own samples, as batch[rank::size] or a DistributedSampler does",
    ["same samples"],
    None,
)
OTHER_ORDER: Cause = (
    "the right elements at other places: a flat buffer unpacked in another order than packed?",
    ["another order"],
    None,
)
CLIPPED_SCALED = "clipped while scaled; next: scaler.unscale_(optimizer) first"
ANOTHER_LOSS: Cause = (
    "as on one rank, where train computes another function than `loss`; next: let loss(model, "
    "batch) return what train means, the mean over the whole batch",
    ["another loss"],
    None,
)
NOT_COMMUNICATED: Cause = (
    "not communicated: ranks hold different gradients",
    ["not communicated"],
    None,
)
NOT_COMMUNICATED_TO_OWNER: Cause = (
    "not communicated: the one rank whose optimizer has it uses the gradient of its own samples",
    ["not communicated", "owner"],
    None,
)
CALL = (
    "next: call refgf.oracle.step.communicated() in train, after the sum over ranks and before "
    "code of its own clips gradients or decays weights"
)
CHANGED_APART: Cause = (
    "ranks hold different gradients, which are not those of their samples: summed, then changed "
    f"differently on each rank; {CALL}",
    ["changed after communication"],
    None,
)


def gradient_causes(step: JudgedStep, states: dict[str, Whole]) -> dict[str, Cause]:
    """Why these gradients are not the global batch's. What is not explained stands together."""
    found = factor_causes(step, states)
    found |= {t: _other_cause(step, t, state) for t, state in states.items() if t not in found}
    if CHANGED_APART in found.values():
        few = [t for t in found if found[t] == NOT_COMMUNICATED]  # of few elements, perhaps
        found |= {t: CHANGED_APART for t in few if _is_own(step, t, states[t]) is None}
    unknown = [t for t, cause in found.items() if cause[0] == UNKNOWN]
    vague = [t for t, (_, names, k) in found.items() if k and not names]
    factors = {found[t][0] for t in vague}
    if step.unit > COARSE_UNIT and (unknown or len(factors) > 1):
        unknown += vague  # a factor of some tensors is no explanation where others have none
    if unknown:
        cause = mixture_cause(step, unknown, states)
        other = None if cause or same_everywhere(step) else sample_cause(step, states)
        if other:  # it changes every tensor
            return dict.fromkeys(states, (other[0] + _calls_left_out(step), *other[1:]))
        found |= dict.fromkeys(unknown, cause or _unknown(step, unknown, states))
    for t in states.keys() & step.stages["clip"].keys():
        text, names, k = found[t]
        if "loss scale" in names:
            found[t] = f"{text} = loss scale; {CLIPPED_SCALED}", names, k
    return {t: found[t] for t in states}


def _other_cause(step: JudgedStep, tensor: str, state: Whole) -> Cause:
    if not state.agree:
        return CHANGED_APART if _is_own(step, tensor, state) is False else NOT_COMMUNICATED
    owner = step.settings["owners"].get(tensor)
    own = [] if owner is None else own_gradients(step, [tensor])[owner : owner + 1]
    if own and close(state.value, own[0][tensor], step.bounds[tensor]):
        return NOT_COMMUNICATED_TO_OWNER
    got = state.value
    if not np.isfinite(got).all():
        return "not finite: infinity or NaN", ["not finite"], None
    if not got.any():
        return "zero: no gradient arrives", ["zero"], 0.0
    return (
        _of_before(step, tensor, got)
        or _of_shards(step, tensor, state)
        or decay_in_gradient(step, tensor, got)
        or (UNKNOWN, [], None)
    )


def _is_own(step: JudgedStep, tensor: str, state: Whole) -> bool | None:
    """Do ranks differ by gradients of their own samples? None: not known."""
    each = len(step.local) // step.size
    if not each or any(tensor not in own for own in step.local):
        return None
    local = [own[tensor].ravel() for own in step.local]
    for rank in range(1, step.size):
        columns = np.stack(local[:each] + local[rank * each : (rank + 1) * each], axis=1)
        apart = (state.copies[rank] - state.copies[0]).ravel()
        if len(apart) < 2 * columns.shape[1] or not np.isfinite(columns).all():
            return None
        weights = np.linalg.lstsq(columns, apart, rcond=None)[0]
        if not explains(apart, columns @ weights, 0 * apart):
            return False
    return True


def _unknown(step: JudgedStep, tensors: list[str], states: dict[str, Whole]) -> Cause:
    """Of all these tensors together: the same samples, another order, or no pattern."""
    if same_everywhere(step):
        return SAME_DATA
    own = {t: step.replay["backward"].get(t) for t in tensors}
    if all(own[t] is not None and close(states[t].value, own[t], 2 * step.bounds[t]) for t in own):
        return ANOTHER_LOSS
    got, exact = (
        {t: a[t] for t in tensors} for a in ({t: w.value for t, w in states.items()}, step.exact)
    )
    ordered = [np.sort(np.concatenate([a.ravel() for a in own.values()])) for own in (got, exact)]
    if step.unit < COARSE_UNIT and close(*ordered, max(step.bounds.values())):
        return OTHER_ORDER
    pattern = pattern_cause(step, got, exact) if step.unit < COARSE_UNIT else None
    if pattern:
        return pattern[0] + _calls_left_out(step), *pattern[1:]
    text, names, factor = unknown(got, exact)
    return text + _calls_left_out(step), names, factor


def _calls_left_out(step: JudgedStep) -> str:
    calls, alone = step.settings["calls"], step.settings["calls_of_one"]
    if calls == alone:
        return ""
    return f"; {calls} backward calls on each of the p ranks, {alone} on one: is one left out?"


def unknown(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> Cause:
    """The element that is off by most."""
    t = max(got, key=lambda t: np.abs(got[t] - wanted[t]).max())
    i = np.unravel_index(np.argmax(np.abs(got[t] - wanted[t])), got[t].shape)
    place = f"{t}{list(map(int, i))}"
    return f"{UNKNOWN}; {place} is {got[t][i]:.6g}, wanted {wanted[t][i]:.6g}", [], None


def _of_before(step: JudgedStep, tensor: str, got: np.ndarray) -> Cause | None:
    before = step.previous
    if before is None or tensor not in before.exact:  # frozen then
        return None
    bound = step.bounds[tensor] + before.bounds[tensor]
    stale = before.exact[tensor]
    if close(got, stale, bound) and explains(got, stale, step.exact[tensor]):
        return "stale: the gradient of the step before", ["stale"], None
    exact = step.exact[tensor]
    earlier, sums = before, []
    while earlier is not None and tensor in earlier.exact:
        sums.append(earlier.exact[tensor] + (sums[-1] if sums else 0))
        earlier = earlier.previous
    for back, total in enumerate(sums, start=1):
        near = close(got, exact + total, bound * (back + 1))
        if near and explains(got, exact + total, exact):
            steps = f"{back} step{'s' * (back > 1)}"
            return f"added to the gradients of {steps} before", ["not zeroed"], None
    return None


def whole_batch_everywhere(step: JudgedStep) -> bool:
    """Is every rank's own gradient the same, and a multiple of the whole batch's?"""
    if not same_everywhere(step):
        return False
    first = step.local[: len(step.local) // step.size]
    sums = {t: sum(own[t] for own in first) for t in step.exact}
    moving = [t for t, exact in step.exact.items() if exact.any()]
    return all(multiple(sums[t], step.exact[t], step.bounds[t]) is not None for t in moving)


def same_everywhere(step: JudgedStep) -> bool:
    """Do all ranks' own gradients have the same bits?

    Only where every sample of the batch is another one: equal shares have equal gradients. Without
    hooks on tensors, as in FSDP, own gradients are not known: False.
    """
    if not step.settings["distinct"] or not step.local or not any(map(np.any, step.exact.values())):
        return False
    each = len(step.local) // step.size
    first = step.local[:each]
    for rank in range(1, step.size):
        for mine, other in zip(first, step.local[rank * each : (rank + 1) * each]):
            if not set(mine) == set(other) == set(step.exact):
                return False
            if any(not np.array_equal(mine[t], other[t]) for t in mine):
                return False
    return True


def slices(state: Whole, size: int) -> list[tuple[slice, ...]]:
    """Each rank's shard; of a whole tensor p slices of its first dimension."""
    if state.sharded:
        return state.shards
    length = len(state.value) if state.value.ndim else 1
    each = -(-length // size)
    starts = range(0, length, each)
    return [(slice(start, start + each),) for start in starts] if state.value.ndim else []


def _of_shards(step: JudgedStep, tensor: str, state: Whole) -> Cause | None:
    """A factor for each rank's slice."""
    found, wanted = [], step.exact[tensor].copy()
    for place in slices(state, step.size):
        got, exact = state.value[place], step.exact[tensor][place]
        if not state.sharded and exact.size < 2:  # any number is a multiple of any other
            return None
        k = 0.0 if not got.any() else multiple(got, exact, step.bounds[tensor])
        if k is None:
            return None
        found.append(k)
        wanted[place] = k * exact
    if not explains(state.value, wanted, step.exact[tensor]):
        return None
    off = {rank: k for rank, k in enumerate(found) if abs(k - 1) > RATIO_TOLERANCE}
    if not off or len(off) == len(found):
        return None
    rank, k = next(iter(off.items()))
    names = [f"shard of rank {rank}", *names_of(k, step)]
    if abs(k - 2) < RATIO_TOLERANCE:
        names.append("twice")
    others = f" (also of ranks {', '.join(map(str, list(off)[1:]))})" if len(off) > 1 else ""
    return f"the shard of rank {rank} alone is {k:.6g} times what it should be{others}", names, k


def mixture_cause(step: JudgedStep, tensors: list[str], states: dict[str, Whole]) -> Cause | None:
    """Which weights the shares of ranks and backward calls have, next to those they should have."""
    if not step.local or any(t not in own for t in tensors for own in step.local):
        return None

    def flat(arrays: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([arrays[t].ravel() for t in tensors])

    columns = np.stack([flat(own) for own in step.local], axis=1)
    got, exact = flat({t: states[t].value for t in tensors}), flat(step.exact)
    if len(got) < 2 * columns.shape[1] or not np.isfinite(columns).all():
        return None
    bound = 4 * max(step.bounds[t] for t in tensors) + 64 * step.unit * np.abs(got).max()
    have, want = (np.linalg.lstsq(columns, y, rcond=None)[0] for y in (got, exact))
    if not (close(columns @ have, got, bound) and close(columns @ want, exact, bound)):
        return None
    if not (explains(got, columns @ have, exact) and explains(exact, columns @ want, got)):
        return None
    ratios = have / np.where(np.abs(want) > LEAST_SHARE * np.abs(want).max(), want, np.nan)
    lost = np.abs(have) < LEAST_SHARE * np.abs(have).max()
    lost &= np.isfinite(ratios)
    if lost.any():
        names = [step.labels[i] for i in np.flatnonzero(lost)]
        return f"lost: the gradient of {', '.join(names)} is not in it", ["lost", *names], None
    if np.ptp(ratios) <= max(NEAR, 8 * step.unit) * np.abs(ratios).max():
        own = fit(step, states, tensors)
        return factor_text(own.k, step, own.error)
    weights = ", ".join(f"{label} {ratio:.4g}" for label, ratio in zip(step.labels, ratios))
    return (
        "wrong weights of unequal shares, a mean of means over samples or tokens? "
        f"Times what each should be: {weights}",
        ["shares weighted wrongly"],
        None,
    )
