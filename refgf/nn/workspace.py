"""Scratch memory of the layers, and the blocks of images in which they process a batch.

What a layer writes for one block of a few images (the strips of a convolution, a mask) is still in
the processor's cache when it is read again. A GPU wants one kernel over the whole batch, so there a
block is the whole batch. Memory is allocated once and used in every step, because a new array costs
as much in page faults as filling it.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refgf.device import Array, Memory, resized

__all__ = ["Array", "Shape", "Workspace", "cut"]
Shape = tuple[int, ...]
Work = Callable[[int, slice], None]
Term = Callable[[int, slice, Array], None]
CACHE_BYTES = 5 << 20  # scratch of one block; above a core's own L2, below its share of L3


def cut(span: slice, length: int) -> list[slice]:
    """The slices of at most `length` elements that make up `span`."""
    starts = range(span.start, span.stop, length)
    return [slice(start, min(start + length, span.stop)) for start in starts]


class Workspace:
    """Array library xp (numpy or cupy), dtype, scratch memory and blocks of one network's layers.

    images_per_block: None chooses by cache size. All work is done by worker 0;
    `refgf.engine.threaded.ThreadedWorkspace` has several workers.
    """

    def __init__(
        self,
        xp: ModuleType = np,
        dtype: DTypeLike = np.float32,
        images_per_block: int | None = None,
    ):
        if images_per_block is not None and images_per_block < 1:
            got = f"Workspace: got images_per_block={images_per_block}"
            raise ValueError(f"{got}; wanted at least 1; next: None, by cache size")
        self.xp, self.dtype, self.images_per_block = xp, np.dtype(dtype), images_per_block
        self._buffers, self._turn = Memory(), 0

    def scratch(self, name: str, shape: Shape, worker: int = 0, dtype: Any = None) -> Array:
        """Memory for a temporary: a buffer per (name, worker), which the next call overwrites."""
        return resized(self._buffers, (name, worker), shape, dtype or self.dtype, self.xp)

    def gradient(self, shape: Shape) -> Array:
        """Memory for a layer's input gradient. Two buffers alternate: the last one stays valid."""
        self._turn = 1 - self._turn
        return self.scratch(f"gradient {self._turn}", shape)

    def share(self, work: Work, n: int) -> None:
        """Call work(worker, span) with non-empty slices `span` that cover range(n)."""
        if n:
            work(0, slice(0, n))

    def image_blocks(self, span: slice, bytes_per_image: int) -> list[slice]:
        """The images `span`, cut into blocks whose scratch memory fits the cache."""
        if self.images_per_block:
            return cut(span, self.images_per_block)
        return self.cache_blocks(span, bytes_per_image)

    def cache_blocks(self, span: slice, nbytes: int) -> list[slice]:
        """`span`, cut into blocks that fit the cache, nbytes for each of its indices."""
        longest = CACHE_BYTES // nbytes if self.xp is np else span.stop - span.start
        return cut(span, max(1, longest))

    def each_block(self, work: Work, n: int, bytes_per_image: int) -> None:
        """Call work(worker, block) for the blocks of a batch of n images."""

        def work_on(worker: int, span: slice) -> None:
            for block in self.image_blocks(span, bytes_per_image):
                work(worker, block)

        self.share(work_on, n)

    def sum_over_blocks(self, compute: Term, n: int, bytes_per_image: int, out: Array) -> None:
        """out <- sum over blocks of the terms that compute(worker, block, term) writes."""
        if not n:
            out[...] = 0
        self.sum_of_worker(compute, 0, self.image_blocks(slice(0, n), bytes_per_image), out)

    def sum_of_worker(self, compute: Term, worker: int, blocks: list[slice], out: Array) -> None:
        for block in blocks[:1]:
            compute(worker, block, out)
        for block in blocks[1:]:
            term = self.scratch("term", out.shape, worker, out.dtype)
            compute(worker, block, term)
            out += term
