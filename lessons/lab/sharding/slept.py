"""Lesson 16: the virtual accelerator layer by layer, as ZeRO-3 needs it: each layer is slept."""

import time

from refgf.machine.accelerator import Pace, VirtualNetwork, sleep_until
from refgf.plan.sharding import Unit


class SleptLayer:
    """The tensors of a layer, and how long an accelerator computes them."""

    def __init__(self, tensors, forward_s: float, backward_s: float) -> None:
        self.tensors, self.forward_s, self.backward_s = tensors, forward_s, backward_s

    def bind(self, parameters, gradients) -> None:
        self.gradients = gradients


class SleptLayers:
    """A network of them for `ZeRO3`. Its gradients are constant."""

    def __init__(self, network: VirtualNetwork) -> None:
        self.workspace, self.xp = network.workspace, network.xp
        self.layers = layers_of(network.tensors, network.pace)

    def loss(self, images, labels, global_batch: int, observe) -> float:
        for layer in self.layers:
            sleep_until(time.perf_counter() + layer.forward_s)
            observe("", "forward")
        return 0.0

    def backward(self, on_ready, observe) -> None:
        for layer in reversed(self.layers):
            until_s = time.perf_counter() + layer.backward_s
            for gradient in layer.gradients:
                gradient[...] = 1e-3
            sleep_until(until_s)
            observe("", "backward")

    def accept(self) -> None:
        pass


def layers_of(tensors, pace: Pace) -> list[SleptLayer]:
    """In the order of forward. Forward is divided among the layers as backward is (chosen)."""
    names = [tensor.name.split(".")[0] for tensor in tensors]
    found, start_s = [], pace.forward_s
    for name in dict.fromkeys(names):
        own = [i for i, each in enumerate(names) if each == name]
        backward_s = pace.ready_s[own[-1]] - start_s
        forward_s = pace.forward_s * backward_s / (pace.end_s - pace.forward_s)
        found.append(SleptLayer([tensors[i] for i in own], forward_s, backward_s))
        start_s += backward_s
    return found[::-1]


def units(layers: list[SleptLayer]) -> list[Unit]:
    """For the prediction."""
    sizes = [sum(tensor.size for tensor in layer.tensors) for layer in layers]
    return [Unit(each.forward_s, each.backward_s, n) for each, n in zip(layers, sizes)]
