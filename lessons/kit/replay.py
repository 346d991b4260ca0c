"""Steps to measure an exchange with: a real network's pace, and the replay of a network that is not there.

An exchange has `ready(i)` for gradient i in order of generation, and `finish()` (refgf/exchange/lazy.py).
"""

import time
from dataclasses import dataclass

import numpy as np

from refgf.training.step import train_step


@dataclass(frozen=True)
class Size:
    """A tensor of which only name and shape matter, and whether weight decay applies to it."""

    name: str
    shape: tuple[int, ...]
    decay: bool = False


def sizes_of(workload, share: int = 1) -> list[Size]:
    """The gradients of a workload of refgf.predict.workloads as flat tensors, each `share` times smaller."""
    return [Size(tensor.name, (max(1, tensor.elements // share),)) for tensor in workload.tensors]


def replay_backward(exchange, ready_s: list[float]) -> None:
    """Announce each gradient when a backward pass of this pace would; time spent in the exchange comes on top.

    The rank sleeps meanwhile, so its core is free, as it is while a GPU computes.
    """
    late_s = -time.perf_counter()
    for i, at_s in enumerate(ready_s):
        time.sleep(max(0.0, at_s - late_s - time.perf_counter()))
        start_s = time.perf_counter()
        exchange.ready(i)
        late_s -= time.perf_counter() - start_s
    exchange.finish()


class _Clock:
    """An exchange that only looks at the time."""

    def __init__(self) -> None:
        self.start_s, self.ready_s = time.perf_counter(), []

    def ready(self, i: int) -> None:
        self.ready_s.append(time.perf_counter() - self.start_s)

    def finish(self) -> None:
        pass


def pace(run, model, batches) -> tuple[list[float], float]:
    """(when each gradient is ready after the start of a step, how long a step takes) without any exchange, in seconds.

    Medians over the batches after the first; the maximum over ranks. rate = 0: the parameters stay as they are.
    """
    ready, steps = [], []
    for batch in batches:
        run.plain.Barrier()
        clock = _Clock()
        train_step(model, clock, *batch, rate=0.0)
        ready.append(clock.ready_s)
        steps.append(time.perf_counter() - clock.start_s)
    ready_s = np.max(run.plain.allgather(np.median(ready[1:], axis=0)), axis=0)
    return ready_s.tolist(), run.slowest(steps[1:]).median_s


def time_steps(run, model, exchange, batches):
    """The Timing of whole training steps with this exchange, the first one left out; parameters stay as they are."""
    mine = []
    for batch in batches:
        run.plain.Barrier()
        start_s = time.perf_counter()
        train_step(model, exchange, *batch, rate=0.0)
        mine.append(time.perf_counter() - start_s)
    return run.slowest(mine[1:])
