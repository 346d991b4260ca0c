"""N14 and N15: ResNet-50 as blocks of the layers N1 to N8, forward and backward.

    block   convolution a 1 x 1 - b 3 x 3 - c 1 x 1, each normalised, ReLU after a and b; plus the shortcut; ReLU
"""

import numpy as np

from refgf.oracle.definitions.network import (
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


def resnet50_step(images, labels, tensors, global_batch):
    """N14: conv 7 x 7 / 2, batch normalisation, ReLU, pooling with a border, 3 + 4 + 6 + 3 blocks, mean, fully connected.

    tensors: 161 arrays in the order of generation (N15).  -> (loss, 161 gradients in that order)
    """
    (b, w), *blocks, stem = residual_layers(tensors)
    blocks = blocks[::-1]  # in the order of forward now
    strides = [2 if stage and not number else 1 for stage, count in enumerate(BLOCKS) for number in range(count)]
    z, first = convolved(images, stem[0], 2, 3)
    bordered = np.pad(relu(z), ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    x, where = max_pool(bordered)
    remembered = []
    for block, stride in zip(blocks, strides):
        x, kept = bottleneck(x, block, stride)
        remembered.append(kept)
    pooled = x.mean(axis=(1, 2))  # (N, H, W, C) -> (N, C)
    loss, dy = softmax_cross_entropy(fully_connected(pooled, w, b), labels, global_batch)
    gradients = [dy.sum(axis=0), pooled.T @ dy]
    pixels = x.shape[1] * x.shape[2]
    dx = np.broadcast_to((dy @ w.T / pixels)[:, None, None, :], x.shape)
    for block, stride, kept in list(zip(blocks, strides, remembered))[::-1]:
        dx, more = bottleneck_backward(dx, block, stride, kept)
        gradients += more
    dz = max_pool_backward(bordered, where, dx)[:, 1:-1, 1:-1] * (z > 0)
    return loss, gradients + convolved_backward(dz, stem[0], 2, 3, first)[1]


def residual_layers(tensors):
    """N15: the last layer's bias and weight; the blocks from the last to the first, in each c, b, a and then the shortcut, if
    its block is the first of a stage; the first convolution. All but the last: triples of beta, gamma, weight. -> 18 lists"""
    triples = [tuple(tensors[i : i + 3]) for i in range(2, len(tensors), 3)]
    layers, start = [list(tensors[:2])], 0
    for count in BLOCKS[::-1]:
        for number in reversed(range(count)):
            stop = start + (3 if number else 4)
            layers.append(triples[start:stop])
            start = stop
    return [*layers, triples[start:]]


def convolved(x, tensors, stride, pad):
    """A convolution without bias and its normalisation. -> (z, what backward needs)"""
    beta, gamma, w = tensors
    y = conv(x, w, np.zeros(w.shape[-1]), stride, pad)
    return batch_norm(y, gamma, beta), (x, y)


def convolved_backward(dz, tensors, stride, pad, remembered):
    (_, gamma, w), (x, y) = tensors, remembered
    dy, dgamma, dbeta = batch_norm_backward(y, gamma, dz)
    dx, dw, _ = conv_backward(x, w, dy, stride, pad)
    return dx, [dbeta, dgamma, dw]


def bottleneck(x, layers, stride):
    """layers: c, b, a, and the shortcut where there is a convolution in it. -> (y, what backward needs)"""
    c, b, a, *shortcut = layers
    za, kept_a = convolved(x, a, 1, 0)
    zb, kept_b = convolved(relu(za), b, stride, 1)
    zc, kept_c = convolved(relu(zb), c, 1, 0)
    beside, kept_s = convolved(x, shortcut[0], stride, 0) if shortcut else (x, None)
    y = relu(zc + beside)
    return y, (za, zb, y, kept_a, kept_b, kept_c, kept_s)


def bottleneck_backward(dy, layers, stride, remembered):
    c, b, a, *shortcut = layers
    za, zb, y, kept_a, kept_b, kept_c, kept_s = remembered
    dz = dy * (y > 0)
    du, of_c = convolved_backward(dz, c, 1, 0, kept_c)
    du, of_b = convolved_backward(du * (zb > 0), b, stride, 1, kept_b)
    dx, of_a = convolved_backward(du * (za > 0), a, 1, 0, kept_a)
    beside, of_shortcut = convolved_backward(dz, shortcut[0], stride, 0, kept_s) if shortcut else (dz, [])
    return dx + beside, of_c + of_b + of_a + of_shortcut
