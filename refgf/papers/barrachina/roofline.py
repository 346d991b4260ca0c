"""The roofline, and Barrachina et al.'s study: the limit of a layer, and the bottleneck of a step.

    time of a kernel = max(flops / peak flops, bytes / memory bandwidth)
                                                              (verified: PyDTNN's performance model)

    flops/s
      peak |          ________________   flop-bound: the batch is large, weights are used often
           |        /
           |      /    <- slope: memory bandwidth. Normalisation, pooling, fully connected layers of
           |____/______________________             small batches                    flops per byte

A step is the layers' kernels with ring allreduces next to them. The study varies batch size, node
flops, memory bandwidth, link bandwidth and cluster size, and reports where most of the time goes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refgf.arguments import checked
from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import CallTime, Gradients, PredictedStep, eager, predict


@checked
@dataclass(frozen=True)
class Node:
    """A rank's processor. flops: peak operations/s. bandwidth: bytes/s of its memory."""

    flops: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (self.flops > 0 and self.bandwidth > 0):
            raise ValueError(
                f"Node: got {self.flops} flop/s and {self.bandwidth} bytes/s; wanted both > 0; "
                "next: measure the kernels again"
            )

    def kernel_s(self, flops: float, nbytes: float) -> float:
        return max(flops / self.flops, nbytes / self.bandwidth)

    def limit(self, flops: float, nbytes: float) -> str:
        return "flops" if flops / self.flops >= nbytes / self.bandwidth else "memory"


@checked
@dataclass(frozen=True)
class LayerTime:
    """Predicted times of a layer, and what limits each pass: "flops" or "memory"."""

    name: str
    forward_s: float
    backward_s: float
    forward_limit: str
    backward_limit: str


def layer_times(workload: Any, batch: int, node: Node, itemsize: int = 4) -> list[LayerTime]:
    """The layers of a refgf.papers.scaling.shapes.Workload in forward order, `batch` samples."""
    times = []
    for layer in workload.layers:
        forward = batch * layer.forward_flops, layer.forward_bytes(batch, itemsize)
        backward = batch * layer.backward_flops, layer.backward_bytes(batch, itemsize)
        seconds = [node.kernel_s(*work) for work in (forward, backward)]
        limits = [node.limit(*work) for work in (forward, backward)]
        times.append(LayerTime(layer.name, seconds[0], seconds[1], limits[0], limits[1]))
    return times


@checked
@dataclass(frozen=True)
class Point:
    """One point of the study.

    shares: {"flops", "memory", "network"} of the step; they sum to 1. "network" is what
    communication adds to the computation.
    """

    step_s: float
    samples_per_s: float
    shares: dict[str, float]

    @property
    def bottleneck(self) -> str:
        return max(self.shares, key=lambda name: self.shares[name])


def eager_step(ready: Gradients, allreduce_s: CallTime, compute_s: float) -> PredictedStep:
    """Every float32 gradient in a call of its own, overlapped. ready: [(ready_s, elements)]."""
    gradients = [(ready_s, 4 * elements) for ready_s, elements in ready]
    return predict(gradients, eager(gradients), allreduce_s, compute_s=compute_s)


def study(
    workload: Any,
    batch: int,
    node: Node,
    link: Link,
    size: int,
    step: Callable[..., PredictedStep] = eager_step,
) -> Point:
    """`size` ranks with `batch` samples each, in float32.

    step: what is sent, and when; called as `eager_step`. refgf.papers.scaling.systems.step with its
    system bound is another.
    """
    times = layer_times(workload, batch, node)
    backward_s = [layer.backward_s for layer in times]
    forward_s = sum(layer.forward_s for layer in times)
    ready = workload.gradients(sum(backward_s), forward_s, 1, backward_s)
    line, compute_s = ring_line(size, link), forward_s + sum(backward_s)
    predicted = step(ready, allreduce_s=line, compute_s=compute_s)
    seconds = {"flops": 0.0, "memory": 0.0, "network": predicted.exposed_s}
    for layer in times:
        seconds[layer.forward_limit] += layer.forward_s
        seconds[layer.backward_limit] += layer.backward_s
    total_s = sum(seconds.values())
    shares = {name: value / total_s for name, value in seconds.items()}
    return Point(predicted.step_s, size * batch / predicted.step_s, shares)
