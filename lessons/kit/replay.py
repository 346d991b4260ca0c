"""Steps to measure an exchange with: of a real network, and the replay of a network that is not there.

An exchange has `ready(i)` for gradient i in order of generation, and `finish()` (refgf/exchange/lazy.py).
"""

import time
from dataclasses import dataclass

from refgf.training.step import train_step


@dataclass(frozen=True)
class Size:
    """A tensor of which only name and shape matter, and whether weight decay applies to it."""

    name: str
    shape: tuple[int, ...]
    decay: bool = False


def sizes_of(workload, share: int = 1) -> list[Size]:
    """The gradients of a workload of refgf.papers.scaling.workloads as flat tensors, each `share` times smaller."""
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


def time_steps(run, model, exchange, batches):
    """The Timing of whole training steps with this exchange, the first one left out; parameters stay as they are."""
    mine = []
    for batch in batches:
        run.plain.Barrier()
        start_s = time.perf_counter()
        train_step(model, exchange, *batch, rate=0.0)
        mine.append(time.perf_counter() - start_s)
    return run.slowest(mine[1:])
