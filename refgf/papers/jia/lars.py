"""LARS: each layer's learning rate in proportion to the size of its weights over that of its gradient.

    ratio = trust |w| / (|g| + decay |w|)        v <- m v + (rate ratio)(g + decay w)        w <- w - v

per tensor, Euclidean norms in float64; ratio 1 where |w| or the denominator is 0, and for biases and normalisation, which
have no decay either. Without it the gradients of some layers are too large for the rate that a large batch needs.
Under float16 training w are the float32 master weights, g the unscaled float32 sums: squares of float16 would overflow.
Source: You, Gitman and Ginsburg 2017; order of operations as in oracle/SPEC.md, M4, M5, M8, M9, C13. The learning rate
itself (linear scaling, warm-up, polynomial decay) is in `sgd.py`.

The parallel tensor operator (Shi et al. 2021): all ranks hold the same w and g, and each would form the same L norms.
Instead each forms a share, and an allreduce of 2L scalars gives all to all:

    pool          |    fc7.weight    | fc6.weight              |conv5|...|
    "slices"      |  rank 0  |  rank 1  |  rank 2  |  rank 3  |               partial sums of squares, n/p elements each
    "layers"      |            rank 0                          | rank 1 ...   whole tensors, L/p each: the paper's way

One layer of AlexNet holds 60 % of the parameters, so by layers one rank has most of the work.

Under CSC only parts of a tensor have been summed. The ratio is taken from those parts alone, as all ranks hold them
alike; weight decay counts once for each step since a chunk was last sent.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy

from refgf.comm.slices import cut, length, slices
from refgf.device import array_module

SHARES = ("slices", "layers")
BLOCK_ELEMENTS = 131_072  # float64 copies of a block stay in the cache


def squared_norms(w, g, tensors: Sequence[Sequence[slice]]) -> numpy.ndarray:
    """Sums of squares of w and of g over the parts of each tensor, in float64. -> (2, L)"""
    sums = [[_square(x, parts) for parts in tensors] for x in (w, g)]  # on a GPU all are started before one is read
    return numpy.array([[float(total) for total in row] for row in sums]).reshape(2, len(tensors))


class ParallelNorms:
    """`squared_norms`, of which each rank computes a share. Collective: all ranks hold the same w, g and parts.

    allreduce    sums a float64 array over all ranks in place; all must get the same bits
    by           "slices": of all elements, one tensor after another, the rank-th of p equal slices; "layers": of L tensors

    Cost per rank: one allreduce of 2L float64, whatever it costs, and reading 2n/p elements in place of 2n (by layers: 2
    times the elements of its tensors). Sums are rounded in another order than by one rank alone.
    """

    def __init__(self, allreduce: Callable, rank: int, size: int, by: str = "slices") -> None:
        if by not in SHARES or not 0 <= rank < size:
            raise ValueError(
                f"LARS's norms in parallel: got by={by!r} on rank {rank} of {size}; wanted one of {', '.join(SHARES)}; "
                "next: by='slices'"
            )
        self.allreduce, self.rank, self.size, self.by = allreduce, rank, size, by

    def __call__(self, w, g, tensors: Sequence[Sequence[slice]]) -> numpy.ndarray:
        squares = squared_norms(w, g, self.share(tensors))
        self.allreduce(squares.reshape(-1))  # (2, L) -> (2L,), in place
        return squares

    def share(self, tensors: Sequence[Sequence[slice]]) -> list[list[slice]]:
        """This rank's parts of each tensor."""
        if self.by == "layers":
            own = slices(len(tensors), self.size)[self.rank]
            return [list(parts) if own.start <= i < own.stop else [] for i, parts in enumerate(tensors)]
        own, at, found = slices(sum(length(p) for parts in tensors for p in parts), self.size)[self.rank], 0, []
        for parts in tensors:
            found.append([])
            for part in parts:  # its elements are numbers at .. at + length of all
                start, stop = max(own.start - at, 0), min(own.stop - at, length(part))
                if start < stop:
                    found[-1].append(slice(part.start + start, part.start + stop))
                at += length(part)
        return found


class LARS:
    """Updates a flat array (n,), float32 or float64, in place; remembers `velocity`.

    specs    .shape and .decay of each tensor, in the order of the pool
    norms    how sums of squares are formed: `squared_norms` by this rank alone, or a `ParallelNorms`
    workspace  not needed
    """

    def __init__(
        self,
        specs: Sequence,
        parameters,
        trust: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        norms: Callable = squared_norms,
        workspace=None,
    ) -> None:
        if not (trust > 0 and 0 <= momentum < 1 and weight_decay >= 0):
            raise ValueError(
                f"LARS: got trust={trust}, momentum={momentum}, weight_decay={weight_decay}; wanted trust > 0, "
                "0 <= momentum < 1, weight_decay >= 0; next: trust=0.001"
            )
        edges = [0, *itertools.accumulate(math.prod(spec.shape) for spec in specs)]
        if parameters.shape != (edges[-1],) or parameters.dtype.name not in ("float32", "float64"):
            raise ValueError(
                f"LARS: got parameters {parameters.shape} {parameters.dtype}; wanted ({edges[-1]},) as in specs, float32 or "
                "float64; next: keep float32 master weights"
            )
        self.parameters, self.velocity, self.norms = parameters, array_module(parameters).zeros_like(parameters), norms
        self.trust, self.momentum, self.weight_decay = float(trust), float(momentum), float(weight_decay)
        self._tensors = [(slice(*edge), bool(spec.decay)) for edge, spec in zip(itertools.pairwise(edges), specs)]
        n = min(parameters.size, BLOCK_ELEMENTS)
        self._scratch = array_module(parameters).empty(n, parameters.dtype)

    @property
    def settings(self) -> dict:
        names = ("trust", "momentum", "weight_decay")
        return {name: getattr(self, name) for name in names}

    @property
    def state(self) -> dict:
        return {"velocity": self.velocity}

    def split(self, before: bool) -> tuple:
        """(this optimiser, momentum, 0): the ratio needs the decay, so CSC applies none."""
        if before:
            raise ValueError(
                "LARS under CSC: got a form of momentum correction with momentum before the exchange; "
                "wanted 'history', because LARS's ratio comes before momentum; next: form='history'"
            )
        return self, self.momentum, 0.0

    def step(self, gradients, rate: float, sent=None, waited=None) -> None:
        """One update. sent (ascending, disjoint slices) restricts it; waited: how many steps' decay each of them gets.

        Cost: that of `norms`; nothing else communicates.
        """
        if gradients.shape != self.parameters.shape or gradients.dtype != self.parameters.dtype:
            raise ValueError(
                f"LARS.step: got gradients {gradients.shape} {gradients.dtype}; "
                f"wanted {self.parameters.shape} {self.parameters.dtype}"
            )
        parts = [slice(0, self.parameters.size)] if sent is None else list(sent)
        tensors = self._by_tensor(parts, [1] * len(parts) if waited is None else list(waited))
        ratios = self.ratios(gradients, [[part for part, _ in own] for own in tensors])
        for (_, decays), own, ratio in zip(self._tensors, tensors, ratios):
            for part, count in own:
                self._update(gradients, part, rate * ratio, self.weight_decay * count if decays else 0.0)

    def _by_tensor(self, parts: list[slice], steps: list[int]) -> list[list[tuple[slice, int]]]:
        """For each tensor the parts of the pool that lie in it, each with its number of steps."""
        tensors, first = [], 0
        for tensor, _ in self._tensors:
            while first < len(parts) and parts[first].stop <= tensor.start:
                first += 1
            tensors.append([])
            for part, count in zip(parts[first:], steps[first:]):
                if part.start >= tensor.stop:
                    break
                inside = slice(max(part.start, tensor.start), min(part.stop, tensor.stop))
                if inside.stop > inside.start:
                    tensors[-1].append((inside, count))
        return tensors

    def ratios(self, gradients, tensors: Sequence[Sequence[slice]]) -> list[float]:
        """The ratio of each tensor, from the given parts of it."""
        adapted = [parts for parts, (_, decays) in zip(tensors, self._tensors) if decays]
        norms = numpy.sqrt(self.norms(self.parameters, gradients, adapted))  # (2, tensors with a ratio)
        found = iter(norms.T.tolist())
        return [self.ratio(*next(found)) if decays else 1.0 for _, decays in self._tensors]

    def ratio(self, w: float, g: float) -> float:
        """trust |w| / (|g| + decay |w|) from the two norms."""
        below = g + self.weight_decay * w
        return self.trust * w / below if w > 0 and below > 0 else 1.0

    def _update(self, gradients, part: slice, rate: float, decay: float) -> None:
        xp = array_module(gradients)
        for block in cut(part, BLOCK_ELEMENTS):
            w, v, g = self.parameters[block], self.velocity[block], gradients[block]
            change = self._scratch[: g.size]
            if decay:
                xp.multiply(w, decay, out=change)
                change += g
                change *= rate
            else:
                xp.multiply(g, rate, out=change)
            v *= self.momentum
            v += change
            w -= v


def _square(x, parts: Sequence[slice]):
    """The sum of squares of some parts of x, in float64."""
    total = 0.0
    for part in parts:
        for block in cut(part, BLOCK_ELEMENTS):
            wide = x[block].astype("float64")
            total = total + wide @ wide
    return total
