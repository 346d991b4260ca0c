"""LARS: each layer's learning rate in proportion to the size of its weights over that of its gradient.

    ratio = trust |w| / (|g| + decay |w|)        v <- m v + (rate ratio)(g + decay w)        w <- w - v

per tensor, Euclidean norms in float64; ratio 1 where |w| or the denominator is 0, and for biases and normalisation, which
have no decay either. Without it the gradients of some layers are too large for the rate that a large batch needs.
Source: You, Gitman and Ginsburg 2017; order of operations as in oracle/SPEC.md, M4, M5 and C13.

Under CSC only parts of a tensor have been summed. The ratio is taken from those parts alone, as all ranks hold them
alike; weight decay counts once for each step since a chunk was last sent.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

from refgf.device import array_module
from refgf.exchange.blocks import block_elements, blocks


class LARS:
    """Updates a flat array (n,) in place. specs: .shape and .decay of each tensor, in the order of the pool."""

    def __init__(self, specs: Sequence, parameters, trust: float = 0.001, momentum: float = 0.9, weight_decay: float = 5e-4):
        if not (trust > 0 and 0 <= momentum < 1 and weight_decay >= 0):
            raise ValueError(
                f"LARS: got trust={trust}, momentum={momentum}, weight_decay={weight_decay}; wanted trust > 0, "
                "0 <= momentum < 1, weight_decay >= 0; next: trust=0.001"
            )
        self.parameters, self.velocity = parameters, array_module(parameters).zeros_like(parameters)
        self.trust, self.momentum, self.weight_decay = float(trust), float(momentum), float(weight_decay)
        edges = [0, *itertools.accumulate(math.prod(spec.shape) for spec in specs)]
        self._tensors = [(slice(*edge), bool(spec.decay)) for edge, spec in zip(itertools.pairwise(edges), specs)]
        n = min(parameters.size, block_elements(parameters))
        self._scratch = array_module(parameters).empty(n, parameters.dtype)

    def step(self, gradients, rate: float, slices: Iterable[slice] | None = None, waited: Iterable[int] | None = None) -> None:
        """One update. slices (ascending, disjoint) restricts it; waited: how many steps' decay each of them gets."""
        parts = [slice(0, self.parameters.size)] if slices is None else list(slices)
        steps = [1] * len(parts) if waited is None else list(waited)
        first = 0
        for tensor, decays in self._tensors:
            while first < len(parts) and parts[first].stop <= tensor.start:
                first += 1
            own = []
            for part, count in zip(parts[first:], steps[first:]):
                if part.start >= tensor.stop:
                    break
                own.append((slice(max(part.start, tensor.start), min(part.stop, tensor.stop)), count))
            own = [(part, count) for part, count in own if part.stop > part.start]
            ratio = self.ratio(gradients, [part for part, _ in own]) if decays else 1.0
            for part, count in own:
                self._update(gradients, part, rate * ratio, self.weight_decay * count if decays else 0.0)

    def ratio(self, gradients, parts: Sequence[slice]) -> float:
        """trust |w| / (|g| + decay |w|) over parts of the pool."""
        w, g = (math.sqrt(sum(_square(x, part) for part in parts)) for x in (self.parameters, gradients))
        below = g + self.weight_decay * w
        return self.trust * w / below if w > 0 and below > 0 else 1.0

    def _update(self, gradients, part: slice, rate: float, decay: float) -> None:
        xp = array_module(gradients)
        for block in blocks(gradients, part.start, part.stop):
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


def _square(x, part: slice) -> float:
    """The sum of squares of a part of x, in float64."""
    total = 0.0
    for block in blocks(x, part.start, part.stop):
        wide = x[block].astype("float64")
        total += float(wide @ wide)
    return total
