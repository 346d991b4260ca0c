"""What measures an exchange: steps of a real network, and the replay of a backward pass.

An exchange has `ready(i)` for gradient i in order of generation, and `finish()`; see
refgf/exchange/lazy.py.
"""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """A tensor without values. decay: whether weight decay applies to it."""

    name: str
    shape: tuple[int, ...]
    decay: bool = False


def sizes_of(workload, share: int = 1) -> list[Size]:
    """The gradients of a workload (refgf/papers/scaling/shapes.py), each `share` times smaller."""
    return [Size(tensor.name, (max(1, tensor.elements // share),)) for tensor in workload.tensors]


def replay_backward(exchange, ready_s: list[float]) -> None:
    """Announce each gradient at its time, then finish. Time spent in the exchange is added.

    The rank sleeps between gradients, so its core is free, as it is while a GPU computes.
    """
    late_s = -time.perf_counter()
    for i, at_s in enumerate(ready_s):
        time.sleep(max(0.0, at_s - late_s - time.perf_counter()))
        start_s = time.perf_counter()
        exchange.ready(i)
        late_s -= time.perf_counter() - start_s
    exchange.finish()
