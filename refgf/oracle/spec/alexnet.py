"""N10 and N11: AlexNet as a sequence of the layers N1 to N8, forward and backward."""

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
    """N10: five times conv, batch normalisation, ReLU, pooling after 1, 2 and 5; then three layers.

    The last three are fully connected. There is no dropout. Jia et al. normalise once more, after
    the last pooling; this is not their network. tensors: 26 arrays in the order of generation
    (N11). -> (loss, 26 gradients in that order)
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
    """N11: the last layer comes first; in a layer normalisation beta, gamma, then bias, weight.

    -> 8 lists of tensors
    """
    sizes = [2, 2, 2, 4, 4, 4, 4, 4]
    starts = np.cumsum([0, *sizes])
    return [list(tensors[i:j]) for i, j in zip(starts, starts[1:])]
