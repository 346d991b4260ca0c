"""Fine-grained sparsity: each rank sends its k largest gradients, and keeps the rest for the next step.

    exact_top_k(x, k)           the k largest magnitudes                         these return ascending indices,
    mstopk(x, k, start)         nearly the k largest, found by bisection         exactly k of them

    TopK                every rank's k values and their indices travel to all ranks (allgather)
    HiTopK              nodes first: a dense sum inside the node, sparse between nodes, dense inside again

Both are an `Allreduce` for one array: what comes out is the sum over ranks of what was chosen. What was not chosen is
kept (error feedback) and added to the next step's gradient, so that nothing is lost: element by element
sent + kept = accumulated, and one of the two is 0. At 100 % nothing is kept and the sum is the dense one, TopK's in rank
order 0, 1, ..., p-1 (the bits of `comm/direct`, but that no zero is negative), HiTopK's first around the node's ring,
then in order of the nodes.

Every rank chooses other elements, so indices must travel too, and the sum has up to p k elements: what TopK sends grows
with p. CSC (`csc.py`) chooses the same chunks on all ranks, so that neither happens.

Source: Shi et al. (MLSys 2021) for MSTopK and HiTopKComm, whose steps are known to us from public code and not from the
paper's text.
"""

import math
from collections.abc import Callable

import numpy

from refgf.comm.slices import length
from refgf.device import array_module

ROUNDS = 30  # halvings of mstopk's interval; 20 and 100 are in public code, the paper's number is not at hand


def keep_count(n: int, percent: float) -> int:
    """How many of n elements travel: `percent` of them, rounded up, at least 1; none of 0."""
    if not 0 < percent <= 100:
        raise ValueError(f"top-k: got a density of {percent} %; wanted more than 0 and at most 100, e.g. 0.1, 1, 10")
    return min(n, max(1, math.ceil(round(n * percent / 100, 6))))  # 0.1 % of 3000 is 3, not 4


def exact_top_k(x, k: int):
    """Indices of the k elements of x (n,) that are largest in magnitude; of equal ones the first. -> (k,) ascending"""
    xp = array_module(x)
    magnitude = xp.abs(x)
    _require_choice(magnitude, k, "exact_top_k")
    if k == 0:
        return xp.arange(0)
    smallest = xp.partition(magnitude, x.size - k)[x.size - k]  # the k-th largest
    above = xp.flatnonzero(magnitude > smallest)
    equal = xp.flatnonzero(magnitude == smallest)[: k - above.size]
    return xp.sort(xp.concatenate([above, equal]))


def mstopk(x, k: int, start: float = 0.0, rounds: int = ROUNDS):
    """Indices of k elements of x (n,), nearly those of the largest magnitudes. -> (k,) ascending

    Bisection for a threshold between the mean and the maximum; no sort, only passes that read memory in order, which is
    what a GPU is good at. What lies above the smallest threshold that at most k elements reach is taken; the rest are
    neighbours, from `start` (0 <= start < 1, of the way through) on, among what reaches the largest threshold that more
    than k elements reach. The paper draws `start` at random.

    Three changes to the code this is known from: where fewer than k elements reach the mean the search begins at 0;
    after a round that found too many only those are looked at again (same counts); it ends when exactly k are found.
    """
    xp, magnitude = array_module(x), array_module(x).abs(x)
    _require_choice(magnitude, k, "mstopk")
    if k == 0:
        return xp.arange(0)
    high, low = float(magnitude.max()), float(magnitude.mean(dtype=numpy.float64))
    if xp.count_nonzero(magnitude >= low) < k:
        low = 0.0
    taken, certain, possible = 0, math.inf, 0.0  # `taken` elements reach `certain`; more than k reach `possible`
    left, right, candidates = 0.0, 1.0, magnitude
    for _ in range(rounds):
        ratio = left + (right - left) / 2
        threshold = low + ratio * (high - low)
        reach = candidates >= threshold
        count = int(xp.count_nonzero(reach))
        if count <= k:
            right = ratio
            if count > taken:
                taken, certain = count, threshold
        else:
            left, possible, candidates = ratio, threshold, candidates[reach]
        if taken == k:
            break
    chosen = xp.flatnonzero(magnitude >= certain)
    if taken == k:
        return chosen
    between = xp.flatnonzero((magnitude >= possible) & (magnitude < certain))
    first = int(start * (between.size - (k - taken) + 1))
    return xp.sort(xp.concatenate([chosen, between[first : first + k - taken]]))


def _require_choice(magnitude, k: int, operation: str) -> None:
    if not 0 <= k <= magnitude.size:
        raise ValueError(f"{operation}: got k = {k} of {magnitude.size} elements; wanted 0 to {magnitude.size}")
    if magnitude.size and not math.isfinite(float(magnitude.max())):
        raise ValueError(
            f"{operation}: got an infinity or NaN among {magnitude.size} elements, which has no place in an order; "
            "next: leave this step out on all ranks, as CSC's flag does"
        )


class ErrorFeedback:
    """What one rank has not sent yet, of an array of n elements."""

    def __init__(self, n: int, dtype=numpy.float32, xp=numpy) -> None:
        self.kept = xp.zeros(n, dtype)

    def take(self, gradient, choose: Callable):
        """Add `gradient` (n,), then take out what `choose(accumulated)` names. -> (values, indices), (k,) each"""
        self.kept += gradient
        indices = choose(self.kept)
        values = self.kept[indices]
        self.kept[indices] = 0
        return values, indices


class TopK:
    """An Allreduce for one array of n elements: the sum over ranks of each rank's k largest, 0 where nobody sent.

    n, percent     length of the array and how much of it each rank sends
    allgather      x (k,) -> (p, k), row r from rank r; for values and for indices (`refgf.comm.gather.allgather`)
    select         exact_top_k, or mstopk with a `start`

    Cost per rank and call: two allgathers of k, so 2(p-1) messages, (p-1) k values and as many indices of 4 bytes (8
    from 2**31 elements). Memory: n kept, 2 p k received.
    """

    def __init__(
        self, n: int, percent: float, allgather: Callable, select: Callable = exact_top_k, dtype=numpy.float32, xp=numpy
    ) -> None:
        self.k, self._allgather, self._select = keep_count(n, percent), allgather, select
        self.feedback = ErrorFeedback(n, dtype, xp)

    def __call__(self, x) -> None:
        require_length(x, self.feedback.kept.size, "TopK")
        values, indices = self.feedback.take(x, lambda accumulated: self._select(accumulated, self.k))
        sum_sparse(x, self._allgather(values), self._allgather(as_sent(indices, x.size)))


class HiTopK:
    """HiTopKComm, an Allreduce for one array of n elements, m nodes of g ranks each:

        1 reduce-scatter in the node     each rank owns the node's sum of one slice
        2 top-k of that slice            with error feedback: of the node's sum, kept by the slice's owner
        3 allgather between nodes        values and indices, among the m ranks that own the same slice; summed
        4 allgather in the node          everyone has the whole sum

    n, percent        length of the array and how much of each slice its owner sends
    reduce_scatter    x -> slice of x that holds the node's sum (`refgf.comm.gather.reduce_scatter` over a node)
    allgather         x (k,) -> (m, k) among the ranks with this one's place in their nodes, row i from node i
    spread            x: the node's ranks receive each other's slices

    Cost per rank and call, place j in the node, k of its slice: 2(g-1) + 2(m-1) messages; in the node
    2n - |slice j+1| - |slice j+2| elements (g > 1); between nodes (m-1) k values and as many indices of 4 bytes.
    """

    def __init__(
        self,
        n: int,
        percent: float,
        reduce_scatter: Callable,
        allgather: Callable,
        spread: Callable,
        select: Callable = exact_top_k,
    ) -> None:
        keep_count(n, percent)  # refuses a bad density
        self.n, self.percent, self._select = n, percent, select
        self._reduce_scatter, self._allgather, self._spread = reduce_scatter, allgather, spread
        self.feedback = None  # of the own slice, known after the first call

    def __call__(self, x) -> None:
        require_length(x, self.n, "HiTopK")
        own = self._reduce_scatter(x)
        if self.feedback is None:
            self.feedback = ErrorFeedback(length(own), x.dtype, array_module(x))
        k = keep_count(length(own), self.percent)
        values, indices = self.feedback.take(x[own], lambda accumulated: self._select(accumulated, k))
        sum_sparse(x[own], self._allgather(values), self._allgather(as_sent(indices, length(own))))
        self._spread(x)


def sum_sparse(out, values, indices) -> None:
    """out (n,) = sum of the rows, row 0 first; values, indices (p, k). A row has no index twice."""
    out[...] = 0
    for row_values, row_indices in zip(values, indices):
        out[row_indices] += row_values


def as_sent(indices, n: int):
    """Indices into n elements in the type in which they travel."""
    return indices.astype(numpy.int32 if n < 2**31 else numpy.int64)


def require_length(x, n: int, operation: str) -> None:
    if x.shape != (n,):
        raise ValueError(
            f"{operation}: got an array of shape {x.shape}; wanted ({n},), because what is kept belongs to its elements; "
            "next: one object for each array"
        )
