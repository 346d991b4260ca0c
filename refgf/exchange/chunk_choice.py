"""Which chunks of the gradient pool matter most, and how many of them travel in which step.

    pool      | chunk 0 | chunk 1 | chunk 2 | chunk 3 | last |        32,768 gradients each, the
              last one fewer
    norms      3.1       0.2       1.4       0.9       2.2           L1 norms, summed over the ranks
    density 40 %         of 5 chunks: ceil(2) = 2 travel in the next step: 0 and 4

The importance of a chunk is the sum over ranks of the L1 norm of what it would carry, divided by
its length (the short last one holds the first convolution and would starve), in float64. All ranks
choose from the same bits, so they choose the same chunks and no indices travel. Source:
GradientFlow (Sun et al. 2019) for chunks, allreduced L1 norms and the choice at the end of an
iteration; the division, ties and the warm-up schedule are chosen here (oracle/SPEC.md, C4-C6).
"""

import math
from dataclasses import dataclass

import numpy

from refgf.comm.slices import chunks, length
from refgf.device import array_module


def add_norms(norms, x, start: int, chunk: int, scratch) -> None:
    """Add the L1 norms of x, which is elements start.. of the pool, to norms (C,) float64, chunk by
    chunk.

    Sums are in float64. scratch: as long as x, and of its type; may be x.
    """
    add_sums(norms, array_module(x).absolute(x, out=scratch[: x.size]), start, chunk)


def add_sums(norms, magnitude, start: int, chunk: int) -> None:
    """Add the sums of what is positive already."""
    xp, n = array_module(magnitude), magnitude.size
    head = min(-start % chunk, n)  # the rest of a chunk that began before
    whole = (n - head) // chunk
    first, tail = -(-start // chunk), head + whole * chunk
    if head:
        norms[start // chunk] += magnitude[:head].sum(dtype=numpy.float64)
    if whole:
        rows = magnitude[head:tail].reshape(whole, chunk)  # (whole * chunk,) -> (whole, chunk)
        norms[first : first + whole] += xp.einsum(
            "ij->i", rows, dtype=numpy.float64
        )  # a fifth faster than sum(axis=1)
    if tail < n:
        norms[first + whole] += magnitude[tail:].sum(dtype=numpy.float64)


def importance(norms, n: int, chunk: int):
    """Norms divided by the chunks' lengths. (C,) -> (C,)"""
    return norms / numpy.array([length(c) for c in chunks(n, chunk)], numpy.float64)


def choose(values, percent: float) -> list[int]:
    """The max(1, ceil(C * percent / 100)) most important of C chunks, ties to the lower number. ->
    ascending
    """
    count = max(1, math.ceil(len(values) * percent / 100))
    return sorted(numpy.argsort(-values, kind="stable")[:count].tolist())


@dataclass(frozen=True)
class Density:
    """How many percent of the chunks travel: one number per warm-up epoch, then `percent`.

        Density(10)                                                   10 % from the second step on
        Density(10, warmup=(100, 25), steps_per_epoch=40, steps=400)  one dense epoch, one at 25 %,
        then 10 %

    The first step is always dense, as nobody has chosen yet. steps: length of the run, to refuse a
    longer warm-up.
    """

    percent: float
    warmup: tuple[float, ...] = ()
    steps_per_epoch: int = 1
    steps: int | None = None

    def __post_init__(self) -> None:
        for percent in (self.percent, *self.warmup):
            if not 0 < percent <= 100:
                raise ValueError(
                    f"CSC: got a density of {percent} %; wanted above 0, at most 100; "
                    "next: 10 as in the paper, or density=None for dense training without CSC"
                )
        if self.steps_per_epoch < 1:
            raise ValueError(f"CSC: got steps_per_epoch={self.steps_per_epoch}; wanted at least 1")
        warmup_steps = len(self.warmup) * self.steps_per_epoch
        if self.steps is not None and self.warmup and warmup_steps >= self.steps:
            raise ValueError(
                f"CSC: got a warm-up of {len(self.warmup)} epochs x {self.steps_per_epoch} steps = {warmup_steps} "
                f"in a run of {self.steps} steps; wanted a shorter one, or nothing is ever sent at {self.percent} %; "
                "next: fewer warm-up densities, or more epochs"
            )

    def at(self, step: int) -> tuple[float, bool]:
        """(percent, is it dense?) of a step, counted from 0. A dense step sends everything; nobody
        has to choose.
        """
        epoch = step // self.steps_per_epoch
        if epoch < len(self.warmup):
            return self.warmup[epoch], step == 0 or self.warmup[epoch] == 100
        return self.percent, step == 0
