"""Which chunks of the gradient pool matter most, and how many of them are sent in which step.

    pool      | chunk 0 | chunk 1 | chunk 2 | chunk 3 | last |   of 32,768 gradients
    norms      3.1       0.2       1.4       0.9       2.2      L1 norms, summed over the ranks
    density 40 %         of 5 chunks: ceil(2) = 2 are sent in the next step: 0 and 4

The importance of a chunk is the sum over ranks of the L1 norm of what it would send, divided by its
length (the short last one holds the first convolution and would starve), in float64. All ranks
choose from the same bits, so they choose the same chunks and send no indices. Source: GradientFlow
(Sun et al. 2019), by an article and by notes about it, which oracle/SPEC.md names: chunks, L1 norms
and the choice at the end of an iteration. Division, ties and warm-up are chosen here (C4 to C6).
"""

import math
from dataclasses import dataclass

import numpy as np

from refgf.comm.slices import chunks, length
from refgf.device import Array, array_module


def add_norms(norms: Array, magnitude: Array, start: int, chunk: int) -> None:
    """norms (C,) float64 <- norms + sums of |x| (k,), which is elements start.. of the pool."""
    xp, n = array_module(magnitude), magnitude.size
    head = min(-start % chunk, n)  # the rest of a chunk that began before
    whole = (n - head) // chunk
    first, tail = -(-start // chunk), head + whole * chunk
    if head:
        norms[start // chunk] += magnitude[:head].sum(dtype=np.float64)
    if whole:
        rows = magnitude[head:tail].reshape(whole, chunk)  # (whole * chunk,) -> (whole, chunk)
        norms[first : first + whole] += xp.einsum("ij->i", rows, dtype=np.float64)
    if tail < n:
        norms[first + whole] += magnitude[tail:].sum(dtype=np.float64)


def importance(norms: Array, n: int, chunk: int) -> np.ndarray:
    """Norms divided by the chunks' lengths. (C,) -> (C,)"""
    return norms / np.array([length(c) for c in chunks(n, chunk)], np.float64)


def choose(values: Array, percent: float) -> list[int]:
    """The max(1, ceil(C percent / 100)) most important chunks; ties to the lower number."""
    count = max(1, math.ceil(len(values) * percent / 100))
    return sorted(np.argsort(-values, kind="stable")[:count].tolist())


@dataclass(frozen=True)
class Density:
    """How many percent of the chunks are sent: one number per warm-up epoch, then `percent`.

        Density(10)                                          10 % from the second step on
        Density(10, warmup=(100, 25), steps_per_epoch=40)    a dense epoch, one at 25 %, then 10 %

    The first accepted step is dense: no rank has chosen before. An epoch of warm-up at 100 % is
    dense training; `percent` 100 sends all chunks by CSC. steps: length of the run, to refuse a
    longer warm-up.
    """

    percent: float
    warmup: tuple[float, ...] = ()
    steps_per_epoch: int = 1
    steps: int | None = None

    def __post_init__(self) -> None:
        for percent in (self.percent, *self.warmup):
            if not 0 < percent <= 100:
                got = f"CSC: got a density of {percent} %; wanted above 0, at most 100"
                raise ValueError(f"{got}; next: 10 as in the paper, or csc=None for dense training")
        if self.steps_per_epoch < 1:
            got = f"CSC: got steps_per_epoch={self.steps_per_epoch}"
            raise ValueError(f"{got}; wanted at least 1; next: steps of an epoch of your data")
        warmup_steps = len(self.warmup) * self.steps_per_epoch
        if self.steps is not None and self.warmup and warmup_steps >= self.steps:
            got = f"CSC: got a warm-up of {warmup_steps} steps in a run of {self.steps}"
            wanted = f"wanted a shorter one, or nothing is ever sent at {self.percent} %"
            raise ValueError(f"{got}; {wanted}; next: fewer warm-up densities, or more epochs")

    def at(self, step: int) -> tuple[float, bool]:
        """(percent, is it dense?) of a step, counted from 0. A dense step sends everything."""
        epoch = step // self.steps_per_epoch
        if epoch < len(self.warmup):
            return self.warmup[epoch], step == 0 or self.warmup[epoch] == 100
        return self.percent, step == 0


def as_density(density: float | Density) -> Density:
    """A number of percent as a `Density`."""
    return density if isinstance(density, Density) else Density(density)
