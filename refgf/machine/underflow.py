"""The share of gradients that underflow on the wire: a measuring instrument of lesson 05."""

from collections.abc import Callable

import numpy as np

from refgf.comm.slices import chunks
from refgf.device import array_module

BLOCK_ELEMENTS = 131_072  # its 16-bit copy stays in the cache


class Underflow:
    """Wraps an Allreduce: counts the non-zero elements that become zero in the wire type.

    `share` is their share of all non-zero elements so far. Cost: one more pass over x.
    """

    def __init__(self, allreduce: Callable, wire) -> None:
        self._allreduce, self._wire = allreduce, np.dtype(wire)
        self.nonzero = self.lost = 0

    def __call__(self, x) -> None:
        xp = array_module(x)
        for block in chunks(x.size, BLOCK_ELEMENTS):
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                rounded = x[block].astype(self._wire)
            nonzero = int(xp.count_nonzero(x[block]))
            self.nonzero += nonzero
            self.lost += nonzero - int(xp.count_nonzero(rounded))
        self._allreduce(x)

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.lost / max(1, self.nonzero)
