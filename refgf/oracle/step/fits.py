"""Fits: is a gradient a multiple of the right one, or that of other samples?

A factor must explain the numbers of all its tensors: they are fitted together, and the residual of
the fit says how exactly the factor is known. It has a name only where that is as close.

    got = sum over samples i of have_i g_i        exact = sum over samples i of want_i g_i

g_i is the gradient of `loss` of sample i alone, in float64. Both sums are fitted by least squares:
have_i / want_i says how often sample i counts. A weight is off by at most sum_j |pinv_ij| bound_j.
Nothing is said where that is too much, as in 16 bits or with more samples than can be told apart,
and where a fit leaves more than rounding: then `loss` is no sum over samples, or the mistake is
another one.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from refgf.oracle.step.compared import JudgedStep, Whole, close, explains, factor, flat, multiple

RATIO_TOLERANCE = 0.01
NEAR, ERRORS = 1e-4, 3.0  # relative; and of how many standard errors a factor may be off
KNOWN = 0.1  # of a weight: the error allowed, and how small the weight of a lost sample is
INTEGER = 0.2  # relative: a mean over more samples than one rank should have gives each less
NEXT = "next: print which samples of batch(seed) each rank takes"


class Cause(NamedTuple):
    """What was found, which quantities of this training explain it, and by how much, if known."""

    text: str
    names: list[str]
    factor: float | None = None


def named_factors(step: JudgedStep) -> dict[str, float]:
    """Quantities of this training by which a gradient or an update may be off."""
    p, calls, scale = step.size, step.calls, step.scale
    found = {"p": p}
    for group in range(2, p):
        if p % group == 0:
            found[f"a group of {group} ranks (expert or tensor parallel)"] = group
    if calls > 1:
        found |= {"accumulation steps": calls, "p x accumulation steps": p * calls}
    if scale not in (None, 1.0):
        found |= {"loss scale": scale, "loss scale / p": scale / p}
    for what, count in step.answer["counts"].items():
        found |= {what: count, f"{what} / p": count / p}
        found |= {f"{what} / (p x accumulation steps)": count / p / calls} if calls > 1 else {}
    found |= {"p squared": p * p, "sqrt(p)": p**0.5}
    both = {}
    for name, value in found.items():
        both[name] = float(value)
        both[f"1 / {name}" if " " not in name else f"1 / ({name})"] = 1 / value
    return {name: value for name, value in both.items() if value != 1}


def names_of(k: float, step: JudgedStep, error: float = 0.0) -> list[str]:
    """Which quantities are k, as exactly as it is known."""
    near = max(1e-4, min(RATIO_TOLERANCE, error))
    return [name for name, value in named_factors(step).items() if abs(k / value - 1) <= near]


def factor_text(k: float, step: JudgedStep, error: float = 0.0) -> Cause:
    return Cause(f"{k:.6g} times what it should be", names_of(k, step, error), k)


@dataclass
class FactorFit:
    """got = k exact for these tensors. error: of k, relative."""

    k: float
    error: float
    tensors: list[str]

    def near(self, other: "FactorFit") -> bool:
        least = min(RATIO_TOLERANCE * 5, self.error + other.error)
        return abs(self.k / other.k - 1) <= max(NEAR, least)


def fit(step: JudgedStep, states: dict[str, Whole], tensors: list[str]) -> FactorFit:
    """Least squares over the elements of all these tensors."""
    got, exact = flat({t: states[t].value for t in tensors}), flat(step.exact, tensors)
    k, freedom = factor(got, exact), len(got) - 1  # a single element is a multiple of anything
    if not freedom:
        return FactorFit(k, step.factors[tensors[0]], tensors)
    rest = float(((got - k * exact) ** 2).sum()) / float((exact * exact).sum())
    return FactorFit(k, ERRORS * (rest / freedom) ** 0.5 / abs(k) + step.unit, tensors)


def factor_causes(step: JudgedStep, states: dict[str, Whole]) -> dict[str, Cause]:
    """The tensors that are multiples of the right gradient; those of one factor together."""
    fits = []
    for t, state in states.items():
        if not (state.agree and np.isfinite(state.value).all() and state.value.any()):
            continue
        k = multiple(state.value, step.exact[t], step.bounds[t])
        if k and explains(state.value, k * step.exact[t], step.exact[t]):
            fits.append(fit(step, states, [t]))
    groups: list[FactorFit] = []
    for own in sorted(fits, key=lambda one: one.error):
        for i, group in enumerate(groups):
            if group.near(own):
                groups[i] = fit(step, states, group.tensors + own.tensors)
                break
        else:
            groups.append(own)
    found = {}
    for group in groups:
        cause = factor_text(group.k, step, group.error)
        found |= dict.fromkeys(group.tensors, cause)
    return {t: found[t] for t in states if t in found}


class SampleFit:
    """Weights of samples. rows: (samples, elements); bound: of each element's rounding."""

    def __init__(self, rows: np.ndarray, bound: np.ndarray):
        self.rows, self.bound = rows, bound
        samples, elements = rows.shape
        self.unique = elements >= 2 * samples and np.linalg.matrix_rank(rows) == samples
        self.inverse = np.linalg.pinv(rows.T) if self.unique else np.zeros((samples, elements))
        self.error = np.abs(self.inverse) @ bound

    def weights(self, sum_: np.ndarray) -> np.ndarray | None:
        """None where the sum is not one of these gradients, but for rounding."""
        found = self.inverse @ sum_
        largest = max(1.0, np.abs(found).max(initial=0.0) * len(found))  # the mean's is 1
        return found if close(found @ self.rows, sum_, 2 * largest * self.bound) else None


def sample_cause(step: JudgedStep, states: dict[str, Whole]) -> Cause | None:
    """How often each sample counts in these tensors, if that explains all their elements."""
    tensors = list(states)
    if not (step.samples and all(state.agree for state in states.values())):
        return None
    found = step.samples(tensors)
    if not found:
        return None
    every = slice(None, None, found["stride"])
    bounds = {t: np.full(step.exact[t].shape, step.bounds[t]) for t in tensors}
    fit = SampleFit(found["rows"], flat(bounds)[every])
    have = fit.weights(flat({t: state.value for t, state in states.items()})[every])
    want = fit.weights(flat(step.exact, tensors)[every])
    if not fit.unique or have is None or want is None:
        return None
    if (fit.error > KNOWN * np.abs(want)).any():
        return None
    own = [fit.weights(flat(sums)[every]) for sums in step.own_gradients(tensors)]
    computed = [counts(weights / want) for weights in own if weights is not None]
    known = bool(own) and len(computed) == step.size and all(c is not None for c in computed)
    return counts_cause(have / want, found["numbers"], computed if known else [])


def counts(times: np.ndarray) -> np.ndarray | None:
    """How often each sample is computed, if the least weight is once. None: no integers."""
    there = np.abs(times) > KNOWN * np.abs(times).max()
    found = times / np.abs(times[there]).min() if there.any() else times
    whole = np.where(there, np.rint(found), 0)
    near = close(found, whole, INTEGER * np.maximum(whole, 1))
    return whole if near and (whole >= 0).all() else None


def counts_cause(times: np.ndarray, numbers: list[int], computed: list[np.ndarray]) -> Cause | None:
    """times: how often each sample counts in the gradient; computed: on each rank, where known."""
    total = sum(computed) if computed else counts(times)
    lost = np.abs(times) <= KNOWN
    if total is None or not (lost.any() or (total > 1).any()):
        return None
    texts, names = [], []
    if lost.any():
        texts.append(f"{named(numbers, lost)} of batch(seed) lost: weight 0")
        names += ["lost", named(numbers, lost)]
    for count in np.unique(total[(total > 1) & ~lost]):
        these = (total == count) & ~lost
        ranks = [str(rank) for rank, own in enumerate(computed) if own[these].any()]
        where = f", on rank {', '.join(ranks)}" if ranks else ""
        texts.append(f"{named(numbers, these)} of batch(seed) counted {count:.0f} times{where}")
        names += ["counted more than once", named(numbers, these)]
    rest = times[~lost & (total <= 1)]
    if len(rest) and np.abs(rest - 1).max() > RATIO_TOLERANCE:
        least, most = f"{rest.min():.4g}", f"{rest.max():.4g}"
        texts.append(f"each other one has weight {least}" + f" to {most}" * (least != most))
    if computed and padded(computed, len(times), lost):
        names.append("sampler's padding")
        texts.append(
            f"this is DistributedSampler's padding (drop_last=False): {len(times)} samples became "
            f"{sum(own.sum() for own in computed):.0f}, so that each of {len(computed)} ranks has "
            "as many; next: a batch that the ranks divide, or weights by samples, if it matters"
        )
        return Cause("; ".join(texts), names)
    if computed:
        each = [f"{own.sum():.0f} on rank {rank}" for rank, own in enumerate(computed)]
        texts.append(f"samples computed: {', '.join(each)}")
    return Cause(f"{'; '.join(texts)}; {NEXT}", names)


def padded(computed: list[np.ndarray], samples: int, lost: np.ndarray) -> bool:
    """Does each rank compute as many, and together as few more as that needs?"""
    each = -(-samples // len(computed))
    return not lost.any() and samples % len(computed) > 0 and all(c.sum() == each for c in computed)


def named(numbers: list[int], chosen: np.ndarray) -> str:
    """Samples 0-3, 7."""
    spans: list[list[int]] = []
    for number in np.asarray(numbers)[chosen].tolist():
        if spans and spans[-1][-1] == number - 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    text = ", ".join("-".join(map(str, span)) for span in spans)
    return f"sample{'s' * (int(chosen.sum()) != 1)} {text}"
