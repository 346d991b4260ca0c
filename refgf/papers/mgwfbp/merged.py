"""Merged gradients (MG-WFBP): which gradients travel together is decided once, from measured times.

    1 profile   when is each gradient ready, how long is an allreduce of m bytes?      Profile, slowest
    2 fit       a + b m through the times of the allreduces                            refgf.predict.fit.fit_line
    3 merge     the groups after which the last call ends first                        refgf.papers.mgwfbp.merge.exact_merge
    4 run       one allreduce for each group, when its last gradient is ready          Groups

    gradients in order of generation    g0 g1 | g2 | g3 g4 g5 ...
    groups                              ^^^^^   ^^   ^^^^^^^^       range(0, 2), range(2, 3), range(3, 6), ...

Steps 2 and 3 are arithmetic and live on another floor: this module is handed its groups. They may be of any bytes, while
lazy allreduce knows one theta for all. The authors copy gradients to a buffer for each group; in a pool that is laid out
in order of generation a group is a slice, and nothing is copied.

Cost per rank: the number of groups times what one call of the allreduce costs; bytes do not change. `slowest` sums
p n float64 once, for n numbers.
Source: MG-WFBP (Shi, Chu, Li 2019); their implementation profiles with the same steps (verified in their code).
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy

from refgf.device import synchronize
from refgf.exchange.result import StepResult
from refgf.exchange.lazy import require_next


@dataclass(frozen=True)
class Groups:
    """The rule of merged gradients: a group is sent when its last gradient is ready, whatever its bytes.

    ranges  consecutive gradients, each gradient once and in order, the same on all ranks. A group in which no gradient
            has elements is not sent.
    """

    ranges: tuple[range, ...]

    def is_complete(self, waiting_bytes: int, last: int) -> bool:
        """Is a group of so many bytes, whose last gradient is number `last`, to be sent now?"""
        return waiting_bytes > 0 and any(group[-1] == last for group in self.ranges)

    def check(self, count: int) -> None:
        """ValueError unless the groups hold `count` gradients."""
        require_groups(self.ranges, count)

    def __str__(self) -> str:
        return f"Groups({[len(group) for group in self.ranges]})"


class Profile:
    """An exchange that sums nothing and notes when each gradient is ready; stands in for another one for a few steps.

    Times count from `start()`, which `train_step` calls by way of its observer's `span`; else from the first gradient. Its
    steps are not accepted unless `accept`, so the model stays as it is. On a GPU each time is that of the finished gradient.
    """

    def __init__(self, pool, accept: bool = False) -> None:
        self.pool, self.steps = pool, []  # seconds of each gradient, of each step
        self._accept = accept  # True: a step includes its update
        self._start_s, self._times_s = None, []

    def start(self) -> None:
        self._start_s = time.perf_counter()

    def span(self, lane: str, name: str):
        if name == "FORWARD":
            self.start()
        return contextlib.nullcontext()

    def ready(self, index: int) -> None:
        require_next(index, len(self._times_s), len(self.pool.specs), "profile")
        synchronize(self.pool.flat)
        if self._start_s is None:
            self.start()
        self._times_s.append(time.perf_counter() - self._start_s)

    def finish(self) -> StepResult:
        self.steps.append(self._times_s)
        self._start_s, self._times_s = None, []
        return StepResult(self._accept)

    def ready_s(self, warmup: int = 1) -> list[float]:
        """Seconds until each gradient is ready: the median over the steps after `warmup`, of this rank alone."""
        if len(self.steps) <= warmup:
            raise ValueError(f"profile: got {len(self.steps)} steps; wanted more than the {warmup} of the warm-up")
        return numpy.median(self.steps[warmup:], axis=0).tolist()


def slowest(values: Sequence[float], allreduce: Callable, rank: int, size: int) -> list[float]:
    """The largest of all ranks' values, each by itself; the same bits on every rank, so that all form the same groups.

    A call starts when its last rank comes. allreduce: without a wire type; each rank adds its row to a table of zeros.
    """
    table = numpy.zeros((size, len(values)))
    table[rank] = values
    allreduce(table.reshape(-1))
    return table.max(axis=0).tolist()


def require_groups(groups: Iterable[range], count: int) -> list[range]:
    """The groups as a list; ValueError unless they hold the gradients 0 .. count-1 once each, in order."""
    groups = list(groups)
    ranges = all(isinstance(group, range) and len(group) for group in groups)
    if not ranges or list(itertools.chain(*groups)) != list(range(count)):
        raise ValueError(
            f"merged allreduce: got groups {str(groups)[:200]}; wanted each of {count} gradients once, in order, and no "
            "empty group; next: refgf.papers.mgwfbp.merge.exact_merge, or lazy and explicit of refgf.predict.timeline"
        )
    return groups
