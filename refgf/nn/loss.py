"""Softmax cross-entropy."""

import numpy as np

from refgf.device import array_module


def softmax_cross_entropy(logits, labels, global_batch):
    """The samples' cross-entropies, added up and divided by the *global* batch, and the gradient for the logits.

    logits (N, K), labels (N,) integers below K. As global_batch is the number of samples of all ranks together, the
    ranks' losses and gradients need only be added, however uneven their shares are. N = 0 gives 0, no gradient.
    float16 logits are computed with in float32: their gradient, divided by a batch, would vanish before a loss scale
    could lift it. Returns (float, (N, K) array); on a GPU the first is an array (), so that the host need not wait.
    """
    xp = array_module(logits)
    logits = logits.astype(np.float32) if logits.dtype == np.float16 else logits
    rows = xp.arange(len(logits))
    shifted = logits - logits.max(axis=1, keepdims=True)  # per row, or one row's sum could underflow
    exponentials = xp.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    losses = xp.log(sums[:, 0]) - shifted[rows, labels]
    gradient = exponentials / sums
    gradient[rows, labels] -= 1
    gradient /= global_batch
    value = losses.sum(dtype=np.float64) / global_batch
    return float(value) if xp is np else value, gradient
