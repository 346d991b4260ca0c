"""Fine-grained sparsity: each rank sends its k largest gradients; the rest stay in its residual.

    exact_top_k(x, k)           the k largest magnitudes                 both return k indices,
    mstopk(x, k, start)         nearly those, found by bisection         ascending

    TopK      an allgather sends every rank's k values and their indices to all ranks
    HiTopK    hierarchical: a dense sum in the node, sparse between nodes, dense in the node again

Both are an `Allreduce` for one array: the result is the sum over ranks of what each rank chose.
What was not chosen stays in the residual and is added to the next step's gradient (error feedback),
so nothing is lost: element by element sent + residual = accumulated, and one of the two is 0. At
100 % the residual is 0 and the sum is the dense one. TopK adds in rank order 0, 1, ..., p-1 (the
bits of `comm/direct`, except that no zero is negative); HiTopK first around the node's ring, then
in order of the nodes.

Ranks choose different elements, so indices must be sent too, and the sum has up to p k elements:
what TopK sends grows with p. CSC chooses the same chunks on all ranks, which avoids both.

Source: Shi et al. (MLSys 2021) for MSTopK and HiTopKComm. Their steps are known from public code
of others, not from the paper's text. The dense step 4 of HiTopK is chosen: that code gathers
values and indices in the node, as `hitopk_pairs.py` does.
"""

import math
from collections.abc import Callable

import numpy

from refgf.arguments import checked, require
from refgf.comm.arguments import DTYPES, FLOATS
from refgf.comm.slices import length
from refgf.device import Array, array_module

# halvings of mstopk's interval; public code has 20 and 100, the paper's number is not at hand
ROUNDS = 30
MOST = 2**40  # elements: no memory holds more


@checked
def keep_count(n: int, percent: float) -> int:
    """The number of n elements to send: `percent` of them, rounded up, at least 1; 0 of 0."""
    require(
        0 < percent <= 100 and n >= 0,
        "top-k",
        f"a density of {percent} % of {n} elements",
        "more than 0 and at most 100, of no negative number",
        "0.1, 1 or 10",
    )
    return min(n, max(1, math.ceil(round(n * percent / 100, 6))))  # 0.1 % of 3000 is 3, not 4


@checked
def exact_top_k(x: Array, k: int) -> Array:
    """Indices of the k largest magnitudes of x (n,); of equal ones the first. -> (k,) ascending"""
    xp = array_module(x)
    magnitude = xp.abs(x)
    _largest(magnitude, k, "exact_top_k")
    if k == 0:
        return xp.arange(0)
    smallest = xp.partition(magnitude, x.size - k)[x.size - k]  # the k-th largest
    above = xp.flatnonzero(magnitude > smallest)
    equal = xp.flatnonzero(magnitude == smallest)[: k - above.size]
    return xp.sort(xp.concatenate([above, equal]))


@checked
def mstopk(x: Array, k: int, start: float = 0.0, rounds: int = ROUNDS) -> Array:
    """Indices of k elements of x (n,), nearly those of the largest magnitudes. -> (k,) ascending

    Bisection for a threshold between the mean and the maximum. It needs no sort, only passes that
    read memory in order, which suits a GPU. The result has all elements above the smallest
    threshold that at most k elements reach. The rest are neighbours among the elements that reach
    the largest threshold that more than k reach, from `start` (0 <= start < 1, a share of the way
    through) on. The public code draws that place at random.

    Five changes to the public code:
      - where fewer than k elements reach the mean, the search begins at 0;
      - after a round that found too many, only those are searched (the counts are the same), if
        they are half as many or fewer;
      - the search ends when exactly k are found;
      - where 1 to k elements reach none of the thresholds tried, none is certain. There the
        threshold then stays 0, which all elements reach, so more than k are sent;
      - the last place of the neighbours leaves room for all of them. There it is one too far, so
        k - 1 elements may be sent.
    """
    xp, magnitude = array_module(x), array_module(x).abs(x)
    high = _largest(magnitude, k, "mstopk")
    require(0 <= start < 1, "mstopk", f"start={start}", "0 <= start < 1", "start=0.0")
    if k == 0:
        return xp.arange(0)
    low = float(magnitude.mean(dtype=numpy.float64))
    if xp.count_nonzero(magnitude >= low) < k:
        low = 0.0
    # `taken` elements reach `certain`; more than k reach `possible`, and are among the candidates
    taken, certain, possible = 0, math.inf, 0.0
    left, right, candidates, places = 0.0, 1.0, magnitude, None
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
            left, possible = ratio, threshold
            if 2 * count <= candidates.size:
                kept = xp.flatnonzero(reach)
                candidates, places = candidates[kept], _at(places, kept)
        if taken == k:
            break
    chosen = _at(places, xp.flatnonzero(candidates >= certain))
    if taken == k:
        return chosen
    reach = (candidates >= possible) & (candidates < certain)
    between = _at(places, xp.flatnonzero(reach))
    first = int(start * (between.size - (k - taken) + 1))
    return xp.sort(xp.concatenate([chosen, between[first : first + k - taken]]))


def _at(places: Array | None, kept: Array) -> Array:
    """Indices into x of candidates, by their indices `kept`; places None: all of x are ones."""
    return kept if places is None else places[kept]


def _largest(magnitude: Array, k: int, operation: str) -> float:
    """The largest magnitude, 0 of none. ValueError unless k of them can be chosen in order."""
    if not 0 <= k <= magnitude.size:
        raise ValueError(
            f"{operation}: got k = {k}; wanted 0 to {magnitude.size}, the number of elements; "
            "next: keep_count(n, percent)"
        )
    largest = float(magnitude.max()) if magnitude.size else 0.0
    if not math.isfinite(largest):
        raise ValueError(
            f"{operation}: got an infinity or NaN among {magnitude.size} elements; wanted finite "
            "ones, which have an order; next: skip this step on all ranks, as CSC does"
        )
    return largest


@checked
class ErrorFeedback:
    """One rank's residual: what it has not sent yet of an array of n elements.

    `undo` takes the last step back. Memory: 2 n, the residual before the step included.
    """

    def __init__(self, n: int, dtype=numpy.float32, xp=numpy) -> None:
        require(0 <= n < MOST, "ErrorFeedback", f"n={n}", "a length of an array", "g.size")
        self.residual, self._before = xp.zeros(n, dtype), xp.zeros(n, dtype)

    def take(self, gradient: Array, choose: Callable) -> tuple[Array, Array]:
        """Add gradient (n,), take `choose(accumulated)` out. -> (values, indices), (k,) each

        An infinity or a NaN cannot be ordered: `choose` gets zeros, and all values are NaN.
        """
        before, after = self.residual, self._before
        with numpy.errstate(over="ignore", invalid="ignore"):
            array_module(after).add(before, gradient, out=after, casting="same_kind")
        finite = is_finite(after)
        if not finite:
            after[...] = 0
        indices = choose(after)
        values = after[indices] if finite else after[indices] + math.nan
        after[indices] = 0
        self.residual, self._before = after, before
        return values, indices

    def undo(self) -> None:
        """The residual as it was before the last `take`."""
        self.residual, self._before = self._before, self.residual


@checked
class TopK:
    """An Allreduce for one array of n elements: the sum over ranks of each rank's k largest.

    n, percent     length of the array and the share that each rank sends
    allgather      x (k,) -> (p, k), row r from rank r (`refgf.comm.gather.allgather`)
    select         exact_top_k, or mstopk with a `start`

    The sum is 0 where no rank sent. Cost per rank and call: two allgathers of k elements, so 2(p-1)
    messages, (p-1) k values and as many indices of 4 bytes (8 from 2**31 elements). Memory: 2 n for
    the residual, 2 p k received. Errors: ValueError on every rank where one had an infinity or NaN.
    The residuals are then as they were before, so the step can be skipped.
    """

    def __init__(
        self,
        n: int,
        percent: float,
        allgather: Callable,
        select: Callable = exact_top_k,
        dtype=numpy.float32,
        xp=numpy,
    ) -> None:
        self.k, self._allgather, self._select = keep_count(n, percent), allgather, select
        self.feedback = ErrorFeedback(n, dtype, xp)

    def __call__(self, x) -> None:
        require_length(x, self.feedback.residual.size, "TopK")
        values, indices = self.feedback.take(x, lambda a: self._select(a, self.k))
        indices = wire_indices(indices, x.size)
        sum_sparse(x, self._allgather(values), self._allgather(indices))
        require_finite(x, self.feedback, "TopK")


@checked
class HiTopK:
    """HiTopKComm, an Allreduce for one array of n elements, m nodes of g ranks each:

        1 reduce-scatter in the node     each rank owns the node's sum of one slice
        2 top-k of that slice            error feedback: the slice's owner has the residual
        3 allgather between nodes        values and indices, of the m ranks that own the same slice;
                                         added up
        4 allgather in the node          every rank has the whole sum

    n, percent        length of the array and the share of each slice that its owner sends
    reduce_scatter    x -> the slice of x that holds the node's sum (`gather.reduce_scatter`)
    allgather         x (k,) -> (m, k), row i from node i: of the ranks that own the same slice
    spread            x: the node's ranks receive each other's slices

    Cost per rank and call, rank j of the node, k elements of its slice: 2(g-1) + 2(m-1) messages;
    in the node 2n - |slice j+1| - |slice j+2| elements (g > 1); between nodes (m-1) k values and as
    many indices of 4 bytes.
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
        keep_count(n, percent)  # raises for a bad density
        self.n, self.percent, self._select = n, percent, select
        self._reduce_scatter, self._allgather, self._spread = reduce_scatter, allgather, spread
        self.feedback = None  # of this rank's slice, known after the first call

    def __call__(self, x) -> None:
        require_length(x, self.n, "HiTopK")
        own = self._reduce_scatter(x)
        if self.feedback is None:
            self.feedback = ErrorFeedback(length(own), x.dtype, array_module(x))
        k = keep_count(length(own), self.percent)
        values, indices = self.feedback.take(x[own], lambda a: self._select(a, k))
        indices = wire_indices(indices, length(own))
        self._complete(x, own, self._allgather(values), self._allgather(indices))
        require_finite(x, self.feedback, type(self).__name__)

    def _complete(self, x, own: slice, values, indices) -> None:
        """The sum over nodes of the own slice, from their pairs (m, k), and step 4."""
        sum_sparse(x[own], values, indices)
        self._spread(x)


def sum_sparse(out: Array, values: Array, indices: Array) -> None:
    """out (n,) <- sum of the rows (p, k), row 0 first; a row has no index twice."""
    out[...] = 0
    for row_values, row_indices in zip(values, indices):
        out[row_indices] += row_values


def wire_indices(indices: Array, n: int) -> Array:
    """Indices into n elements, in the type in which they are sent."""
    return indices.astype(numpy.int32 if n < 2**31 else numpy.int64)


def require_length(x: Array, n: int, operation: str) -> None:
    dtype, shape = getattr(x, "dtype", None), getattr(x, "shape", None)
    writable = not isinstance(x, numpy.ndarray) or x.flags.writeable
    require(
        dtype in DTYPES and shape == (n,) and writable,
        operation,
        f"{'an array' if writable else 'a read-only array'} of shape {shape}, type {dtype}"
        if dtype is not None
        else f"a {type(x).__name__}",
        f"a writable array of {', '.join(FLOATS)} and shape ({n},), because the residual belongs "
        "to its elements",
        "one object for each array",
    )


def is_finite(x: Array) -> bool:
    """One pass; no sum of squares, which could overflow."""
    return bool(array_module(x).isfinite(x).all())


def require_finite(x: Array, feedback: ErrorFeedback, operation: str) -> None:
    """ValueError, and the residual as it was, if the sum (n,) has an infinity or NaN."""
    if is_finite(x):
        return
    feedback.undo()
    require(
        False,
        operation,
        f"an infinity or NaN among {x.size} sums",
        "finite gradients on every rank, which have an order",
        "skip this step, on all ranks: no residual has changed",
    )
