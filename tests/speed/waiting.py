"""A network that waits as long as another one computes: exchanges compared at equal compute.

pace = {"forward_s": seconds, "steps_s": [seconds of backward before each gradient is ready],
        "rest_s": seconds after the last one, "update_s": seconds}
"""

import time
from dataclasses import dataclass

import numpy as np

from refgf.nn.workspace import Workspace


@dataclass(frozen=True)
class Spec:
    name: str
    shape: tuple
    decay: bool = True


class WaitingNetwork:
    """A network for `replica` that sleeps instead of computing and leaves the gradients as is."""

    def __init__(self, tensors, pace: dict) -> None:
        self.tensors = [Spec(t.name, tuple(t.shape), t.decay) for t in tensors]
        self.dtype, self.xp, self.pace = np.dtype(np.float32), np, pace
        self.running, self.dropout_rng = [], np.random.default_rng(0)
        self.workspace = Workspace()

    def bind(self, parameters, gradients) -> None:
        self.gradients = gradients

    def initialize(self, seed: int) -> None:
        for array in self.gradients:
            array[...] = 1e-3  # not zero, or a sleeping rank's pages would not exist

    def loss(self, images, labels, global_batch) -> float:
        self.logits_gradient = np.zeros(1)
        time.sleep(self.pace["forward_s"])
        return 0.0

    def backward(self, on_ready) -> None:
        """Sleep before each gradient. Time spent in on_ready is added, as in a real network."""
        for i, seconds in enumerate(self.pace["steps_s"]):
            time.sleep(seconds)
            on_ready(i)
        time.sleep(self.pace["rest_s"])

    def accept(self) -> None:
        pass
