"""Lazy allreduce: let gradients wait until there is enough for one efficient message.

    gradients in order of generation    g0 g1 g2 | g3 | g4 g5
    waiting bytes after each            4  12 20 | 32 | 4  8         theta = 16
    one allreduce per group             ^^^^^^^^   ^^   ^^^^^        the last one because backward has ended

A group is sent as soon as its bytes on the wire are *greater than* theta; what still waits when backward is finished
is flushed. theta = 0 sends every tensor by itself as soon as it is ready (called eager here; wait-free
backpropagation in the literature), theta = infinity sends everything in one call. As the pool is laid out in order of
generation, a group is a slice: nothing is copied.

Cost per rank: the number of groups times what one call of the allreduce costs; bytes do not change.
Source: GradientFlow (Sun et al. 2019). Its default for theta is not known to us; every lesson names its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """One allreduce: elements start..stop of the pool, issued when gradient `after` was ready."""

    start: int
    stop: int
    after: int


class LazyAllreduce:
    """Calls `allreduce` on slices of `pool.flat` as gradients become ready.

    pool             a `Pool`
    allreduce        sums a flat array over all ranks, in place, now or later (`overlap.py`)
    threshold_bytes  theta, in bytes on the wire
    wire_itemsize    bytes a gradient takes on the wire (default: as in the pool)
    wait             called at the end of the step, when everything has been handed to `allreduce`

    `calls` lists this step's groups. Errors: ValueError for a bad theta, a gradient out of order, or an unfinished step.
    """

    name = "lazy allreduce"

    def __init__(
        self,
        pool,
        allreduce: Callable,
        threshold_bytes: float,
        wire_itemsize: int | None = None,
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        self.threshold_bytes = require_threshold(threshold_bytes)
        self.pool, self.allreduce, self.wait = pool, allreduce, wait
        self.itemsize = wire_itemsize or pool.flat.dtype.itemsize
        self.calls = []
        self._start = self._next = 0  # first waiting element, next expected gradient

    def ready(self, index: int) -> None:
        """Gradient number `index` is final. Gradients come in the order of the pool."""
        if index != self._next or index >= len(self.pool.specs):
            raise ValueError(
                f"{self.name}: gradient {index} is ready; wanted {self._next} of {len(self.pool.specs)}; "
                "next: announce gradients in the order of the pool, once a step, and call finish() after the last"
            )
        if index == 0:
            self.calls = []
        self._next += 1
        if self._is_full():
            self._flush()

    def finish(self) -> None:
        """Send what still waits, and return when every sum of this step is in the pool."""
        if self._next != len(self.pool.specs):
            raise ValueError(
                f"{self.name}: finished after {self._next} of {len(self.pool.specs)} gradients; "
                "next: announce every gradient, also those of a rank without samples"
            )
        if self._start < self.pool.offsets[-1]:
            self._flush()
        self._start = self._next = 0
        self.wait()

    def _is_full(self) -> bool:
        """Is what waits, up to gradient `_next`, a group? (another rule: `merged.py`)"""
        return (self.pool.offsets[self._next] - self._start) * self.itemsize > self.threshold_bytes

    def _flush(self) -> None:
        stop = self.pool.offsets[self._next]
        self.calls.append(Call(self._start, stop, self._next - 1))
        self.allreduce(self.pool.flat[self._start : stop])
        self._start = stop


def require_threshold(threshold_bytes) -> float:
    """theta as a number of bytes >= 0; infinity is one."""
    try:
        theta = float(threshold_bytes)
    except (TypeError, ValueError):
        theta = math.nan
    if not theta >= 0:
        raise ValueError(
            f"lazy allreduce: got theta = {threshold_bytes!r}; wanted bytes >= 0; "
            "next: 0 for eager, 65536, 1e6, inf for one call"
        )
    return theta
