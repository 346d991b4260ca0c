"""Mistakes in the network's layers."""

import numpy as np

from refgf.oracle.definitions import (
    alexnet_rounding,
    alexnet_step,
    batch_norm,
    batch_norm_backward,
    conv,
    conv_backward,
    dropout,
    fully_connected,
    local_response_norm,
    max_pool,
    momentum_rounding,
    softmax_cross_entropy,
    split_layers,
)
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("N1", "conv", "the kernel is flipped: convolution instead of correlation")
def flipped(x, w, b, stride=1, pad=0):
    return conv(x, w[::-1, ::-1], b, stride, pad)


@mistake("N1", "conv", "rows and columns of the kernel exchanged")
def transposed(x, w, b, stride=1, pad=0):
    return conv(x, w.transpose(1, 0, 2, 3), b, stride, pad)


@mistake("N1", "conv_backward", "bias gradient averaged over the pixels")
def bias_averaged(x, w, dy, stride=1, pad=0):
    dx, dw, db = conv_backward(x, w, dy, stride, pad)
    return dx, dw, db / max(1, dy.size // dy.shape[-1])


@mistake("N2", "max_pool", "of equal values the last gets the gradient")
def last_of_equals(x, window=3, stride=2):
    y, where = max_pool(x, window, stride)
    for n, i, j, c in where:
        patch = x[n, i * stride : i * stride + window, j * stride : j * stride + window, c]
        u, v = np.argwhere(patch == patch.max())[-1]
        where[n, i, j, c] = (i * stride + u, j * stride + v)
    return y, where


@mistake("N2", "max_pool_backward", "overlapping windows overwrite each other's gradient")
def pool_overwrites(x, where, dy):
    dx = np.zeros_like(x)
    for (n, i, j, c), (row, column) in where.items():
        dx[n, row, column, c] = dy[n, i, j, c]
    return dx


@mistake("N3", "relu", "keeps the sign of zero")
def relu_keeps_zero(x):
    return np.where(x >= 0, x, 0)


@mistake("N3", "relu", "leaky ReLU: one percent below 0")
def leaky(x):
    return np.where(x > 0, x, 0.01 * x)


@mistake("N4", "batch_norm", "the variance divides by one less")
def unbiased(x, gamma, beta, eps=1e-5):
    count = x.size // x.shape[-1]
    return batch_norm(x, gamma * np.sqrt((count - 1) / count), beta, eps * (count - 1) / count)


@mistake("N4", "batch_norm", "epsilon is added to the deviation, not to the variance")
def epsilon_outside(x, gamma, beta, eps=1e-5):
    return (x - x.mean(axis=(0, 1, 2))) / (x.std(axis=(0, 1, 2)) + eps) * gamma + beta


@mistake("N4", "batch_norm", "statistics per image")
def per_image(x, gamma, beta, eps=1e-5):
    return np.concatenate([batch_norm(x[i : i + 1], gamma, beta, eps) for i in range(len(x))])


@mistake("N5", "local_response_norm", "alpha divided by the number of neighbours, as in PyTorch")
def alpha_divided(x, k=2.0, neighbours=5, alpha=1e-4, power=0.75):
    return local_response_norm(x, k, neighbours, alpha / neighbours, power)


@mistake("N5", "local_response_norm", "neighbours along another axis than the channels")
def wrong_axis(x, k=2.0, neighbours=5, alpha=1e-4, power=0.75):
    turned = local_response_norm(x.transpose(0, 1, 3, 2), k, neighbours, alpha, power)
    return turned.transpose(0, 1, 3, 2)


@mistake("N6", "fully_connected", "no bias")
def no_bias(x, w, b):
    return fully_connected(x, w, np.zeros_like(b))


@mistake("N7", "dropout", "kept values are not scaled")
def not_scaled(x, kept, rate):
    return np.where(kept, x, 0)


@mistake("N7", "dropout", "scaled by 1 / rate instead of 1 / (1 - rate)")
def scaled_by_rate(x, kept, rate):
    return dropout(x, kept, 1 - rate)


@mistake("N8", "softmax_cross_entropy", "divided by this rank's samples, not by the global batch")
def local_batch(logits, labels, global_batch):
    return softmax_cross_entropy(logits, labels, max(1, len(labels)))


@mistake(
    "N8",
    "softmax_cross_entropy",
    "the largest logit of the whole batch is subtracted: small rows underflow",
)
def largest_of_the_batch(logits, labels, global_batch):
    with np.errstate(all="ignore"):
        shifted, rows = logits - logits.max(initial=-1e300), np.arange(len(labels))
        sums = np.exp(shifted).sum(axis=1)
        loss = (np.log(sums) - shifted[rows, labels]).sum() / global_batch
        dlogits = np.exp(shifted) / sums[:, None]
        dlogits[rows, labels] -= 1
    return float(loss), dlogits / global_batch


@mistake("N9", "batch_norm_backward", "mean and variance are treated as constants")
def constant_statistics(x, gamma, dy, eps=1e-5):
    _, dgamma, dbeta = batch_norm_backward(x, gamma, dy, eps)
    return gamma / np.sqrt(x.var(axis=(0, 1, 2)) + eps) * dy, dgamma, dbeta


@mistake("N9", "conv_backward", "backward ignores the stride")
def stride_ignored(x, w, dy, stride=1, pad=0):
    dx = np.zeros_like(x) + conv_backward(x, w, dy, 1, pad)[0]
    return dx, *conv_backward(x, w, dy, stride, pad)[1:]


@mistake("N10", "alexnet_step", "the last layer has no bias")
def no_last_bias(images, labels, tensors, global_batch):
    return alexnet_step(images, labels, [np.zeros_like(tensors[0]), *tensors[1:]], global_batch)


@mistake("N10", "alexnet_step", "the first convolution has padding 2, as for images of 224 x 224")
def first_padded(images, labels, tensors, global_batch):
    border = [(0, 0), (2, 2), (2, 2), (0, 0)]
    return alexnet_step(np.pad(images, border), labels, tensors, global_batch)


@mistake("N11", "alexnet_step", "gradients in the order of the forward pass")
def first_layer_first(images, labels, tensors, global_batch):
    loss, gradients = alexnet_step(images, labels, tensors, global_batch)
    return loss, [g for layer in reversed(split_layers(gradients)) for g in layer]


@mistake("N11", "alexnet_step", "weight before bias")
def weight_before_bias(images, labels, tensors, global_batch):
    loss, gradients = alexnet_step(images, labels, tensors, global_batch)
    turned = ([*layer[:-2], layer[-1], layer[-2]] for layer in split_layers(gradients))
    return loss, [g for layer in turned for g in layer]


@mistake("N12", "alexnet_rounding", "machine epsilon in place of the unit roundoff")
def epsilon_for_roundoff(images, labels, tensors, global_batch, unit, spread=None):
    return alexnet_rounding(images, labels, tensors, global_batch, 2 * unit, spread)


@mistake("N12", "alexnet_rounding", "parameters are treated as exact")
def spread_ignored(images, labels, tensors, global_batch, unit, spread=None):
    return alexnet_rounding(images, labels, tensors, global_batch, unit)


@mistake("N13", "momentum_rounding", "the decay is left out")
def rounding_without_decay(w, v, g, apart, rate, momentum, decay, unit):
    return momentum_rounding(w, v, g, apart, rate, momentum, 0.0, unit)
