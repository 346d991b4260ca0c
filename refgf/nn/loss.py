"""Softmax cross-entropy."""

import numpy as np

from refgf.device import array_module
from refgf.nn.workspace import Array


def softmax_cross_entropy(logits: Array, labels: Array, global_batch: int) -> tuple[float, Array]:
    """This rank's cross-entropies / samples of *all* ranks, and the gradient for the logits.

    logits (N, K), labels (N,) integers below K; N = 0 gives 0. global_batch is the number of
    samples of all ranks, so that the ranks' losses and gradients add up, however uneven the shards.
    float16 logits are computed in float32, because their gradient, divided by a batch, would
    underflow before a loss scale is applied. Returns (float, (N, K) array); on a GPU the loss is an
    array (), so that the host need not wait.
    """
    xp = array_module(logits)
    logits = logits.astype(np.float32) if logits.dtype == np.float16 else logits
    rows = xp.arange(len(logits))
    shifted = logits - logits.max(axis=1, keepdims=True)  # per row, or one row could underflow
    exponentials = xp.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    losses = xp.log(sums[:, 0]) - shifted[rows, labels]
    gradient = exponentials / sums
    gradient[rows, labels] -= 1
    gradient /= global_batch
    value = losses.sum(dtype=np.float64) / global_batch
    return float(value) if xp is np else value, gradient
