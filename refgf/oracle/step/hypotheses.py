"""Why is a gradient not the whole batch's? A table of hypotheses, tried on what was observed.

A hypothesis is a function of `Observed`: some tensors as one vector, and what it may be made of.
Where it explains every element but for rounding, it returns a cause, else None.

    multiples     of the right one (fits.py): all tensors of one factor together
    ALONE         each other tensor by itself
    TOGETHER      tensors that none of these explains, as one vector
"""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from refgf.oracle.step.compared import (
    Arrays,
    JudgedStep,
    Whole,
    close,
    explains,
    fitted,
    flat,
    multiple,
    same_everywhere,
)
from refgf.oracle.step.fits import (
    NEAR,
    RATIO_TOLERANCE,
    Cause,
    factor_causes,
    factor_text,
    fit,
    names_of,
    sample_cause,
)

LEAST_SHARE = 0.02  # of the largest weight: below it a share is lost
COARSE_UNIT = 2.0**-20  # types with larger roundings are of 16 bits
FEW_BITS = 2.0**-5  # of the largest element: coarser is no rounding of a gradient
LEAST_ZERO = 0.1  # of the elements: of a sparse sum
UNKNOWN = "no known pattern"
CLIPPED_SCALED = "clipped while scaled; next: scaler.unscale_(optimizer) first"
NOT_COMMUNICATED = Cause("not communicated: ranks hold different gradients", ["not communicated"])
CALL = (
    "next: call refgf.oracle.step.communicated() in train, after the sum over ranks and before "
    "code of its own clips gradients or decays weights"
)
CHANGED_APART = Cause(
    "ranks hold different gradients, which are not those of their samples: summed, then changed "
    f"differently on each rank, or packed in another order there; {CALL}",
    ["changed after communication"],
)


class Observed:
    """These tensors of a step, as one vector (n,)."""

    def __init__(self, step: JudgedStep, states: dict[str, Whole]):
        self.step, self.states, self.tensors = step, states, list(states)
        self.tensor, self.state = next(iter(states.items()))
        self.got = flat({t: state.value for t, state in states.items()})
        self.exact = flat(step.exact, self.tensors)
        self.bound = flat({t: np.full(step.exact[t].shape, step.bounds[t]) for t in states})
        self.most = max(step.bounds[t] for t in states)

    @cached_property
    def calls(self) -> list[np.ndarray]:
        """The gradient of each backward of each rank; none where hooks did not see them."""
        every = [own for calls in self.step.local for own in calls]
        seen = all(t in own for own in every for t in self.tensors)
        return [flat(own, self.tensors) for own in every] if seen else []

    @cached_property
    def own(self) -> list[np.ndarray]:
        """Each rank's own gradient."""
        return [flat(own) for own in self.step.own_gradients(self.tensors)]

    @cached_property
    def before(self) -> list[np.ndarray]:
        """Right gradients of the steps before, the last one first."""
        found, earlier = [], self.step.previous
        while earlier is not None and all(t in earlier.exact for t in self.tensors):
            found.append(flat(earlier.exact, self.tensors))
            earlier = earlier.previous
        return found


Hypothesis = Callable[[Observed], Cause | None]


def first(hypotheses: list[Hypothesis], wrong: Observed) -> Cause | None:
    """The first cause that holds."""
    return next((cause for hypothesis in hypotheses if (cause := hypothesis(wrong))), None)


def gradient_causes(step: JudgedStep, states: dict[str, Whole]) -> dict[str, Cause]:
    """Why these gradients are not the global batch's. What is not explained stands together."""
    found = factor_causes(step, states)
    for t in (t for t in states if t not in found):
        found[t] = first(ALONE, Observed(step, {t: states[t]})) or Cause(UNKNOWN, [])
    if CHANGED_APART in found.values():
        few = [t for t in found if found[t] == NOT_COMMUNICATED]  # of few elements, perhaps
        found |= {t: CHANGED_APART for t in few if is_own(Observed(step, {t: states[t]})) is None}
    unknown = [t for t, cause in found.items() if cause.text == UNKNOWN]
    vague = [t for t, cause in found.items() if cause.factor and not cause.names]
    factors = {found[t].text for t in vague}
    if step.unit > COARSE_UNIT and (unknown or len(factors) > 1):
        unknown += vague  # a factor of some tensors is no explanation where others have none
    if unknown:
        wrong = Observed(step, {t: states[t] for t in unknown})
        cause = mixture(wrong)
        other = None if cause or same_everywhere(step) else sample_cause(step, states)
        if other:  # it changes every tensor
            return dict.fromkeys(states, with_calls(step, other))
        found |= dict.fromkeys(unknown, cause or first(TOGETHER, wrong) or unexplained(wrong))
    for t in states.keys() & step.stages["clip"].keys():
        if "loss scale" in found[t].names:
            text = f"{found[t].text} = loss scale; {CLIPPED_SCALED}"
            found[t] = found[t]._replace(text=text)
    return {t: found[t] for t in states}


def unexplained(wrong: Observed) -> Cause:
    got = {t: state.value for t, state in wrong.states.items()}
    return with_calls(wrong.step, farthest(got, wrong.step.exact))


def farthest(got: Arrays, wanted: Arrays) -> Cause:
    """The element that is off by most."""
    t = max(got, key=lambda t: np.abs(got[t] - wanted[t]).max())
    i = np.unravel_index(np.argmax(np.abs(got[t] - wanted[t])), got[t].shape)
    place = f"{t}{list(map(int, i))}"
    return Cause(f"{UNKNOWN}; {place} is {got[t][i]:.6g}, wanted {wanted[t][i]:.6g}", [])


def with_calls(step: JudgedStep, cause: Cause) -> Cause:
    if step.calls == step.calls_of_one:
        return cause
    counts = f"{step.calls} backward calls on each of the p ranks, {step.calls_of_one} on one"
    return cause._replace(text=f"{cause.text}; {counts}: is one left out?")


# -- each tensor by itself


def ranks_differ(wrong: Observed) -> Cause | None:
    if wrong.state.agree:
        return None
    return part_of_a_buffer(wrong) or (
        CHANGED_APART if is_own(wrong) is False else NOT_COMMUNICATED
    )


def part_of_a_buffer(wrong: Observed) -> Cause | None:
    """Some elements are right on all ranks, and the others each rank's own."""
    copies = [copy.ravel() for copy in wrong.state.copies]
    apart = np.any([copy != copies[0] for copy in copies], axis=0)
    right = np.where(apart, wrong.exact, copies[0])
    if len(copies) != len(wrong.own) or apart.all() or not close(right, wrong.exact, wrong.most):
        return None
    for k in (1, 1 / wrong.step.size):
        if all(close(c[apart], k * o[apart], wrong.most) for c, o in zip(copies, wrong.own)):
            first, last = np.flatnonzero(apart)[[0, -1]]
            text = f"elements {first} to {last} of {len(apart)} are not communicated, others are"
            text += "; next: send the last part of a flat buffer, too"
            return Cause(text, ["not communicated", "part"])
    return None


def is_own(wrong: Observed) -> bool | None:
    """Do ranks differ by gradients of their own samples? None: not known."""
    each = len(wrong.calls) // wrong.step.size
    for rank in range(1, wrong.step.size):
        columns = wrong.calls[:each] + wrong.calls[rank * each : (rank + 1) * each]
        apart = (wrong.state.copies[rank] - wrong.state.copies[0]).ravel()
        if not each or len(apart) < 2 * len(columns) or not np.isfinite(columns).all():
            return None
        if not explains(apart, fitted(columns, apart)[1], 0 * apart):
            return False
    return True


def of_owner(wrong: Observed) -> Cause | None:
    owner = wrong.step.owner(wrong.tensor)
    if owner is None or not wrong.own or not close(wrong.got, wrong.own[owner], wrong.most):
        return None
    text = "the one rank whose optimizer has it uses the gradient of its own samples"
    return Cause(f"not communicated: {text}", ["not communicated", "owner"])


def no_number(wrong: Observed) -> Cause | None:
    if not np.isfinite(wrong.got).all():
        return Cause("not finite: infinity or NaN", ["not finite"])
    return None if wrong.got.any() else Cause("zero: no gradient arrives", ["zero"], 0.0)


def of_before(wrong: Observed) -> Cause | None:
    if not wrong.before:
        return None
    bound, total = wrong.most + wrong.step.previous.bounds[wrong.tensor], wrong.exact

    def is_(value: np.ndarray, bound: float) -> bool:
        return close(wrong.got, value, bound) and explains(wrong.got, value, wrong.exact)

    if is_(wrong.before[0], bound):
        return Cause("stale: the gradient of the step before", ["stale"])
    for back, earlier in enumerate(wrong.before, start=1):
        total = total + earlier
        if is_(total, bound * (back + 1)):
            steps = f"{back} step{'s' * (back > 1)}"
            return Cause(f"added to the gradients of {steps} before", ["not zeroed"])
    return None


def shard(wrong: Observed) -> Cause | None:
    """A factor for each rank's slice."""
    step, state, exact = wrong.step, wrong.state, wrong.step.exact[wrong.tensor]
    found, wanted = [], exact.copy()
    for place in slices(state, step.size):
        got = state.value[place]
        if not state.sharded and got.size < 2:  # any number is a multiple of any other
            return None
        k = 0.0 if not got.any() else multiple(got, exact[place], wrong.most)
        if k is None:
            return None
        found.append(k)
        wanted[place] = k * exact[place]
    off = {rank: k for rank, k in enumerate(found) if abs(k - 1) > RATIO_TOLERANCE}
    if not off or len(off) == len(found) or not explains(state.value, wanted, exact):
        return None
    rank, k = next(iter(off.items()))
    names = [f"shard of rank {rank}", *names_of(k, step)]
    names += ["twice"] * (abs(k - 2) < RATIO_TOLERANCE)
    others = f" (also of ranks {', '.join(map(str, list(off)[1:]))})" if len(off) > 1 else ""
    text = f"the shard of rank {rank} alone is {k:.6g} times what it should be{others}"
    return Cause(text, names, k)


def slices(state: Whole, size: int) -> list[tuple[slice, ...]]:
    """Each rank's shard; of a whole tensor p slices of its first dimension."""
    if state.sharded or not state.value.ndim:
        return state.shards if state.sharded else []
    each = -(-len(state.value) // size)
    return [(slice(start, start + each),) for start in range(0, len(state.value), each)]


def decay_in_gradient(wrong: Observed) -> Cause | None:
    """The right gradient plus a multiple of the weights."""
    step, t = wrong.step, wrong.tensor
    weights = step.stages["before"][t].value.ravel()
    c = multiple(wrong.got - wrong.exact, weights, wrong.most)
    if not c:
        return None
    alone = step.of_one(t)
    one = None if alone is None else multiple(alone.ravel() - wrong.exact, weights, wrong.most)
    text, names = f"the gradient plus {c:.6g} times the weights: weight decay in the gradient", []
    decays = ("the optimizer's", step.setting(t, "weight_decay")), ("one rank's", one)
    for whose, decay in (pair for pair in decays if pair[1]):
        text += f", {c / decay:.4g} times {whose}"
        names += names_of(c / decay, step)
    return Cause(text, ["weight decay in the gradient", *names], c)


# -- several tensors together


def mixture(wrong: Observed) -> Cause | None:
    """Which weights the shares of ranks and backward calls have, next to those they should have."""
    step, columns, got, exact = wrong.step, wrong.calls, wrong.got, wrong.exact
    if not columns or len(got) < 2 * len(columns) or not np.isfinite(columns).all():
        return None
    bound = 4 * wrong.most + 64 * step.unit * np.abs(got).max()
    (have, as_got), (want, as_exact) = (fitted(columns, y) for y in (got, exact))
    if not (close(as_got, got, bound) and close(as_exact, exact, bound)):
        return None
    if not (explains(got, as_got, exact) and explains(exact, as_exact, got)):
        return None
    ratios = have / np.where(np.abs(want) > LEAST_SHARE * np.abs(want).max(), want, np.nan)
    lost = np.abs(have) < LEAST_SHARE * np.abs(have).max()
    lost &= np.isfinite(ratios)
    if lost.any():
        names = [step.labels[i] for i in np.flatnonzero(lost)]
        return Cause(f"lost: the gradient of {', '.join(names)} is not in it", ["lost", *names])
    if np.ptp(ratios) <= max(NEAR, 8 * step.unit) * np.abs(ratios).max():
        own = fit(step, wrong.states, wrong.tensors)
        return factor_text(own.k, step, own.error)
    weights = ", ".join(f"{label} {ratio:.4g}" for label, ratio in zip(step.labels, ratios))
    return Cause(
        "wrong weights of unequal shares, a mean of means over samples or tokens? "
        f"Times what each should be: {weights}",
        ["shares weighted wrongly"],
    )


def same_data(wrong: Observed) -> Cause | None:
    if not same_everywhere(wrong.step):
        return None
    return Cause(
        "every rank computes the gradient of the same samples, which are not the whole batch; "
        "next: give rank r its own samples, as batch[rank::size] or a DistributedSampler does",
        ["same samples"],
    )


def another_loss(wrong: Observed) -> Cause | None:
    own = wrong.step.replay["backward"]
    if any(t not in own for t in wrong.tensors):
        return None
    if not close(wrong.got, flat(own, wrong.tensors), 2 * wrong.bound):
        return None
    return Cause(
        "as on one rank, where train computes another function than `loss`; next: let loss(model, "
        "batch) return what train means, the mean over the whole batch",
        ["another loss"],
    )


def other_order(wrong: Observed) -> Cause | None:
    if not close(np.sort(wrong.got), np.sort(wrong.exact), wrong.most):
        return None
    return Cause(
        "the right elements at other places: a flat buffer unpacked in another order than packed?",
        ["another order"],
    )


def of_own_gradients(wrong: Observed) -> Iterator[tuple[np.ndarray, int, str, str]]:
    """What ranks' own gradients may have become: (vector, bounds that it may be off, cause)"""
    p = len(wrong.own)
    for name, of in ("MAX", np.maximum), ("MIN", np.minimum):
        text = f"of each element the one of one rank's gradients: ReduceOp.{name}"
        yield of.reduce(wrong.own), 2, text, name
        yield of.reduce(wrong.own) / p, 2, f"{text}, divided by p", name
    yield (
        sum(wrong.own) / p,
        4,
        "the mean of ranks' own gradients, so communicated rightly; but ranks have other samples "
        "than batch(seed), or compute another function than `loss`; next: compare them",
        "own gradients",
    )


def reduced_otherwise(wrong: Observed) -> Cause | None:
    for vector, bounds, text, name in of_own_gradients(wrong) if wrong.own else ():
        if close(wrong.got, vector, bounds * wrong.bound):
            return with_calls(wrong.step, Cause(text, [name]))
    return None


def blended(wrong: Observed) -> Cause | None:
    """A part of the step before: its right gradient, or what the optimizer got."""
    befores = wrong.before[:1]
    if befores:
        used = {t: w.value for t, w in wrong.step.previous.stages["used"].items()}
        befores += [flat(used, wrong.tensors)] if all(t in used for t in wrong.tensors) else []
    for earlier in befores:
        (now, then), value = fitted([wrong.exact, earlier], wrong.got)
        near = len(wrong.got) > 2 and close(value, wrong.got, 4 * wrong.bound)
        if near and abs(then) > 1e-3:
            text = f"{now:.4g} times the right one plus {then:.4g} times that of the step before"
            return with_calls(wrong.step, Cause(f"{text}: stale in part", ["stale"]))
    return None


def sparse(wrong: Observed) -> Cause | None:
    """Zeros, and elsewhere the sum over all ranks, or over those that sent the element."""
    got, exact, own, bound = wrong.got, wrong.exact, wrong.own, wrong.bound
    zeros = (got == 0) & (np.abs(exact) > bound)
    if zeros.mean() < LEAST_ZERO or not got.any():
        return None
    near = np.abs(got - exact) <= bound
    for chosen in range(1, 1 << len(own)) if len(own) <= 8 else ():
        some = sum(g for rank, g in enumerate(own) if chosen >> rank & 1) / len(own)
        near |= np.abs(got - some) <= 2 * bound
    if not near[got != 0].all():
        return None
    text = f"zero in {int(zeros.sum())} of {len(got)} elements, elsewhere sums of ranks' gradients"
    return with_calls(wrong.step, Cause(f"{text}: sparsified, as by top-k?", ["sparsified"]))


def few_bits(wrong: Observed) -> Cause | None:
    """Every tensor is near the right one, by a share of its largest element."""
    pairs = [(state.value, wrong.step.exact[t]) for t, state in wrong.states.items()]
    shares = [np.abs(got - g).max() / np.abs(g).max() for got, g in pairs if g.any()]
    if not shares or max(shares) > FEW_BITS or wrong.step.unit > FEW_BITS**3:
        return None
    bits = int(-np.log2(max(shares)))
    text = f"right to about {bits} bits of its largest element: quantised, or noise added?"
    return with_calls(wrong.step, Cause(text, ["few bits"]))


def in_fine_types(hypothesis: Hypothesis) -> Hypothesis:
    """One that the rounding of 16 bits would hide."""
    return lambda wrong: hypothesis(wrong) if wrong.step.unit < COARSE_UNIT else None


ALONE = [ranks_differ, of_owner, no_number, of_before, shard, decay_in_gradient]
FINE = [other_order, reduced_otherwise, blended, sparse, few_bits]
TOGETHER = [same_data, another_loss, *map(in_fine_types, FINE)]
