"""Merged gradients (MG-WFBP): measured times decide once which gradients are sent together.

    1 profile   when is each gradient ready, how long does an     Profile, slowest
                allreduce of m bytes take?
    2 fit       a + b m through the times of the allreduces       refgf.predict.fit.fit_line
    3 merge     which gradients are sent together?                greedy_merge or exact_merge of
                                                                  papers/mgwfbp/merge.py
    4 run       one allreduce for each group, when its last       Groups
                gradient is ready

    gradients in order of generation    g0 g1 | g2 | g3 g4 g5 ...
    groups                              ^^^^^   ^^   ^^^^^^^^       range(0, 2), range(2, 3), ...

Groups may have any number of bytes, whereas lazy allreduce has one theta for all. The authors copy
gradients to a buffer for each group. In a pool that is laid out in order of generation a group is a
slice, so nothing is copied. The authors' step 3 is the greedy rule. `exact_merge`, after which the
last call ends as early as any groups allow, is ours.

Cost per rank: the cost of one allreduce per group; the bytes do not change. `slowest` sums p n
float64 once, for n numbers. Source: MG-WFBP (Shi, Chu, Li 2019). Their implementation has
the same four steps, with the greedy rule as the third (verified in their code).
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy

from refgf.arguments import checked, require
from refgf.device import synchronize
from refgf.exchange.lazy import require_next
from refgf.exchange.result import StepResult


@checked
@dataclass(frozen=True)
class Groups:
    """The grouping of merged gradients: a group is sent when its last gradient is ready.

    ranges  consecutive gradients, each gradient once and in order, the same on all ranks

    A group without elements is not sent.
    """

    ranges: tuple[range, ...]

    def is_complete(self, waiting_bytes: int, last: int) -> bool:
        """Send these bytes now? Gradient number `last` is the last that is ready."""
        return waiting_bytes > 0 and any(group[-1] == last for group in self.ranges)

    def check(self, count: int) -> None:
        """ValueError unless the groups hold each of `count` gradients once, in order."""
        require_groups(self.ranges, count)

    def __str__(self) -> str:
        return f"Groups({[len(group) for group in self.ranges]})"


@checked
class Profile:
    """An exchange that sums nothing and records when each gradient is ready.

    pool    the gradient pool
    accept  True: steps are accepted, so a step includes its update; False: the model never changes

    Times count from `start()`, or from FORWARD where this is also the observer of `train_step`;
    else from the first gradient. On a GPU each time is that of the finished gradient.
    """

    def __init__(self, pool, accept: bool = False) -> None:
        self.pool, self.steps = pool, []  # seconds of each gradient, of each step
        self._accept = accept
        self._start_s, self._times_s = None, []

    def start(self) -> None:
        """A step begins."""
        self._start_s = time.perf_counter()

    def span(self, lane: str, name: str) -> contextlib.AbstractContextManager:
        """An observer's method: `train_step` calls it for FORWARD first."""
        if name == "FORWARD":
            self.start()
        return contextlib.nullcontext()

    def ready(self, index: int) -> None:
        """Gradient number `index` is final."""
        require_next(index, len(self._times_s), len(self.pool.specs), "profile")
        synchronize(self.pool.flat)
        if self._start_s is None:
            self.start()
        self._times_s.append(time.perf_counter() - self._start_s)

    def finish(self) -> StepResult:
        """The step ends; nothing is sent."""
        self.steps.append(self._times_s)
        self._start_s, self._times_s = None, []
        return StepResult(self._accept)

    def ready_s(self, warmup: int = 1) -> list[float]:
        """Seconds until each gradient is ready on this rank: the median after `warmup` steps."""
        if len(self.steps) <= warmup:
            raise ValueError(
                f"Profile.ready_s: got {len(self.steps)} steps; wanted more than the {warmup} of "
                "the warm-up; next: take more steps"
            )
        return numpy.median(self.steps[warmup:], axis=0).tolist()


@checked
def slowest(values: Sequence[float], allreduce: Callable, rank: int, size: int) -> list[float]:
    """The largest of all ranks' values, element by element; the same bits on every rank.

    A call starts when its last rank arrives, so the slowest rank's times count, and all ranks form
    the same groups. allreduce: without a wire type; each rank adds its row to a table of zeros.
    """
    table = numpy.zeros((size, len(values)))
    table[rank] = values
    allreduce(table.reshape(-1))
    return table.max(axis=0).tolist()


def require_groups(groups: Iterable[range], count: int) -> list[range]:
    """The groups as a list; ValueError unless they hold gradients 0 to count - 1 once, in order."""
    groups = list(groups)
    wrong = [group for group in groups if not isinstance(group, range)]
    if wrong:
        require(False, "Groups", f"{wrong[0]!r:.80}", "ranges", "range(0, 3), range(3, 7)")
    if not all(groups) or list(itertools.chain(*groups)) != list(range(count)):
        raise ValueError(
            f"Groups: got groups {str(groups)[:200]}; wanted each of {count} gradients once, in "
            "order, and no empty group; next: refgf.papers.mgwfbp.merge.exact_merge, or "
            "lazy of refgf.predict.timeline"
        )
    return groups
