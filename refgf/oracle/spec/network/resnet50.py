"""N14 and N15: ResNet-50 as blocks of the layers N1 to N8, forward and backward.

A block has the convolutions a 1 x 1, b 3 x 3 and c 1 x 1, each normalised, with ReLU after a and b.
Its output is ReLU of their result plus the shortcut.
"""

from typing import Any

import numpy as np

from refgf.oracle.spec.case import Given
from refgf.oracle.spec.draw import random_source
from refgf.oracle.spec.network.alexnet import step_inputs, training_step, weights
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

BLOCKS = [3, 4, 6, 3]
Triple = tuple[np.ndarray, np.ndarray, np.ndarray]  # beta, gamma, weight


def resnet50_step(
    images: np.ndarray, labels: np.ndarray, tensors: list[np.ndarray], global_batch: int
) -> tuple[float, list[np.ndarray]]:
    """N14: ResNet-50: convolution 7 x 7 / 2 with padding 3, pooling 3 x 3 / 2 with a border of one
    pixel that is never chosen, 3, 4, 6, 3 blocks, mean over the pixels, fully connected; every
    convolution without bias, normalised; the stride of a stage in its first block's 3 x 3
    convolution and shortcut; 3 x 3 convolutions have padding 1, others of a block none.

    Source: He et al. 2015; the stride in the 3 x 3 convolution, not in the first: version 1.5
    (torchvision's code).

    tensors: 161 arrays in the order of generation (N15). -> (loss, 161 gradients in that order)
    """
    (b, w), *blocks, stem = residual_layers(tensors)
    blocks = blocks[::-1]  # in the order of forward
    strides = []
    for stage, count in enumerate(BLOCKS):
        strides += [2 if stage else 1] + [1] * (count - 1)
    z, stem_state = conv_norm(images, stem[0], 2, 3)
    bordered = np.pad(relu(z), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    x, where = max_pool(bordered)
    states = []
    for block, stride in zip(blocks, strides):
        x, state = bottleneck(x, block, stride)
        states.append(state)
    pooled = x.mean(axis=(1, 2))  # (N, H, W, C) -> (N, C)
    loss, dy = softmax_cross_entropy(fully_connected(pooled, w, b), labels, global_batch)
    gradients = [dy.sum(axis=0), pooled.T @ dy]
    pixels = x.shape[1] * x.shape[2]
    dx = np.broadcast_to((dy @ w.T / pixels)[:, None, None, :], x.shape)
    for block, stride, state in list(zip(blocks, strides, states))[::-1]:
        dx, block_gradients = bottleneck_backward(dx, block, stride, state)
        gradients += block_gradients
    dz = max_pool_backward(bordered, where, dx)[:, 1:-1, 1:-1] * (z > 0)
    return loss, gradients + conv_norm_backward(dz, stem[0], 2, 3, stem_state)[1]


def residual_layers(tensors: list[np.ndarray]) -> list[list[Any]]:
    """N15: 161 gradients, last layer first; in a block the main path, last first, then the
    shortcut; in a layer as N11.

    Source: the shortcut's place: chosen.

    A block is c, b, a, and then the shortcut if the block is the first of a stage. All layers but
    the last, which has bias and weight, are triples of beta, gamma, weight. -> 18 lists
    """
    triples = [tuple(tensors[i : i + 3]) for i in range(2, len(tensors), 3)]
    layers: list[list[Any]] = [list(tensors[:2])]
    start = 0
    for count in BLOCKS[::-1]:
        for number in reversed(range(count)):
            stop = start + (3 if number else 4)
            layers.append(triples[start:stop])
            start = stop
    return [*layers, triples[start:]]


def conv_norm(x: np.ndarray, tensors: Triple, stride: int, pad: int) -> tuple[np.ndarray, Any]:
    """A convolution without bias, and its normalisation. -> (z, what backward needs)"""
    beta, gamma, w = tensors
    y = conv(x, w, np.zeros(w.shape[-1]), stride, pad)
    return batch_norm(y, gamma, beta), (x, y)


def conv_norm_backward(
    dz: np.ndarray, tensors: Triple, stride: int, pad: int, state: Any
) -> tuple[np.ndarray, list[np.ndarray]]:
    """-> (dx, [dbeta, dgamma, dw])"""
    (_, gamma, w), (x, y) = tensors, state
    dy, dgamma, dbeta = batch_norm_backward(y, gamma, dz)
    dx, dw, _ = conv_backward(x, w, dy, stride, pad)
    return dx, [dbeta, dgamma, dw]


def bottleneck(x: np.ndarray, layers: list[Triple], stride: int) -> tuple[np.ndarray, Any]:
    """layers: c, b, a, and the shortcut's convolution if it has one. -> (y, what backward needs)"""
    c, b, a, *shortcut = layers
    za, state_a = conv_norm(x, a, 1, 0)
    zb, state_b = conv_norm(relu(za), b, stride, 1)
    zc, state_c = conv_norm(relu(zb), c, 1, 0)
    identity, state_s = conv_norm(x, shortcut[0], stride, 0) if shortcut else (x, None)
    y = relu(zc + identity)
    return y, (za, zb, y, state_a, state_b, state_c, state_s)


def bottleneck_backward(
    dy: np.ndarray, layers: list[Triple], stride: int, state: Any
) -> tuple[np.ndarray, list[np.ndarray]]:
    """-> (dx, gradients of c, b, a, shortcut)"""
    c, b, a, *shortcut = layers
    za, zb, y, state_a, state_b, state_c, state_s = state
    dz = dy * (y > 0)
    du, of_c = conv_norm_backward(dz, c, 1, 0, state_c)
    du, of_b = conv_norm_backward(du * (zb > 0), b, stride, 1, state_b)
    dx, of_a = conv_norm_backward(du * (za > 0), a, 1, 0, state_a)
    if shortcut:
        dz, of_shortcut = conv_norm_backward(dz, shortcut[0], stride, 0, state_s)
    else:
        of_shortcut = []
    return dx + dz, of_c + of_b + of_a + of_shortcut


N14 = Statement("N14", resnet50_step)
N15 = Statement("N15", residual_layers)
STEP = JudgedFunction(
    resnet50_step, "N14 N15", {"loss": ()}, step_inputs(161), training_step("resnet50_step", 161)
)


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
    return [(4,), (channels, 4), *(shape for layer in reversed(found) for shape in layer)]


def norm(outputs: int, before: tuple[int, ...]) -> list[tuple[int, ...]]:
    """beta, gamma, and the weight of the convolution that they follow."""
    return [(outputs,), (outputs,), (*before, outputs)]


@STEP.golden
def resnet50_cases() -> Cases:
    rng = random_source("resnet50")
    tensors = weights(rng, shapes(), 0.5)
    arrays: Given = {f"tensor{i:03}": tensor for i, tensor in enumerate(tensors)}
    arrays |= {"images": rng.standard_normal((2, 61, 61, 3)), "labels": np.array([3, 0])}
    why = (
        "loss and 161 gradients, last layer first, of two images of odd size in a global batch of 5"
    )
    case = STEP.case("resnet50-step", why, global_batch=5, **arrays)
    case.shows(len(tensors) == 161, "161 tensors")
    # as for AlexNet, of the largest gradient of its layer;
    # 53 normalisations in a row, each over few values, cost a factor
    for i in range(161):
        layer = range(2) if i < 2 else range(2 + (i - 2) // 3 * 3, 5 + (i - 2) // 3 * 3)
        size = max(np.linalg.norm(case[f"out.gradient{k:03}"]) for k in layer)
        case.shows(size > 0, "every layer learns")
        gradient = case[f"out.gradient{i:03}"]
        case.tensors[f"bound.gradient{i:03}"] = np.full(gradient.shape, 1e-9 * size)
    case.tensors["bound.loss"] = 1e-9 * case["out.loss"]
    check_step(case, resnet50_step, tensors)
    yield case


@N14.mistake("the last layer has no bias")
def no_last_bias(images, labels, tensors, global_batch):
    return resnet50_step(images, labels, [np.zeros_like(tensors[0]), *tensors[1:]], global_batch)


@N14.mistake("ReLU before the shortcut is added", bottleneck)
def activated_too_early(x, layers, stride):
    c, b, a, *shortcut = layers
    za, state_a = conv_norm(x, a, 1, 0)
    zb, state_b = conv_norm(relu(za), b, stride, 1)
    zc, state_c = conv_norm(relu(zb), c, 1, 0)
    identity, state_s = conv_norm(x, shortcut[0], stride, 0) if shortcut else (x, None)
    y = relu(zc) + identity
    return y, (za, zb, y, state_a, state_b, state_c, state_s)


@N15.mistake("gradients in the order of the forward pass", resnet50_step)
def forward_order(images, labels, tensors, global_batch):
    loss, gradients = resnet50_step(images, labels, tensors, global_batch)
    return loss, gradients[::-1]


@N15.mistake("a block's shortcut before its main path", resnet50_step)
def shortcut_first(images, labels, tensors, global_batch):
    loss, gradients = resnet50_step(images, labels, tensors, global_batch)
    (b, w), *blocks = residual_layers(gradients)
    turned = [[block[3], *block[:3]] if len(block) == 4 else block for block in blocks]
    return loss, [b, w, *(g for block in turned for triple in block for g in triple)]
