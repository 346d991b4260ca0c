"""The case of ResNet-50."""

import math
from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import resnet50_step
from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.spec.case import Case

BLOCKS = [3, 4, 6, 3]
CLASSES, BATCH = 4, 5


def shapes() -> list[tuple[int, ...]]:
    """161 shapes in the order of generation, at a 64th of the width: 1, 2, 4, 8 channels."""
    found = [norm(1, (7, 7, 3))]
    channels = 1
    for stage, count in enumerate(BLOCKS):
        filters = 2**stage
        for number in range(count):
            shortcut = norm(4 * filters, (1, 1, channels)) if number == 0 else []
            a, b, c = (
                norm(filters, (1, 1, channels)),
                norm(filters, (3, 3, filters)),
                norm(4 * filters, (1, 1, filters)),
            )
            found.append(c + b + a + shortcut)
            channels = 4 * filters
    return [
        (CLASSES,),
        (channels, CLASSES),
        *(shape for layer in reversed(found) for shape in layer),
    ]


def norm(outputs: int, before: tuple[int, ...]) -> list[tuple[int, ...]]:
    """beta, gamma, and the weight of the convolution that they follow."""
    return [(outputs,), (outputs,), (*before, outputs)]


def cases() -> Iterator[Case]:
    rng = random_source("resnet50")
    tensors = [
        rng.standard_normal(s) * (2 / math.prod(s[:-1])) ** 0.5
        if len(s) > 1
        else 0.5 + rng.random(s)
        for s in shapes()
    ]
    arrays = {f"tensor{i:03}": tensor for i, tensor in enumerate(tensors)}
    arrays |= {"images": rng.standard_normal((2, 61, 61, 3)), "labels": np.array([3, 0])}
    why = (
        "loss and 161 gradients, last layer first, of two images of odd size in a global batch of 5"
    )
    case = make("resnet50-step", "resnet50_step", "N14 N15", why, {"global_batch": BATCH}, **arrays)
    require(len(tensors) == 161, case, "161 tensors")
    # as for AlexNet, of the largest gradient of its layer;
    # 53 normalisations in a row, each over few values, cost a factor
    for i in range(161):
        layer = range(2) if i < 2 else range(2 + (i - 2) // 3 * 3, 5 + (i - 2) // 3 * 3)
        size = max(np.linalg.norm(case[f"out.gradient{k:03}"]) for k in layer)
        require(size > 0, case, "every layer learns")
        case.tensors[f"bound.gradient{i:03}"] = np.full(
            case[f"out.gradient{i:03}"].shape, 1e-9 * size
        )
    case.tensors["bound.loss"] = 1e-9 * case["out.loss"]
    require(moved_loss(case, tensors) < 1e-5, case, "the loss moves along the gradient as it says")
    yield case


def moved_loss(case: Case, tensors: list[np.ndarray]) -> float:
    """N9 in one direction: relative error of the slope of the loss along a random direction."""
    rng, h = random_source("direction"), 1e-6
    directions = [rng.standard_normal(t.shape) for t in tensors]
    settings = case["in.images"], case["in.labels"]
    up, down = (
        resnet50_step(*settings, [t + s * h * d for t, d in zip(tensors, directions)], BATCH)[0]
        for s in (1, -1)
    )
    slope = sum((case[f"out.gradient{i:03}"] * d).sum() for i, d in enumerate(directions))
    return abs((up - down) / (2 * h) - slope) / abs(slope)
