"""LARS where a rank has a slice of the weights only, as in ZeRO: its norms are shared as in M8."""

from collections.abc import Callable, Sequence

import numpy

from refgf.device import Array
from refgf.papers.jia.lars import squared_norms


def shared_norms(allreduce: Callable[[Array], object]) -> Callable:
    """`norms` for LARS: each rank's sums of squares of its slice, added over the ranks.

    allreduce sums a float64 array in place, to the same bits on each rank: 2L elements a step.
    """

    def norms(w: Array, g: Array, tensors: Sequence[Sequence[slice]]) -> numpy.ndarray:
        squares = squared_norms(w, g, tensors)  # (2, L)
        allreduce(squares.reshape(-1))
        return squares

    return norms
