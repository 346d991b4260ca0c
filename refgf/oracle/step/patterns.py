"""What a wrong gradient is made of, where it is no multiple of the right one.

the extreme of ranks' gradients     ReduceOp.MAX
part of the step before             an old gradient that is blended in
right where it is not zero          top-k and other sparse sums
right to a few bits                 8-bit gradients
the mean of ranks' gradients        communicated rightly, but of another function or samples
"""

import numpy as np

from refgf.oracle.step.factors import Cause
from refgf.oracle.step.samples import own_gradients
from refgf.oracle.step.stages import Arrays, JudgedStep, close

FEW_BITS = 2.0**-5  # of the largest element: coarser is no rounding of a gradient
LEAST_ZERO = 0.1  # of the elements: of a sparse sum
EXTREMES = {"MAX": np.maximum, "MIN": np.minimum}


def pattern_cause(step: JudgedStep, got: Arrays, exact: Arrays) -> Cause | None:
    """got, exact: of the same tensors, which have one cause together."""

    def flat(arrays: Arrays) -> np.ndarray:
        return np.concatenate([arrays[t].ravel() for t in got])

    bound = flat({t: np.full(exact[t].shape, step.bounds[t]) for t in got})
    own = [flat(arrays) for arrays in own_gradients(step, list(got))]
    before = _before(step, list(got))
    found, right = flat(got), flat(exact)
    return (
        (own and _extreme(found, own, bound))
        or (before and _blended(found, right, [flat(a) for a in before], bound))
        or _sparse(found, right, own, bound)
        or (own and _mean_of_own(found, own, bound))
        or _few_bits(step, got, exact)
        or None
    )


def _extreme(got: np.ndarray, own: list[np.ndarray], bound: np.ndarray) -> Cause | None:
    for name, extreme in EXTREMES.items():
        value: np.ndarray = extreme.reduce(own)
        for times, divided in ((1, ""), (len(own), ", divided by p")):
            if close(got, value / times, 2 * bound):
                text = f"of each element the one of one rank's gradients: ReduceOp.{name}{divided}"
                return text, [name], None
    return None


def _before(step: JudgedStep, tensors: list[str]) -> list[Arrays]:
    """Gradients of the step before: the right one, and what the optimizer got."""
    previous = step.previous
    if previous is None or any(t not in previous.exact for t in tensors):
        return []
    used = {t: w.value for t, w in previous.stages["used"].items()}
    return [previous.exact] + [used] * all(t in used for t in tensors)


def _blended(
    got: np.ndarray, exact: np.ndarray, before: list[np.ndarray], bound: np.ndarray
) -> Cause | None:
    for earlier in before:
        columns = np.stack([exact, earlier], axis=1)
        (now, then), *_ = np.linalg.lstsq(columns, got, rcond=None)
        if len(got) > 2 and close(columns @ [now, then], got, 4 * bound) and abs(then) > 1e-3:
            text = f"{now:.4g} times the right one plus {then:.4g} times that of the step before"
            return f"{text}: stale in part", ["stale"], None
    return None


def _sparse(
    got: np.ndarray, exact: np.ndarray, own: list[np.ndarray], bound: np.ndarray
) -> Cause | None:
    """Zeros, and elsewhere the sum over all ranks, or over those that sent the element."""
    zero = (got == 0) & (np.abs(exact) > bound)
    if zero.mean() < LEAST_ZERO or not got.any():
        return None
    rest = got != 0
    near = np.abs(got - exact) <= bound
    if own and len(own) <= 8:
        for chosen in range(1, 1 << len(own)):
            some = sum(g for rank, g in enumerate(own) if chosen >> rank & 1) / len(own)
            near |= np.abs(got - some) <= 2 * bound
    if not near[rest].all():
        return None
    text = f"zero in {int(zero.sum())} of {len(got)} elements, elsewhere sums of ranks' gradients"
    return f"{text}: sparsified, as by top-k?", ["sparsified"], None


def _mean_of_own(got: np.ndarray, own: list[np.ndarray], bound: np.ndarray) -> Cause | None:
    mean = sum(own) / len(own)
    if not close(got, mean, 4 * bound):
        return None
    text = (
        "the mean of ranks' own gradients, so communicated rightly; but ranks have other samples "
        "than batch(seed), or compute another function than `loss`; next: compare them"
    )
    return text, ["own gradients"], None


def _few_bits(step: JudgedStep, got: Arrays, exact: Arrays) -> Cause | None:
    """Every tensor is near the right one, by a share of its largest element."""
    shares = [np.abs(got[t] - g).max() / np.abs(g).max() for t, g in exact.items() if g.any()]
    if not shares or max(shares) > FEW_BITS or step.unit > FEW_BITS**3:
        return None
    bits = int(-np.log2(max(shares)))
    text = f"right to about {bits} bits of its largest element: quantised, or noise added?"
    return text, ["few bits"], None
