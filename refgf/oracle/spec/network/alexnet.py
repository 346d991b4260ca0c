"""N10 and N11: AlexNet as a sequence of the layers N1 to N8, forward and backward."""

import math
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, Run
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import random_source
from refgf.oracle.spec.network.gradients import check_step
from refgf.oracle.spec.network.head import fully_connected, softmax_cross_entropy
from refgf.oracle.spec.network.layers import (
    batch_norm,
    batch_norm_backward,
    conv,
    conv_backward,
    max_pool,
    max_pool_backward,
    relu,
)
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

CONVOLUTIONS = [  # stride, padding, whether pooling follows
    (4, 0, True),
    (1, 2, True),
    (1, 1, False),
    (1, 1, False),
    (1, 1, True),
]


def alexnet_step(
    images: np.ndarray, labels: np.ndarray, tensors: list[np.ndarray], global_batch: int
) -> tuple[float, list[np.ndarray]]:
    """N10: AlexNet: five times convolution, batch normalisation, ReLU, pooling after 1, 2 and 5;
    three fully connected layers, ReLU after the first two. Strides 4, 1, 1, 1, 1; paddings 0, 2, 1,
    1, 1; pooling 3 x 3 / 2; pixels are flattened in the order (H, W, C). Images of 227 x 227 give
    C1's number of gradients.

    Source: Krizhevsky et al. 2012; ungrouped: inferred from the 1903 chunks (C1); batch
    normalisation in place of N5: You et al. 2017; after each convolution: chosen. Jia et al. 2018,
    by the review, normalise once more after pool5: not done here.

    There is no dropout. tensors: 26 arrays in the order of generation (N11). -> (loss, 26 gradients
    in that order)
    """
    layers = list(reversed(split_layers(tensors)))
    x, states = images, []
    for (beta, gamma, b, w), (stride, pad, pooled) in zip(layers[:5], CONVOLUTIONS):
        y = conv(x, w, b, stride, pad)
        z = relu(batch_norm(y, gamma, beta))
        out, where = max_pool(z) if pooled else (z, None)
        states.append((x, y, z, where))
        x = out
    shape, inputs = x.shape, [x.reshape(len(x), -1)]  # (N, H, W, C) -> (N, H*W*C)
    for b, w in layers[5:7]:
        inputs.append(relu(fully_connected(inputs[-1], w, b)))
    b, w = layers[7]
    loss, dy = softmax_cross_entropy(fully_connected(inputs[-1], w, b), labels, global_batch)
    gradients = []
    for i in (7, 6, 5):
        x, w = inputs[i - 5], layers[i][1]
        gradients += [dy.sum(axis=0), x.T @ dy]
        dy = (dy @ w.T) * (x > 0)  # x is the output of a ReLU, after the fifth convolution too
    dy = dy.reshape(shape)
    for i in (4, 3, 2, 1, 0):
        _, gamma, _, w = layers[i]
        stride, pad, _ = CONVOLUTIONS[i]
        x, y, z, where = states[i]
        dz = dy if where is None else max_pool_backward(z, where, dy)
        dx, dgamma, dbeta = batch_norm_backward(y, gamma, dz * (z > 0))
        dy, dw, db = conv_backward(x, w, dx, stride, pad)
        gradients += [dbeta, dgamma, db, dw]
    return loss, gradients


def split_layers(tensors: list[np.ndarray]) -> list[list[np.ndarray]]:
    """N11: gradients are generated last layer first; in a layer normalisation beta, gamma, then
    bias, weight.

    Source: chosen.

    -> 8 lists of tensors
    """
    sizes = [2, 2, 2, 4, 4, 4, 4, 4]
    starts = np.cumsum([0, *sizes])
    return [list(tensors[i:j]) for i, j in zip(starts, starts[1:])]


def numbers(count: int) -> list[str]:
    """["00", ... "25"] of 26 tensors."""
    return [str(i).zfill(len(str(count))) for i in range(count)]


def training_step(name: str, count: int) -> Run:
    """Loss and gradients of a network of `count` tensors."""

    def run(module: Any, case: Case) -> Outputs:
        tensors = [case[f"in.tensor{i}"] for i in numbers(count)]
        arguments = case["in.images"], case["in.labels"], tensors, case.arguments["global_batch"]
        loss, gradients = getattr(module, name)(*arguments)
        named = {f"out.gradient{i}": g for i, g in zip(numbers(count), gradients)}
        return {"out.loss": np.float64(loss), **named}

    return run


def step_inputs(count: int) -> str:
    return " ".join(["images", "labels", *(f"tensor{i}" for i in numbers(count))])


N10 = Statement("N10", alexnet_step)
N11 = Statement("N11", split_layers)
STEP = JudgedFunction(
    alexnet_step, "N8 N9 N10 N11", {"loss": ()}, step_inputs(26), training_step("alexnet_step", 26)
)

SHAPES = [(5,), (64, 5), (64,), (64, 64), (64,), (4, 64)]  # fc8, fc7, fc6: bias, weight
# inputs, outputs, kernel of conv1 .. conv5
CHANNELS = [(3, 2, 11), (2, 4, 5), (4, 6, 3), (6, 6, 3), (6, 4, 3)]


def weights(
    rng: np.random.Generator, shapes: list[tuple[int, ...]], least: float = 0.0
) -> list[np.ndarray]:
    """least: of vectors."""
    return [
        rng.standard_normal(s) * (2 / math.prod(s[:-1])) ** 0.5
        if len(s) > 1
        else least + rng.random(s)
        for s in shapes
    ]


@STEP.golden
def alexnet_cases() -> Cases:
    """A width of 1/64 at 67 x 67: 6,553 parameters in 26 tensors."""
    rng = random_source("alexnet")
    shapes = [s for i, o, k in reversed(CHANNELS) for s in ((o,), (o,), (o,), (k, k, i, o))]
    tensors = weights(rng, [*SHAPES, *shapes])
    arrays: Given = {f"tensor{i:02}": tensor for i, tensor in enumerate(tensors)}
    arrays |= {"images": rng.standard_normal((2, 67, 67, 3)), "labels": np.array([3, 0])}
    why = "loss and 26 gradients, last layer first, of two images in a global batch of 5"
    case = STEP.case("alexnet-step", why, global_batch=5, **arrays)
    # within 1e-10 of the gradient, or of the same layer's weight gradient, because biases before a
    # normalisation have gradient zero; about 20 layers at gamma(500) leave a factor of 100
    layers = [[0, 1], [2, 3], [4, 5], *([i, i + 1, i + 2, i + 3] for i in range(6, 26, 4))]
    for layer in layers:
        weight = np.linalg.norm(case[f"out.gradient{layer[-1]:02}"])
        for i in layer:
            gradient = case[f"out.gradient{i:02}"]
            bound = 1e-10 * max(weight, np.linalg.norm(gradient))
            case.tensors[f"bound.gradient{i:02}"] = np.full(gradient.shape, bound)
    case.tensors["bound.loss"] = 1e-10 * case["out.loss"]
    check_step(case, alexnet_step, tensors)
    yield case


@N10.mistake("the last layer has no bias")
def no_last_bias(images, labels, tensors, global_batch):
    return alexnet_step(images, labels, [np.zeros_like(tensors[0]), *tensors[1:]], global_batch)


@N10.mistake("the first convolution has padding 2, as for images of 224 x 224")
def first_padded(images, labels, tensors, global_batch):
    border = [(0, 0), (2, 2), (2, 2), (0, 0)]
    return alexnet_step(np.pad(images, border), labels, tensors, global_batch)


@N11.mistake("gradients in the order of the forward pass", alexnet_step)
def first_layer_first(images, labels, tensors, global_batch):
    loss, gradients = alexnet_step(images, labels, tensors, global_batch)
    return loss, [g for layer in reversed(split_layers(gradients)) for g in layer]


@N11.mistake("weight before bias", alexnet_step)
def weight_before_bias(images, labels, tensors, global_batch):
    loss, gradients = alexnet_step(images, labels, tensors, global_batch)
    turned = ([*layer[:-2], layer[-1], layer[-2]] for layer in split_layers(gradients))
    return loss, [g for layer in turned for g in layer]
