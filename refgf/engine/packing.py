"""Chosen chunks, in the pool and packed one after another.

    pool      | 0 | 1 | 2 | 3 | 4 | 5 | 6|        chunk 6 is shorter
    chosen          1   2           5   6
    packed    | 1 | 2 | 5 | 6|                    groups: (1, 2) (5) (6) with two chunks to a block

Short chunks are handled many at a time, as rows of a matrix (whole chunks, chunk), or Python would spend more time on
them than the arithmetic; never more than a block at a time, so that the copies stay in the cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from refgf.device import array_module


@dataclass(frozen=True)
class Group:
    """Some neighbours in the packed buffer: whole chunks as `rows`, or the short last one as `part` of the pool.

    units   which of the chosen chunks
    packed  where they are in the packed buffer
    """

    units: range
    packed: slice
    chunk: int
    rows: numpy.ndarray | None
    part: slice | None

    def take(self, x):
        """These chunks of the flat array x, one after another; a copy."""
        return x[self.part].copy() if self.rows is None else self._matrix(x)[self._index(x)].reshape(-1)

    def put(self, x, values) -> None:
        """Overwrite these chunks of x with values, which have the shape of what `take` returns."""
        if self.rows is None:
            x[self.part] = values
        else:
            self._matrix(x)[self._index(x)] = values.reshape(-1, self.chunk)

    def each(self, values, x):
        """One value per chosen chunk, from all of them, repeated to the length of `take`'s result and in x's type."""
        own = array_module(x).asarray(values[self.units.start : self.units.stop], dtype=x.dtype)
        return array_module(x).repeat(own, (self.packed.stop - self.packed.start) // len(own))

    def _matrix(self, x):
        return x[: x.size // self.chunk * self.chunk].reshape(-1, self.chunk)  # (n,) -> (whole chunks, chunk)

    def _index(self, x):
        return array_module(x).asarray(self.rows)


def groups(chosen: Sequence[int], n: int, chunk: int, block_elements: int) -> list[Group]:
    """The chosen chunks (ascending) of n elements in groups of at most a block, or of one chunk if that is longer."""
    whole = n // chunk  # the chunk of this number, if there is one, is short
    rows = numpy.array([c for c in chosen if c < whole], numpy.int64)
    each, found = max(1, block_elements // chunk), []
    for first in range(0, len(rows), each):
        some = rows[first : first + each]
        packed = slice(first * chunk, (first + len(some)) * chunk)
        found.append(Group(range(first, first + len(some)), packed, chunk, some, None))
    if len(rows) < len(chosen):
        start = len(rows) * chunk
        short = slice(whole * chunk, n)
        found.append(Group(range(len(rows), len(chosen)), slice(start, start + n - whole * chunk), chunk, None, short))
    return found


def packed_positions(elements, chosen: Sequence[int], chunk: int):
    """Where elements of the pool (ascending numbers) are in the packed buffer; those of other chunks are left out."""
    chosen = numpy.asarray(chosen, numpy.int64)
    place = numpy.searchsorted(chosen, elements // chunk)
    here = (place < len(chosen)) & (chosen[numpy.minimum(place, len(chosen) - 1)] == elements // chunk)
    return place[here] * chunk + elements[here] % chunk
