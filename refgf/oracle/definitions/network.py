"""N1 to N9: forward and backward of the network's layers, by plain loops. Slow on purpose.

Images are (N, H, W, C), convolution weights (K, K, C, O), fully connected weights (D, O). Values have no stated order
of summation, so implementations are judged within a bound, against these in float64.
"""

from itertools import product

import numpy as np


def conv(x, w, b, stride=1, pad=0):
    """N1: y[n,i,j,o] = b[o] + sum over u, v, c of x[n, i*stride+u-pad, j*stride+v-pad, c] w[u,v,c,o]; outside is 0."""
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


def conv_backward(x, w, dy, stride=1, pad=0):
    """N1, backward: every product of the forward loop gives its two factors their share. -> (dx, dw, db)"""
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for n, i, j in product(*map(range, dy.shape[:3])):
        for u, v in product(range(w.shape[0]), range(w.shape[0])):
            row, column = i * stride + u - pad, j * stride + v - pad
            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                dx[n, row, column] += w[u, v] @ dy[n, i, j]  # (C, O) (O,) -> (C,)
                dw[u, v] += np.outer(x[n, row, column], dy[n, i, j])  # (C,) (O,) -> (C, O)
    return dx, dw, dy.sum(axis=(0, 1, 2))


def max_pool(x, window=3, stride=2):
    """N2: the largest of each window that lies wholly inside. -> (y, where), where[n,i,j,c] = (row, column)

    Of equal ones the first in row-major order counts, and it alone gets the gradient.
    """
    batch, height, width, channels = x.shape
    rows, columns = (height - window) // stride + 1, (width - window) // stride + 1
    y, where = np.zeros((batch, rows, columns, channels), x.dtype), {}
    for n, i, j, c in product(range(batch), range(rows), range(columns), range(channels)):
        patch = x[n, i * stride : i * stride + window, j * stride : j * stride + window, c]
        u, v = np.unravel_index(patch.argmax(), patch.shape)
        y[n, i, j, c], where[n, i, j, c] = patch[u, v], (i * stride + u, j * stride + v)
    return y, where


def max_pool_backward(x, where, dy):
    """N2, backward: overlapping windows add up. -> dx"""
    dx = np.zeros_like(x)
    for (n, i, j, c), (row, column) in where.items():
        dx[n, row, column, c] += dy[n, i, j, c]
    return dx


def relu(x):
    """N3: max(x, 0); its gradient at 0 is 0."""
    return np.where(x > 0, x, 0)


def batch_norm(x, gamma, beta, eps=1e-5):
    """N4: per channel, (x - mean) / sqrt(variance + eps) * gamma + beta over (N, H, W) of this rank's images.

    The variance divides by their number (biased).  -> y
    """
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    return (x - mean) / np.sqrt(variance + eps) * gamma + beta


def batch_norm_backward(x, gamma, dy, eps=1e-5):
    """N4, backward: mean and variance depend on every x. -> (dx, dgamma, dbeta)"""
    count = x.size // x.shape[-1]
    deviation, root = x - x.mean(axis=(0, 1, 2)), np.sqrt(x.var(axis=(0, 1, 2)) + eps)
    dgamma, dbeta = (dy * deviation / root).sum(axis=(0, 1, 2)), dy.sum(axis=(0, 1, 2))
    return gamma / root * (dy - dbeta / count - deviation / root * dgamma / count), dgamma, dbeta


def local_response_norm(x, k=2.0, neighbours=5, alpha=1e-4, power=0.75):
    """N5: x / (k + alpha * sum of squares over the channels c-2..c+2 that exist)^power. Shape (N, H, W, C)."""
    y = np.zeros_like(x)
    for c in range(x.shape[-1]):
        low, high = max(0, c - neighbours // 2), min(x.shape[-1], c + neighbours // 2 + 1)
        y[..., c] = x[..., c] / (k + alpha * (x[..., low:high] ** 2).sum(axis=-1)) ** power
    return y


def fully_connected(x, w, b):
    """N6: y = x w + b, (N, D) (D, O) (O,) -> (N, O). Backward: dx = dy w', dw = x' dy, db = sum of dy over N."""
    return x @ w + b


def dropout(x, kept, rate):
    """N7: training keeps x / (1 - rate) where `kept` (bool) is True and 0 elsewhere; evaluation changes nothing."""
    return np.where(kept, x / (1 - rate), 0)


def softmax_cross_entropy(logits, labels, global_batch):
    """N8: the sum over this rank's samples of -log softmax[label], divided by the global batch. -> (loss, dlogits)

    (N, K) with N = 0 gives loss 0. The losses, and the gradients, of all ranks add up to those of the whole batch.
    """
    loss, dlogits = 0.0, np.zeros_like(logits)
    for n, label in enumerate(labels):
        shifted = logits[n] - logits[n].max()  # this row's own largest: nothing overflows
        probabilities = np.exp(shifted) / np.exp(shifted).sum()
        loss += (np.log(np.exp(shifted).sum()) - shifted[label]) / global_batch
        dlogits[n] = probabilities / global_batch
        dlogits[n, label] -= 1 / global_batch
    return float(loss), dlogits


def central_differences(function, x, h=1e-6):
    """N9: a gradient is what central differences tend to. function(x) -> float; x float64. -> like x"""
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        gradient[i] = (function(up) - function(down)) / (2 * h)
    return gradient
