"""LARS: each layer's learning rate is proportional to the norm of its weights over its gradient's.

    ratio = trust |w| / (|g| + decay |w|)
    v <- m v + (rate ratio)(g + decay w)        w <- w - v

The norms are Euclidean, per tensor, in float64. The ratio is 1 where |w| or the denominator is 0,
and for biases and normalisation, which have no decay either. Without LARS the gradients of some
layers are too large for the rate that a large batch needs. In float16 training w are the float32
master weights and g the unscaled float32 sums, because squares of float16 would overflow. The
learning rate itself (linear scaling, warm-up, polynomial decay) is in `training/rates.py`.

The parallel tensor operator (Shi et al. 2021): all ranks hold the same w and g, so each would form
the same L norms. Instead each rank forms a share, and an allreduce of 2L scalars completes them:

    pool          |    fc7.weight    | fc6.weight              |conv5|...|
    "slices"      |  rank 0  |  rank 1  |  rank 2  |  rank 3  |    n/p elements each
    "layers"      |            rank 0                          | rank 1 ...   L/p tensors each

"layers" is the paper's division (general knowledge: its abstract only names the operator). One
layer of AlexNet holds 60 % of the parameters, so with it one rank has most of the work. "slices",
the default, is chosen for that reason.

Under CSC only slices of a tensor have been summed. The ratio comes from those slices, because all
ranks hold the same values there; weight decay counts once for each step since a chunk was last
sent.

Source: You, Gitman and Ginsburg 2017; the order of operations is that of oracle/SPEC.md, M4, M5,
M8, M9, C13.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy

from refgf.arguments import checked, require
from refgf.comm.arguments import require_number
from refgf.comm.slices import length, slices
from refgf.device import Array, array_module
from refgf.nn.workspace import cut

SHARES = ("slices", "layers")
FLOATS = ("float32", "float64")
BLOCK_ELEMENTS = 131_072  # float64 copies of a block stay in the cache


def squared_norms(w: Array, g: Array, tensors: Sequence[Sequence[slice]]) -> numpy.ndarray:
    """Sums of squares of w and of g over the slices of each tensor, in float64. -> (2, L)"""
    # on a GPU all sums are started before one is read
    sums = [[_square(x, parts) for parts in tensors] for x in (w, g)]
    totals = [[float(total) for total in row] for row in sums]
    return numpy.array(totals).reshape(2, len(tensors))


@checked
class ParallelNorms:
    """`squared_norms`, of which each rank computes a share. Collective; all arguments are the same.

    allreduce    sums a float64 array over all ranks in place, to the same bits on each
    by           "slices": the elements of all tensors in p equal slices; "layers": the L tensors
                 in p slices

    Cost per rank: one allreduce of 2L float64; reads 2n/p elements in place of 2n ("layers": twice
    the elements of its tensors). The sums are rounded in another order than on one rank.
    """

    def __init__(self, allreduce: Callable, rank: int, size: int, by: str = "slices") -> None:
        if by not in SHARES or not 0 <= rank < size:
            raise ValueError(
                f"ParallelNorms on rank {rank} of {size}: got by={by!r}; wanted one of "
                f"{', '.join(SHARES)} and 0 <= rank < size; next: by='slices'"
            )
        self.allreduce, self.rank, self.size, self.by = allreduce, rank, size, by

    def __call__(self, w, g, tensors: Sequence[Sequence[slice]]) -> numpy.ndarray:
        squares = squared_norms(w, g, self.share(tensors))
        self.allreduce(squares.reshape(-1))  # (2, L) -> (2L,), in place
        return squares

    def share(self, tensors: Sequence[Sequence[slice]]) -> list[list[slice]]:
        """This rank's slices of each tensor."""
        if self.by == "layers":
            own = slices(len(tensors), self.size)[self.rank]
            return [
                list(parts) if own.start <= number < own.stop else []
                for number, parts in enumerate(tensors)
            ]
        total = sum(length(part) for parts in tensors for part in parts)
        own, at, found = slices(total, self.size)[self.rank], 0, []
        for parts in tensors:
            found.append([])
            for part in parts:  # elements at .. at + length of all
                start, stop = max(own.start - at, 0), min(own.stop - at, length(part))
                if start < stop:
                    found[-1].append(slice(part.start + start, part.start + stop))
                at += length(part)
        return found


@checked
class LARS:
    """Updates a flat parameter array in place; `velocity` is all it remembers.

    specs       objects with .shape and .decay, in the order of the pool
    parameters  (n,) float32 or float64, NumPy or CuPy
    norms       forms the sums of squares: `squared_norms`, or a `ParallelNorms`
    workspace   not used: one thread updates
    """

    def __init__(
        self,
        specs: Sequence,
        parameters: Array,
        trust: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        norms: Callable = squared_norms,
        workspace=None,
    ) -> None:
        require(
            0 < trust < math.inf and 0 <= momentum < 1 and 0 <= weight_decay < math.inf,
            "LARS",
            f"trust={trust}, momentum={momentum}, weight_decay={weight_decay}",
            "finite trust > 0, 0 <= momentum < 1, finite weight_decay >= 0",
            "trust=0.001",
        )
        edges = [0, *itertools.accumulate(math.prod(spec.shape) for spec in specs)]
        writable = not isinstance(parameters, numpy.ndarray) or parameters.flags.writeable
        right = parameters.shape == (edges[-1],) and parameters.dtype.name in FLOATS
        require(
            right and writable,
            "LARS",
            f"{'' if writable else 'read-only '}parameters {parameters.shape} {parameters.dtype}",
            f"a writable array of shape ({edges[-1]},) as in specs, float32 or float64",
            "use float32 master weights",
        )
        self.parameters, self.norms = parameters, norms
        self.velocity = array_module(parameters).zeros_like(parameters)
        self.trust, self.momentum = float(trust), float(momentum)
        self.weight_decay = float(weight_decay)
        tensors = zip(itertools.pairwise(edges), specs)
        self._tensors = [(slice(*edge), bool(spec.decay)) for edge, spec in tensors]
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
                "LARS under CSC: got a form of momentum correction with momentum before the "
                "exchange; wanted 'history', because LARS's ratio comes before momentum; "
                "next: form='history'"
            )
        return self, self.momentum, 0.0

    def step(
        self,
        gradients: Array,
        rate: float,
        sent: Sequence[slice] | None = None,
        waited: Sequence[int] | None = None,
    ) -> None:
        """One update with gradients (n,) and a learning rate.

        sent (ascending, disjoint slices) restricts it; waited: the number of steps whose decay
        each of them gets. Communication: that of `norms`.
        """
        if gradients.shape != self.parameters.shape or gradients.dtype != self.parameters.dtype:
            raise ValueError(
                f"LARS.step: got gradients {gradients.shape} {gradients.dtype}; wanted "
                f"{self.parameters.shape} {self.parameters.dtype}; next: pass the gradient pool"
            )
        require_number("LARS.step: rate", rate, 0, "0.01")
        parts = [slice(0, self.parameters.size)] if sent is None else list(sent)
        steps = [1] * len(parts) if waited is None else list(waited)
        edges = [0, *(edge for part in parts for edge in (part.start, part.stop))]
        require(
            [*edges, self.parameters.size] == sorted([*edges, self.parameters.size])
            and len(steps) == len(parts),
            "LARS.step",
            f"sent={parts}, waited={steps}",
            f"ascending, disjoint slices of {self.parameters.size} elements, steps for each",
            "pass what the exchange's StepResult has",
        )
        tensors = self._by_tensor(parts, steps)
        ratios = self.ratios(gradients, [[part for part, _ in own] for own in tensors])
        for (_, decays), own, ratio in zip(self._tensors, tensors, ratios):
            for part, count in own:
                decay = self.weight_decay * count if decays else 0.0
                self._update(gradients, part, rate * ratio, decay)

    def _by_tensor(self, parts: list[slice], steps: list[int]) -> list[list[tuple[slice, int]]]:
        """For each tensor the slices that lie in it, each with its number of steps."""
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

    def ratios(self, gradients: Array, tensors: Sequence[Sequence[slice]]) -> list[float]:
        """The ratio of each tensor, from the given slices of it."""
        adapted = [parts for parts, (_, decays) in zip(tensors, self._tensors) if decays]
        squares = self.norms(self.parameters, gradients, adapted)  # (2, tensors with a ratio)
        norms = numpy.sqrt(squares)
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
    """The sum of squares of slices of x, in float64."""
    total = 0.0
    for part in parts:
        for block in cut(part, BLOCK_ELEMENTS):
            wide = x[block].astype("float64")
            total = total + wide @ wide
    return total
