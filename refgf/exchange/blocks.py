"""The pool, cut into blocks: several passes over one block cost one trip to memory, no temporary is of full size."""

import math
from collections.abc import Iterator, Sequence

from refgf.device import is_device

BLOCK_ELEMENTS_CPU = 65_536  # a few float32 arrays of this size stay in a core's second-level cache
BLOCK_ELEMENTS_GPU = 4_194_304  # a GPU wants few large kernels


def block_elements(x) -> int:
    """How long a block of the array x should be."""
    return BLOCK_ELEMENTS_GPU if is_device(x) else BLOCK_ELEMENTS_CPU


def blocks(x, start: int, stop: int) -> Iterator[slice]:
    """Elements start..stop of the flat array x in slices of at most a block."""
    step = block_elements(x)
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def decay_edges(specs: Sequence) -> list[tuple[int, bool]]:
    """Where weight decay begins and ends in the pool: [(first element, does it decay?)], closed by (n, False).

    Neighbours with the same answer are joined. specs: objects with .shape and .decay, in the order of the pool.
    """
    edges, start = [], 0
    for spec in specs:
        if not edges or edges[-1][1] != bool(spec.decay):
            edges.append((start, bool(spec.decay)))
        start += math.prod(spec.shape)
    return [*edges, (start, False)]


def decaying(edges: list[tuple[int, bool]], start: int, stop: int) -> Iterator[tuple[int, int, bool]]:
    """Cut elements start..stop where decay begins or ends: (start, stop, does it decay?)."""
    for (first, decays), (last, _) in zip(edges, edges[1:]):
        if max(start, first) < min(stop, last):
            yield max(start, first), min(stop, last), decays
