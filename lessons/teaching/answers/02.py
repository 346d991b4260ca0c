"""Answers to lessons/student/02.py: full marks."""

import numpy as np


def output_size(size, kernel, stride, pad):
    return (size + 2 * pad - kernel) // stride + 1


def windows(x, kernel, stride):
    """The pixels under the kernel. -> (N, OH, OW, K, K, C)"""
    under = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(1, 2))
    return under[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)


def convolution(x, w, stride, pad):
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    under = windows(padded, w.shape[0], stride)
    outputs = w.shape[-1]
    rows = under.reshape(-1, w.size // outputs)
    return (rows @ w.reshape(-1, outputs)).reshape(*under.shape[:3], outputs)


def weight_gradient(x, dy, kernel, stride):
    outputs = dy.shape[-1]
    rows = windows(x, kernel, stride).reshape(-1, kernel * kernel * x.shape[-1])
    product = rows.T @ dy.reshape(-1, outputs)
    return product.reshape(kernel, kernel, x.shape[-1], outputs)


def ready_order(weight_s, input_s):
    times, now_s = [], 0.0
    for layer in reversed(range(len(weight_s))):
        times.append((layer, now_s + weight_s[layer]))
        now_s += weight_s[layer] + input_s[layer]
    return times
