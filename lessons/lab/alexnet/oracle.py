"""Lesson 02's gradients against central differences of the loss."""

import numpy as np

import kit
from lab.alexnet.ranks import SEED, SMALL
from refgf.device import to_host
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.oracle.definitions import central_differences
from refgf.training.step import replica

H, LARGEST_ERROR = 1e-7, 1e-6  # the step of the differences; of the gradient's norm
CLASSES, IMAGES = 10, 3


def check_gradients(run: kit.Run) -> None:
    """Compare gradients with central differences on a small network in float64, on rank 0."""
    run.section("The oracle: are the gradients right?")
    run.say(f"(loss(w + h) - loss(w - h)) / 2h with h = {H:g}, for a few elements w of each layer")
    run.say("of a small AlexNet in float64:")
    rows = run.on_rank_0(lambda: differences(run, run.quick(2, 5)))
    run.table(
        ["layer", "elements tried", "norm of its gradient", "largest difference / norm"], rows or []
    )
    run.say("A normalisation removes the shift of the bias before it, so this bias has gradient 0.")


def differences(run: kit.Run, elements: int) -> list[list]:
    """One row for each layer with parameters.

    AssertionError where the difference is above LARGEST_ERROR of the gradient's norm.
    """
    space = Workspace(run.xp, np.float64)
    model = replica(AlexNet(CLASSES, dropout=0.0, workspace=space, **SMALL), seed=SEED)
    network, random = model.network, np.random.default_rng(SEED)
    images = random.standard_normal((IMAGES, *network.image_shape))
    labels = random.integers(0, CLASSES, IMAGES)
    network.loss(images, labels, IMAGES)
    network.backward(lambda i: None)
    found = {}  # layer: [elements tried, norm, largest difference]
    for spec, w, g in zip(network.tensors, model.parameters.views, model.gradients.views):
        w, g = w.reshape(-1), to_host(g.reshape(-1))
        chosen = np.unique([np.abs(g).argmax(), *random.integers(0, w.size, elements)])
        there = run.array(chosen)

        def loss_with(values, w=w, there=there):
            w[there] = run.array(values)
            return float(network.loss(images, labels, IMAGES))

        before = to_host(w[there])
        off = np.abs(central_differences(loss_with, before, H) - g[chosen]).max()
        w[there] = run.array(before)
        layer = spec.name.split(".")[0]
        tried, norm, largest = found.get(layer, (0, 0.0, 0.0))
        norm = max(norm, float(np.linalg.norm(g)))
        found[layer] = (tried + len(chosen), norm, max(largest, off))
    for layer, (_, norm, off) in found.items():
        if off > LARGEST_ERROR * norm:
            raise AssertionError(
                f"gradient of {layer}: got {off} off central differences; "
                f"wanted at most {LARGEST_ERROR:g} x {norm}"
            )
    return [
        [layer, tried, f"{norm:.3g}", f"{off / norm:.1e}"]
        for layer, (tried, norm, off) in found.items()
    ]
