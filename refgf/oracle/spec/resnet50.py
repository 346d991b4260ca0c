"""N14 and N15: ResNet-50 as blocks of the layers N1 to N8, forward and backward.

A block has the convolutions a 1 x 1, b 3 x 3 and c 1 x 1, each normalised, with ReLU after a and b.
Its output is ReLU of their result plus the shortcut.
"""

from typing import Any

import numpy as np

from refgf.oracle.spec.network import (
    batch_norm,
    batch_norm_backward,
    conv,
    conv_backward,
    fully_connected,
    max_pool,
    max_pool_backward,
    relu,
    softmax_cross_entropy,
)

BLOCKS = [3, 4, 6, 3]
Triple = tuple[np.ndarray, np.ndarray, np.ndarray]  # beta, gamma, weight


def resnet50_step(
    images: np.ndarray, labels: np.ndarray, tensors: list[np.ndarray], global_batch: int
) -> tuple[float, list[np.ndarray]]:
    """N14: conv 7 x 7 / 2, normalisation, ReLU, pooling with a border, 3 + 4 + 6 + 3 blocks, mean.

    Last comes a fully connected layer. tensors: 161 arrays in the order of generation (N15).
    -> (loss, 161 gradients in that order)
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


def residual_layers(tensors: list[np.ndarray]) -> list[list]:
    """N15: the last layer's bias and weight, the blocks from last to first, the first convolution.

    A block is c, b, a, and then the shortcut if the block is the first of a stage. All layers but
    the last are triples of beta, gamma, weight. -> 18 lists
    """
    triples = [tuple(tensors[i : i + 3]) for i in range(2, len(tensors), 3)]
    layers, start = [list(tensors[:2])], 0
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
