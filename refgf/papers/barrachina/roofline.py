"""The roofline, and Barrachina et al.'s study with it: which resource limits which layer, and which limits a step.

    time of a kernel = max( flops / peak flops , bytes / memory bandwidth )      (verified: PyDTNN's performance model)

    flops/s
      peak |          ________________   flop-bound: batch is large, weights are used often
           |        /
           |      /    <- slope: memory bandwidth. Normalisation, pooling, fully connected layers of small batches
           |____/______________________ flops per byte

A step adds up the layers' kernels and the ring allreduces beside them. The study sweeps batch size, node flops, memory
bandwidth, link bandwidth and cluster size, and says for each point what most of the time goes into.
"""

from dataclasses import dataclass

from refgf.papers.scaling.systems import System, step
from refgf.predict.cost import Link, ring_line


@dataclass(frozen=True)
class Node:
    """What one rank computes with. flops: operations/s at best; bandwidth: bytes/s of its memory."""

    flops: float
    bandwidth: float

    def __post_init__(self):
        if not (self.flops > 0 and self.bandwidth > 0):
            raise ValueError(f"Node: got {self.flops} flop/s and {self.bandwidth} bytes/s, wanted both > 0")

    def kernel_s(self, flops, nbytes):
        return max(flops / self.flops, nbytes / self.bandwidth)

    def limit(self, flops, nbytes):
        return "flops" if flops / self.flops >= nbytes / self.bandwidth else "memory"


@dataclass(frozen=True)
class LayerTime:
    """Predicted times of a layer, and what limits each pass: "flops" or "memory"."""

    name: str
    forward_s: float
    backward_s: float
    forward_limit: str
    backward_limit: str


def layer_times(workload, batch, node, itemsize=4):
    """[LayerTime] in forward order for `batch` samples."""
    times = []
    for layer in workload.layers:
        forward = batch * layer.forward_flops, layer.forward_bytes(batch, itemsize)
        backward = batch * layer.backward_flops, layer.backward_bytes(batch, itemsize)
        seconds = [node.kernel_s(*work) for work in (forward, backward)]
        times.append(LayerTime(layer.name, *seconds, *(node.limit(*work) for work in (forward, backward))))
    return times


@dataclass(frozen=True)
class Point:
    """One point of the study. shares: {"flops", "memory", "network"} of the step; they sum to 1. "network" is what
    communication adds to the computation."""

    step_s: float
    samples_per_s: float
    shares: dict

    @property
    def bottleneck(self):
        return max(self.shares, key=self.shares.get)


def study(workload, batch, node, link, size, system=None, itemsize=4):
    """Point for `size` ranks with `batch` samples each. system: what travels (default: eager, float32, overlapped)."""
    times = layer_times(workload, batch, node, itemsize)
    backward_s = [layer.backward_s for layer in times]
    forward_s = sum(layer.forward_s for layer in times)
    ready = workload.gradients(sum(backward_s), forward_s, itemsize=1, layer_backward_s=backward_s)
    compute_s = forward_s + sum(backward_s)
    timeline = step(ready, system or System("eager"), ring_line(size, link), compute_s)
    seconds = {"flops": 0.0, "memory": 0.0, "network": timeline.exposed_s}
    for layer in times:
        seconds[layer.forward_limit] += layer.forward_s
        seconds[layer.backward_limit] += layer.backward_s
    total_s = sum(seconds.values())
    shares = {name: value / total_s for name, value in seconds.items()}
    return Point(timeline.step_s, size * batch / timeline.step_s, shares)


def bottleneck_map(workload, batches, bandwidths, node, size, alpha_s, system=None):
    """{(batch, link bytes/s): Point}: where a cluster of `size` ranks stops being limited by its network."""
    return {
        (batch, bandwidth): study(workload, batch, node, Link(alpha_s, 1 / bandwidth), size, system)
        for batch in batches
        for bandwidth in bandwidths
    }
