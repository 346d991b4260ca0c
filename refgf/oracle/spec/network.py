"""N1 to N9: forward and backward of the network's layers, by plain loops. Slow on purpose.

Images are (N, H, W, C), convolution weights (K, K, C, O), fully connected weights (D, O). The order
of summation is not stated, so implementations are judged within a bound, against these in float64.
"""

from collections.abc import Callable
from itertools import product

import numpy as np

Array = np.ndarray


def conv(x: Array, w: Array, b: Array, stride: int = 1, pad: int = 0) -> Array:
    """N1: convolution with zero padding.

    y[n,i,j,o] = b[o] + sum over u, v, c of x[n, i*stride+u-pad, j*stride+v-pad, c] w[u,v,c,o]
    """
    (batch, height, width, _), (k, _, _, outputs) = x.shape, w.shape
    rows, columns = (height + 2 * pad - k) // stride + 1, (width + 2 * pad - k) // stride + 1
    y = np.zeros((batch, rows, columns, outputs), x.dtype)
    for n, i, j in product(range(batch), range(rows), range(columns)):
        y[n, i, j] = b
        for u, v in product(range(k), range(k)):
            row, column = i * stride + u - pad, j * stride + v - pad
            if 0 <= row < height and 0 <= column < width:
                y[n, i, j] += x[n, row, column] @ w[u, v]  # (C,) (C, O) -> (O,)
    return y


def conv_backward(
    x: Array, w: Array, dy: Array, stride: int = 1, pad: int = 0
) -> tuple[Array, Array, Array]:
    """N1, backward: each product of the forward loop adds to both its factors. -> (dx, dw, db)"""
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for n, i, j in product(*map(range, dy.shape[:3])):
        for u, v in product(range(w.shape[0]), range(w.shape[0])):
            row, column = i * stride + u - pad, j * stride + v - pad
            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                dx[n, row, column] += w[u, v] @ dy[n, i, j]  # (C, O) (O,) -> (C,)
                dw[u, v] += np.outer(x[n, row, column], dy[n, i, j])  # (C,) (O,) -> (C, O)
    return dx, dw, dy.sum(axis=(0, 1, 2))


def max_pool(x: Array, window: int = 3, stride: int = 2) -> tuple[Array, dict]:
    """N2: the maximum of each window that lies wholly inside.

    Of equal values the first in row-major order counts, and it alone gets the gradient.
    -> (y, where), where[n,i,j,c] = (row, column)
    """
    batch, height, width, channels = x.shape
    rows, columns = (height - window) // stride + 1, (width - window) // stride + 1
    y, where = np.zeros((batch, rows, columns, channels), x.dtype), {}
    for n, i, j, c in product(range(batch), range(rows), range(columns), range(channels)):
        patch = x[n, i * stride : i * stride + window, j * stride : j * stride + window, c]
        u, v = np.unravel_index(patch.argmax(), patch.shape)
        y[n, i, j, c], where[n, i, j, c] = patch[u, v], (i * stride + u, j * stride + v)
    return y, where


def max_pool_backward(x: Array, where: dict, dy: Array) -> Array:
    """N2, backward: gradients of overlapping windows add up. -> dx"""
    dx = np.zeros_like(x)
    for (n, i, j, c), (row, column) in where.items():
        dx[n, row, column, c] += dy[n, i, j, c]
    return dx


def relu(x: Array) -> Array:
    """N3: max(x, 0); its gradient at 0 is 0."""
    return np.where(x > 0, x, 0)


def batch_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    """N4: per channel, y = (x - mean) / sqrt(variance + eps) * gamma + beta.

    Mean and variance are over (N, H, W) of this rank's images. The variance is biased: it divides
    by the number of values.
    """
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    return (x - mean) / np.sqrt(variance + eps) * gamma + beta


def batch_norm_backward(
    x: Array, gamma: Array, dy: Array, eps: float = 1e-5
) -> tuple[Array, Array, Array]:
    """N4, backward: mean and variance depend on every x. -> (dx, dgamma, dbeta)"""
    count = x.size // x.shape[-1]
    deviation, root = x - x.mean(axis=(0, 1, 2)), np.sqrt(x.var(axis=(0, 1, 2)) + eps)
    dgamma, dbeta = (dy * deviation / root).sum(axis=(0, 1, 2)), dy.sum(axis=(0, 1, 2))
    dx = gamma / root * (dy - dbeta / count - deviation / root * dgamma / count)
    return dx, dgamma, dbeta


def local_response_norm(
    x: Array, k: float = 2.0, neighbours: int = 5, alpha: float = 1e-4, power: float = 0.75
) -> Array:
    """N5: x / (k + alpha * sum of squares over the channels c-2..c+2 that exist)^power."""
    y = np.zeros_like(x)
    for c in range(x.shape[-1]):
        low, high = max(0, c - neighbours // 2), min(x.shape[-1], c + neighbours // 2 + 1)
        y[..., c] = x[..., c] / (k + alpha * (x[..., low:high] ** 2).sum(axis=-1)) ** power
    return y


def fully_connected(x: Array, w: Array, b: Array) -> Array:
    """N6: y = x w + b, (N, D) (D, O) (O,) -> (N, O).

    Backward: dx = dy w', dw = x' dy, db = sum of dy over N.
    """
    return x @ w + b


def dropout(x: Array, kept: Array, rate: float) -> Array:
    """N7: in training x / (1 - rate) where `kept` is True, else 0; identity in evaluation."""
    return np.where(kept, x / (1 - rate), 0)


def softmax_cross_entropy(logits: Array, labels: Array, global_batch: int) -> tuple[float, Array]:
    """N8: the sum over this rank's samples of -log softmax[label], divided by the global batch.

    (N, K) with N = 0 gives loss 0. The losses and the gradients of all ranks add up to those of
    the whole batch. -> (loss, dlogits)
    """
    loss, dlogits = 0.0, np.zeros_like(logits)
    for n, label in enumerate(labels):
        shifted = logits[n] - logits[n].max()  # per row, so that nothing overflows
        probabilities = np.exp(shifted) / np.exp(shifted).sum()
        loss += (np.log(np.exp(shifted).sum()) - shifted[label]) / global_batch
        dlogits[n] = probabilities / global_batch
        dlogits[n, label] -= 1 / global_batch
    return float(loss), dlogits


def central_differences(function: Callable, x: Array, h: float = 1e-6) -> Array:
    """N9: a gradient is the limit of central differences. function(x) -> float; x float64."""
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        gradient[i] = (function(up) - function(down)) / (2 * h)
    return gradient
