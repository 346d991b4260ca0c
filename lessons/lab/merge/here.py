"""Lesson 09's second scene: this machine's links, and networks that are replayed, not computed.

The ranks sleep through a backward pass of an assumed length and send a share of each tensor. No
ratio of times is that of a GPU cluster: latency is shared memory's, and bytes cost the processor.
"""

from dataclasses import dataclass

import kit
from lab.lazy import grouped_steps
from lab.lazy.grouped_steps import Bench
from refgf.papers.scaling.workloads import densenet201, resnet50

SHARE = 8  # 1/8 of the bytes on 1 Gbit/s take as long as all bytes on 8 Gbit/s


@dataclass(frozen=True)
class Network:
    """A workload. backward_s: an assumption, two thirds of a step on a GPU of the papers."""

    workload: object
    backward_s: float


NETWORKS = {
    "resnet50": Network(resnet50(), 0.16),  # 250 images/s, batch 64
    # a step of 0.361 s at batch 64 (refgf/papers/scaling/rows.py)
    "densenet201": Network(densenet201(), 0.24),
}


def bench(run: kit.Run, name: str) -> Bench:
    """A replayed backward pass around a pool of smaller tensors."""
    network, share = NETWORKS[name], run.options.share or run.quick(256, SHARE)
    backward_s = run.quick(0.02, network.backward_s)
    bench = grouped_steps.replayed(run, network.workload, backward_s, share)
    run.say(f"{bench.title}: the ranks sleep for {backward_s} s of backward,")
    run.say("an assumption, divided among the layers in proportion to flops.")
    return bench
