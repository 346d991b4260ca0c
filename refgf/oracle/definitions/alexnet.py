"""N10 and N11: AlexNet as a row of the layers N1 to N8, forward and backward."""

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

CONVOLUTIONS = [(4, 0, True), (1, 2, True), (1, 1, False), (1, 1, False), (1, 1, True)]  # stride, padding, pooled after


def alexnet_step(images, labels, tensors, global_batch):
    """N10: five times conv, batch normalisation, ReLU, with pooling after 1, 2 and 5; then three fully connected.

    tensors: 26 arrays in the order of generation (N11), without dropout.  -> (loss, 26 gradients in that order)
    """
    forward_order = list(reversed(split_layers(tensors)))
    x, remembered = images, []
    for (beta, gamma, b, w), (stride, pad, pooled) in zip(forward_order[:5], CONVOLUTIONS):
        y = conv(x, w, b, stride, pad)
        z = relu(batch_norm(y, gamma, beta))
        out, where = max_pool(z) if pooled else (z, None)
        remembered.append((x, y, z, where))
        x = out
    shape, inputs = x.shape, [x.reshape(len(x), -1)]  # (N, H, W, C) -> (N, H*W*C)
    for b, w in forward_order[5:7]:
        inputs.append(relu(fully_connected(inputs[-1], w, b)))
    b, w = forward_order[7]
    loss, dy = softmax_cross_entropy(fully_connected(inputs[-1], w, b), labels, global_batch)
    gradients = []
    for i in (7, 6, 5):
        x, w = inputs[i - 5], forward_order[i][1]
        gradients += [dy.sum(axis=0), x.T @ dy]
        dy = (dy @ w.T) * (x > 0)  # x has been through a ReLU, at the last of the five too
    dy = dy.reshape(shape)
    for i in (4, 3, 2, 1, 0):
        (_, gamma, _, w), (stride, pad, _), (x, y, z, where) = forward_order[i], CONVOLUTIONS[i], remembered[i]
        dz = dy if where is None else max_pool_backward(z, where, dy)
        dx, dgamma, dbeta = batch_norm_backward(y, gamma, dz * (z > 0))
        dy, dw, db = conv_backward(x, w, dx, stride, pad)
        gradients += [dbeta, dgamma, db, dw]
    return loss, gradients


def split_layers(tensors):
    """N11: the last layer first; inside a layer normalisation beta, gamma, then bias, weight. -> 8 lists of tensors"""
    sizes = [2, 2, 2, 4, 4, 4, 4, 4]
    starts = np.cumsum([0, *sizes])
    return [list(tensors[i:j]) for i, j in zip(starts, starts[1:])]
