"""Other rules for lesson 02: what meets which pixel, a gradient's shape, when it is ready."""

import numpy as np

from refgf.oracle.spec.backward import CONVOLUTION_02, READY_02, WEIGHT_GRADIENT_02
from refgf.oracle.spec.change import CHANGES, Change

# ---- the convolution ----


def flipped(function):
    return lambda x, w, stride, pad: function(x, w[::-1, ::-1], stride, pad)


def channels_before_pixels(function):
    return lambda *a: function(*a).transpose(0, 3, 1, 2)


FLIPPED = {
    "The kernel then moves by `stride`:": (
        "The flipped kernel,\n    f = w[::-1, ::-1], then moves by `stride`:"
    ),
    "* w[u, v, c, o]": "* f[u, v, c, o]",
    "1 channel, [[1, 2, 3], [4, 5, 6]], kernel [[1, 0], [0, 10]], stride 1, pad 0:": (
        "1 channel, [[1, 2, 3], [4, 5, 6]], kernel [[1, 0], [0, 10]], which is flipped:"
    ),
    "you flip the kernel: element (0, 0) of w belongs to the window's first pixel": "",
}
BEFORE = {
    "y (N, OH, OW, O), float32": "y (N, O, OH, OW), float32",
    "y[n, i, j, o] = sum": "y[n, o, i, j] = sum",
}

# ---- the gradient's shape ----


def as_a_matrix(function):
    def weight_gradient(x, dy, kernel, stride):
        return function(x, dy, kernel, stride).reshape(-1, dy.shape[-1])

    return weight_gradient


def of_each_image(function):
    def weight_gradient(x, dy, kernel, stride):
        images = range(len(x))
        return np.stack([function(x[n : n + 1], dy[n : n + 1], kernel, stride) for n in images])

    return weight_gradient


SHAPE = "dw (K, K, C, O), float32, of a convolution without padding: K = kernel."
SUM = "dw[u, v, c, o] = sum over n, i, j of"
CHANNELS = "your rows have the channels before the pixels; the gradient's shape is (K, K, C, O)"
ROWS = "you return the matrix (K*K*C, O); wanted the shape of the weights, (K, K, C, O)"
MATRIX = {
    SHAPE: "dw (K*K*C, O), float32, of a convolution without padding: K = kernel.\n\n"
    "    Row r = (u*K + v)*C + c is that of row u, column v and channel c of the kernel.",
    SUM: "dw[r, o] = sum over n, i, j of",
    CHANNELS: "your rows have the channels before the pixels; wanted u, v, c in this order",
    ROWS: "",
}
IMAGES = {
    SHAPE: "dw (N, K, K, C, O), float32, of a convolution without padding, for each image: K = "
    "kernel.",
    SUM: "dw[n, u, v, c, o] = sum over i, j of",
    "Hint: dw = x' dy, a product": "Hint: for one image dw = x' dy, a product",
    CHANNELS: "your rows have the channels before the pixels; wanted the shape (N, K, K, C, O)",
    ROWS: "you return matrices (N, K*K*C, O); wanted the weights' shape for each, (N, K, K, C, O)",
    "you return the mean over the images; dw = x' dy is the sum over all rows": "",
    "you use the first image only": "",
}

# ---- when a gradient counts as ready ----


def seconds_left(function):
    def ready_order(weight_s, input_s):
        whole_s = sum(weight_s) + sum(input_s)
        return [(layer, whole_s - s) for layer, s in function(weight_s, input_s)]

    return ready_order


def input_first(function):
    def ready_order(weight_s, input_s):
        return [(layer, s + input_s[layer]) for layer, s in function(weight_s, input_s)]

    return ready_order


LEFT = {
    "when backward has each weight gradient, in this order.": (
        "how long backward still takes when it has each weight gradient,\n    in this order."
    ),
    "The seconds count from the start of backward.": (
        "Backward ends with the gradient of layer 0's input."
    ),
}
INPUT_FIRST = {
    "for the gradient of its weights, and after that\n    for the gradient of its input": (
        "for the gradient of its weights, and before that\n    for the gradient of its input"
    ),
    "a gradient is ready after its own weight product; it need not wait for the gradient "
    "of the layer's input": "",
}

CHANGES["02"] = [
    [
        [Change(CONVOLUTION_02, "here the kernel is flipped", flipped, words=FLIPPED)],
        [
            Change(
                CONVOLUTION_02, "here outputs precede pixels", channels_before_pixels, words=BEFORE
            )
        ],
    ],
    [
        [Change(WEIGHT_GRADIENT_02, "here it is a matrix", as_a_matrix, words=MATRIX)],
        [Change(WEIGHT_GRADIENT_02, "here each image has its own", of_each_image, words=IMAGES)],
    ],
    [
        [Change(READY_02, "here the seconds that are left count", seconds_left, words=LEFT)],
        [Change(READY_02, "here the input's gradient comes first", input_first, words=INPUT_FIRST)],
    ],
]
