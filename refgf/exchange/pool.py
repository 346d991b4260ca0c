"""The memory pool: all gradients in one buffer, in the order in which backward generates them.

    pool.flat     | fc8.bias | fc8.weight | fc7.bias | ... | conv1.weight |
    offsets       0          |            |                               n

Backward works from the last layer to the first, and within a layer finishes the bias first.
Neighbours in time are neighbours in memory, so several waiting gradients are one slice of the pool:
they are sent in one message without a copy. Source: GradientFlow (Sun et al. 2019).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refgf.device import Array
from refgf.exchange.interfaces import Zeros


class Pool:
    """One flat buffer with a view per tensor.

    specs     objects with `.name` and `.shape`, in order of generation
    zeros     zeros(n, dtype) allocates: numpy.zeros, cupy.zeros, or memory shared between ranks

    .flat     (n,) the buffer
    .views    the tensors inside the buffer
    .offsets  len(specs) + 1 element offsets: tensor i is flat[offsets[i]:offsets[i + 1]]
    """

    def __init__(
        self, specs: Sequence[Any], dtype: DTypeLike = np.float32, zeros: Zeros = np.zeros
    ) -> None:
        self.specs = list(specs)
        self.offsets = [0, *itertools.accumulate(math.prod(spec.shape) for spec in self.specs)]
        self.flat = zeros(self.offsets[-1], dtype)  # (n,)
        self.views = [
            self.flat[start:stop].reshape(spec.shape)
            for spec, (start, stop) in zip(self.specs, itertools.pairwise(self.offsets))
        ]

    def elements(self, index: int) -> slice:
        """Where tensor number `index` lies in the buffer."""
        return slice(self.offsets[index], self.offsets[index + 1])

    def layout(self) -> str:
        """The order, shapes and dtype as one text, to compare between ranks."""
        tensors = " ".join(f"{spec.name}{tuple(spec.shape)}" for spec in self.specs)
        return f"{self.flat.dtype}: {tensors}"


@dataclass
class Packed:
    """What CSC sends in one step: unit i is flat[offsets[i]:offsets[i + 1]]."""

    specs: list[slice]  # the chosen chunks; in a dense step the tensors
    offsets: list[int]
    flat: Array
