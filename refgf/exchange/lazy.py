"""Lazy allreduce: gradients wait until there are enough bytes for one efficient message.

    gradients in order of generation    g0 g1 g2 | g3 | g4 g5
    waiting bytes after each            4  12 20 | 32 | 4  8         theta = 16
    one allreduce per group             ^^^^^^^^   ^^   ^^^^^        the rest: backward has ended

A group is sent as soon as its bytes on the wire are *greater than* theta. What still waits when
backward ends is flushed. theta = 0 sends every tensor by itself as soon as it is ready (wait-free
backpropagation, called eager here); theta = infinity sends everything in one call. A group is a
slice of the pool, so nothing is copied.

Cost per rank: the number of groups times the cost of one allreduce call; the bytes do not change.
Source: GradientFlow (Sun et al. 2019). Its default theta is not known to us.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from refgf.device import Allreduce
from refgf.exchange.interfaces import Grouping
from refgf.exchange.pool import Packed, Pool
from refgf.exchange.result import StepResult


class EagerAllreduce:
    """The naive form: one allreduce for each gradient, as `LazyAllreduce` with theta = 0."""

    def __init__(self, pool: Pool, allreduce: Allreduce) -> None:
        self.pool, self.allreduce = pool, allreduce

    def ready(self, index: int) -> None:
        """Gradient number `index` is final."""
        self.allreduce(self.pool.flat[self.pool.elements(index)])

    def finish(self) -> StepResult:
        """Every sum is in the pool already."""
        return StepResult()


@dataclass(frozen=True)
class Theta:
    """The rule of lazy allreduce: a group is complete when its bytes exceed `threshold_bytes`."""

    threshold_bytes: float = math.inf

    def __post_init__(self) -> None:
        if not isinstance(self.threshold_bytes, int | float) or not self.threshold_bytes >= 0:
            got = f"lazy allreduce: got theta = {self.threshold_bytes!r}; wanted bytes >= 0"
            raise ValueError(f"{got}; next: 0 for eager, 65536, 1e6, inf for one call")

    def is_complete(self, waiting_bytes: int, last: int) -> bool:
        return waiting_bytes > self.threshold_bytes

    def check(self, count: int) -> None:
        """Theta fits any gradients."""


ONE_CALL = Theta()


@dataclass(frozen=True)
class Call:
    """One allreduce: elements start..stop of the pool."""

    start: int
    stop: int


class LazyAllreduce:
    """Calls `allreduce` on slices of `pool.flat` as gradients become ready.

    allreduce  may return before the sums are there (`overlap.py`)
    grouping   a `Theta`, or another rule (`papers/mgwfbp`)
    wire       type of a gradient on the wire (default: as in the pool)

    `calls` lists this step's groups. Errors: ValueError for a gradient out of order or missing.
    """

    def __init__(
        self,
        pool: Pool | Packed,
        allreduce: Allreduce,
        grouping: Grouping = ONE_CALL,
        wire: DTypeLike | None = None,
    ) -> None:
        self.grouping = grouping
        self.grouping.check(len(pool.specs))
        self.pool, self.allreduce = pool, allreduce
        self.itemsize = np.dtype(wire or pool.flat.dtype).itemsize
        self.calls: list[Call] = []
        self._start = self._next = 0  # first waiting element, next expected gradient

    def ready(self, index: int) -> None:
        """Gradient number `index` is final. Gradients come in the order of the pool."""
        require_next(index, self._next, len(self.pool.specs), "lazy allreduce")
        if index == 0:
            self.calls = []
        self._next += 1
        waiting_bytes = (self.pool.offsets[self._next] - self._start) * self.itemsize
        if self.grouping.is_complete(waiting_bytes, index):
            self._flush()

    def finish(self) -> StepResult:
        """Send what still waits."""
        require_all(self._next, len(self.pool.specs), "lazy allreduce")
        if self._start < self.pool.offsets[-1]:
            self._flush()
        self._start = self._next = 0
        return StepResult()

    def _flush(self) -> None:
        stop = self.pool.offsets[self._next]
        self.calls.append(Call(self._start, stop))
        self.allreduce(self.pool.flat[self._start : stop])
        self._start = stop


def require_next(index: int, expected: int, count: int, operation: str) -> None:
    """ValueError unless gradient `index` of `count` is the one that comes next."""
    if index != expected or index >= count:
        got = f"{operation}: gradient {index} is ready; wanted {expected} of {count}"
        raise ValueError(f"{got}; next: announce each once, in the order of the pool, then finish")


def require_all(announced: int, count: int, operation: str) -> None:
    """ValueError unless all gradients of the step have been announced."""
    if announced != count:
        got = f"{operation}: finished after {announced} of {count} gradients"
        raise ValueError(f"{got}; next: announce every one, also on a rank without samples")
