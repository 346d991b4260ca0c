"""The memory pool: all gradients in one contiguous buffer, in the order in which backward generates them.

    pool.flat     | fc8.bias | fc8.weight | fc7.bias | ... | conv1.weight |
    offsets       0          |            |                               n

Backward works from the last layer to the first, and inside a layer finishes the bias first. Neighbours in time are
neighbours in memory, so that several waiting gradients are one slice of the pool and travel in one message, without
being copied together first. Source: GradientFlow (Sun et al. 2019).
"""

import itertools
import math

import numpy


class Pool:
    """One flat buffer with a view per tensor.

    specs    objects with `.name` and `.shape`, in order of generation
    .flat    (n,) the buffer, zeros at first
    .views   list of arrays, the tensors inside the buffer
    .offsets list of len(specs) + 1 element offsets: tensor i is flat[offsets[i]:offsets[i + 1]]
    .moved   called after `swap`: whoever holds views must take the new ones
    """

    def __init__(self, specs, dtype=numpy.float32, xp=numpy) -> None:
        self.specs = list(specs)
        sizes = [math.prod(spec.shape) for spec in self.specs]
        self.offsets = [0, *itertools.accumulate(sizes)]
        self.moved = lambda: None
        self._lay(xp.zeros(self.offsets[-1], dtype))

    def swap(self, flat):
        """Move into the buffer flat (n,), whose contents become the tensors'; returns the old one. Nothing is copied."""
        old = self.flat
        self._lay(flat)
        self.moved()
        return old

    def layout(self) -> str:
        """The order, shapes and dtype as one text, to compare between ranks."""
        tensors = " ".join(f"{spec.name}{tuple(spec.shape)}" for spec in self.specs)
        return f"{self.flat.dtype}: {tensors}"

    def _lay(self, flat) -> None:
        self.flat = flat
        self.views = [
            flat[start:stop].reshape(spec.shape)
            for spec, start, stop in zip(self.specs, self.offsets, self.offsets[1:])
        ]
