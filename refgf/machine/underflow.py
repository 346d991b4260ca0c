"""How much of what is sent becomes zero on the wire: a measuring instrument of lesson 05."""

import numpy

from refgf.device import array_module
from refgf.engine.blocks import blocks


class Underflow:
    """An `Allreduce` around another: counts the elements that are not zero but become zero on the wire.

    `share` is their share among all that were not zero so far. A measuring instrument: one more pass over what travels.
    """

    def __init__(self, allreduce, wire) -> None:
        self._allreduce, self._wire = allreduce, numpy.dtype(wire)
        self.nonzero = self.lost = 0

    def __call__(self, x) -> None:
        xp = array_module(x)
        for block in blocks(x, 0, x.size):
            with numpy.errstate(over="ignore", under="ignore", invalid="ignore"):
                travels = x[block].astype(self._wire)
            nonzero = int(xp.count_nonzero(x[block]))
            self.nonzero += nonzero
            self.lost += nonzero - int(xp.count_nonzero(travels))
        self._allreduce(x)

    @property
    def share(self) -> float:
        return self.lost / max(1, self.nonzero)
