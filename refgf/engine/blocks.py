"""The pool, cut into blocks: several passes over one block cost one trip to memory, no temporary is of full size."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy

from refgf.device import is_device

# a few float32 arrays of this size stay in a core's share of the cache; half of it would fit the second level, but each call
# of NumPy gives Python's lock away and takes it again, and in a communication thread that costs more than the cache gives
BLOCK_ELEMENTS_CPU = 131_072
BLOCK_ELEMENTS_GPU = 4_194_304  # a GPU wants few large kernels


def block_elements(x) -> int:
    """How long a block of the array x should be."""
    return BLOCK_ELEMENTS_GPU if is_device(x) else BLOCK_ELEMENTS_CPU


def blocks(x, start: int, stop: int) -> Iterator[slice]:
    """Elements start..stop of the flat array x in slices of at most a block."""
    step = block_elements(x)
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def without_decay(specs: Sequence):
    """The numbers of all elements of the pool to which weight decay does not apply, ascending.

    specs: objects with .shape and .decay, in the order of the pool. Biases and normalisation: few elements.
    """
    edges = [0, *itertools.accumulate(math.prod(spec.shape) for spec in specs)]
    parts = [numpy.arange(start, stop) for spec, start, stop in zip(specs, edges, edges[1:]) if not spec.decay]
    return numpy.concatenate([numpy.zeros(0, numpy.int64), *parts])
