"""Is a wrong gradient that of other samples: is one lost, or counted twice?

    got = sum over samples i of have_i g_i        exact = sum over samples i of want_i g_i

g_i is the gradient of `loss` of sample i alone, in float64. Both sums are fitted by least squares:
have_i / want_i says how often sample i counts. A weight is off by at most sum_j |pinv_ij| bound_j.

Nothing is said where that is too much, as in 16 bits or with more samples than can be told apart,
and where a fit leaves more than rounding: then `loss` is no sum over samples, or the mistake is
another one.
"""

import numpy as np

from refgf.oracle.step.factors import RATIO_TOLERANCE, Cause
from refgf.oracle.step.stages import JudgedStep, Whole, close

KNOWN = 0.1  # of a weight: the error allowed, and how small the weight of a lost sample is
INTEGER = 0.2  # relative: a mean over more samples than one rank should have gives each less
NEXT = "next: print which samples of batch(seed) each rank takes"


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

    def flat(arrays: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([arrays[t].ravel() for t in tensors])[:: found["stride"]]

    bound = flat({t: np.full(step.exact[t].shape, step.bounds[t]) for t in tensors})
    fit = SampleFit(found["rows"], bound)
    have = fit.weights(flat({t: states[t].value for t in tensors}))
    want = fit.weights(flat(step.exact))
    if not fit.unique or have is None or want is None:
        return None
    if (fit.error > KNOWN * np.abs(want)).any():
        return None
    own = [fit.weights(flat(sums)) for sums in own_gradients(step, tensors)]
    computed = [counts(weights / want) for weights in own if weights is not None]
    known = bool(own) and len(computed) == step.size and all(c is not None for c in computed)
    return counts_cause(have / want, found["numbers"], computed if known else [])


def own_gradients(step: JudgedStep, tensors: list[str]) -> list[dict[str, np.ndarray]]:
    """Each rank's, of all its backward calls; none where hooks on tensors did not see them."""
    if not step.local or any(t not in own for own in step.local for t in tensors):
        return []
    calls, scale = len(step.local) // step.size, step.settings["scale"] or 1.0
    return [
        {t: sum(own[t] for own in step.local[first : first + calls]) / scale for t in tensors}
        for first in range(0, len(step.local), calls)
    ]


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
        return "; ".join(texts), names, None
    if computed:
        each = [f"{own.sum():.0f} on rank {rank}" for rank, own in enumerate(computed)]
        texts.append(f"samples computed: {', '.join(each)}")
    return f"{'; '.join(texts)}; {NEXT}", names, None


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
