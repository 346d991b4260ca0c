"""Chosen chunks, in the pool and packed one after another.

    pool      | 0 | 1 | 2 | 3 | 4 | 5 | 6|        chunk 6 is shorter
    chosen          1   2           5   6
    packed    | 1 | 2 | 5 | 6|                    groups: (1, 2) (5) (6) with two chunks to a block

Short chunks are handled many at a time, as rows of a matrix (whole chunks, chunk); one by one,
Python would take longer than the arithmetic. A group has at most a block, so copies stay in the
cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from refgf.comm.slices import length
from refgf.device import Array, array_module
from refgf.nn.workspace import cut


@dataclass(frozen=True)
class Group:
    """Neighbours in the packed buffer: whole chunks, or the short last one.

    places  their places among the chosen chunks
    packed  their slice of the packed buffer
    chunk   length of a whole chunk
    rows    numbers of the whole chunks; None for the short one
    short   the short chunk's slice of the pool; None for whole chunks
    """

    places: range
    packed: slice
    chunk: int
    rows: numpy.ndarray | None
    short: slice | None

    def take(self, x: Array) -> Array:
        """These chunks of the flat array x, one after another; a copy."""
        if self.rows is None:
            return x[self.short].copy()
        return self._matrix(x)[self._index(x)].reshape(-1)

    def put(self, x: Array, values: Array) -> None:
        """Overwrite these chunks of x. values: of the shape that `take` returns."""
        if self.rows is None:
            x[self.short] = values
        else:
            self._matrix(x)[self._index(x)] = values.reshape(-1, self.chunk)

    def repeat(self, values: Array, x: Array) -> Array:
        """This group's of the values (one per chosen chunk), each repeated over its chunk."""
        own = array_module(x).asarray(values[self.places.start : self.places.stop], dtype=x.dtype)
        return array_module(x).repeat(own, (self.packed.stop - self.packed.start) // len(own))

    def _matrix(self, x):
        whole = x[: x.size // self.chunk * self.chunk]
        return whole.reshape(-1, self.chunk)  # (n,) -> (whole chunks, chunk)

    def _index(self, x):
        return array_module(x).asarray(self.rows)


def groups(chosen: Sequence[int], n: int, chunk: int, block_elements: int) -> list[Group]:
    """The chosen chunks (ascending) of n elements, in groups of at most a block or of one chunk."""
    whole = n // chunk  # the chunk of this number, if there is one, is short
    rows = numpy.array([number for number in chosen if number < whole], numpy.int64)
    found = []
    for own in cut(slice(0, len(rows)), max(1, block_elements // chunk)):
        packed = slice(own.start * chunk, own.stop * chunk)
        found.append(Group(range(own.start, own.stop), packed, chunk, rows[own], None))
    if len(rows) < len(chosen):
        start, short = len(rows) * chunk, slice(whole * chunk, n)
        packed = slice(start, start + length(short))
        found.append(Group(range(len(rows), len(chosen)), packed, chunk, None, short))
    return found
