"""Lesson 02: a convolution and its weight gradient, and when each gradient is ready.

The exercises ask for parts of N1; the last one has no statement. The numbers of all cases are small
and whole: their float32 sums are exact in any order. Times are eighths of a second.
"""

from itertools import accumulate
from typing import Any

import numpy as np

from refgf.oracle.spec.exercise import Arguments, Exercise
from refgf.oracle.spec.network.layers import conv, conv_backward

# ---- output_size(size, kernel, stride, pad): given in the starter ----


def output_size(size: int, kernel: int, stride: int, pad: int) -> int:
    return (size + 2 * pad - kernel) // stride + 1


def sizes(random: np.random.Generator) -> list[Arguments]:
    return [(227, 11, 4, 0), (27, 5, 1, 2), (13, 3, 1, 1), (int(random.integers(9, 99)), 4, 3, 1)]


def one_position_each(random: np.random.Generator) -> list[Arguments]:
    size = int(random.integers(6, 999))
    return [(3, 3, 1, 0), (5, 4, 2, 0), (1, 3, 2, 1), (size, size, 2, 0)]


SIZE_02 = Exercise("02.1", output_size)
SIZE_02.part("several positions", 1, sizes)
SIZE_02.part("one position", 1, one_position_each)

# ---- convolution(x, w, stride, pad) ----


PLAIN, STRIDE, PAD = "stride 1, no padding", "stride 2 and more", "padding"

ONE_PIXEL = "a kernel of one pixel"


def whole(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Not 0, because a sum of products that are all -0 depends on how it starts."""
    return (random.integers(1, 10, shape) * random.choice([-1, 1], shape)).astype(np.float32)


def convolution(x: np.ndarray, w: np.ndarray, stride: int, pad: int) -> np.ndarray:
    return conv(x, w, np.zeros(w.shape[-1], x.dtype), stride, pad)


def images(
    random: np.random.Generator,
    shape: tuple[Any, ...],
    kernel: int,
    outputs: int,
    stride: int,
    pad: int,
) -> tuple[Any, ...]:
    """x, w, stride, pad. shape: (N, H, W, C)"""
    return whole(random, *shape), whole(random, kernel, kernel, shape[3], outputs), stride, pad


def plain(random: np.random.Generator) -> list[Arguments]:
    return [images(random, (1, 2, 2, 2), 2, 1, 1, 0), images(random, (2, 5, 6, 3), 3, 4, 1, 0)]


def strided(random: np.random.Generator) -> list[Arguments]:
    small = images(random, (1, 2, 4, 1), 2, 1, 2, 0), images(random, (1, 2, 2, 2), 2, 1, 2, 0)
    return [*small, images(random, (2, 8, 9, 2), 3, 3, 3, 0)]


def padded(random: np.random.Generator) -> list[Arguments]:
    small = images(random, (1, 1, 2, 1), 2, 1, 1, 1), images(random, (1, 1, 1, 2), 2, 1, 1, 1)
    return [*small, images(random, (2, 5, 3, 2), 5, 2, 1, 2)]


def one_pixel(random: np.random.Generator) -> list[Arguments]:
    return [images(random, (1, 1, 2, 2), 1, 1, 1, 0), images(random, (2, 3, 4, 3), 1, 2, 1, 0)]


def windows(x: np.ndarray, kernel: int, stride: int) -> np.ndarray:
    """What lies under the kernel at each position. -> (N, OH, OW, C, K, K)"""
    under = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(1, 2))
    return under[:, ::stride, ::stride]


CONVOLUTION_02 = Exercise("02.2", convolution)
CONVOLUTION_02.part(PLAIN, 3, plain)
CONVOLUTION_02.part(STRIDE, 1, strided)
CONVOLUTION_02.part(PAD, 1, padded)
CONVOLUTION_02.part(ONE_PIXEL, 1, one_pixel)


CONVOLUTION_02.given(
    "you flip the kernel: element (0, 0) of w belongs to the window's first pixel",
    w=lambda w: w[::-1, ::-1],
)


@CONVOLUTION_02.mistake(
    "your rows have the channels before the pixels, and w has them after: transpose the "
    "windows to (N, OH, OW, K, K, C) before reshape"
)
def channels_first(x, w, stride, pad):
    under = windows(np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0))), w.shape[0], stride)
    return under.reshape(*under.shape[:3], -1) @ w.reshape(-1, w.shape[-1])


CONVOLUTION_02.given(
    "you exchange the rows and columns of the kernel", w=lambda w: w.transpose(1, 0, 2, 3)
)
CONVOLUTION_02.given(
    "you move the kernel by one pixel, whatever the stride", stride=lambda stride: 1
)


@CONVOLUTION_02.mistake("your padding is missing")
def without_padding(x, w, stride, pad):
    if pad and min(x.shape[1:3]) < w.shape[0]:  # no position is left
        return np.zeros((len(x), 0, 0, w.shape[-1]), x.dtype)
    return convolution(x, w, stride, 0)


@CONVOLUTION_02.mistake("you pad the bottom and the right only; the zeros belong on all four sides")
def padded_at_the_end(x, w, stride, pad):
    return convolution(np.pad(x, ((0, 0), (0, 2 * pad), (0, 2 * pad), (0, 0))), w, stride, 0)


CONVOLUTION_02.given(
    "your result is float64: give np.zeros and np.empty the type of x",
    x=lambda x: x.astype(np.float64),
)


# ---- weight_gradient(x, dy, kernel, stride) ----


SEVERAL, APART, ONE = "several images", "stride 2 and more", "one image, one position"


def weight_gradient(x: np.ndarray, dy: np.ndarray, kernel: int, stride: int) -> np.ndarray:
    w = np.zeros((kernel, kernel, x.shape[-1], dy.shape[-1]), x.dtype)
    return conv_backward(x, w, dy, stride)[1]


def gradients(
    random: np.random.Generator, shape: tuple[Any, ...], kernel: int, outputs: int, stride: int
) -> tuple[Any, ...]:
    """x, dy, kernel, stride. shape: (N, H, W, C)"""
    positions = [output_size(size, kernel, stride, 0) for size in shape[1:3]]
    return whole(random, *shape), whole(random, shape[0], *positions, outputs), kernel, stride


def several_images(random: np.random.Generator) -> list[Arguments]:
    small = gradients(random, (1, 2, 2, 2), 2, 1, 1), gradients(random, (2, 2, 2, 1), 2, 1, 1)
    return [*small, gradients(random, (3, 5, 6, 2), 3, 4, 1)]


def apart(random: np.random.Generator) -> list[Arguments]:
    shapes = ((1, 2, 4, 1), (2, 2, 2, 1), (1, 2, 2, 2))
    small = [gradients(random, shape, 2, 1, 2) for shape in shapes]
    return [*small, gradients(random, (3, 8, 9, 2), 3, 3, 3)]


def one_position(random: np.random.Generator) -> list[Arguments]:
    return [gradients(random, (1, 2, 2, 2), 2, 1, 1), gradients(random, (1, 3, 3, 2), 3, 4, 1)]


WEIGHT_GRADIENT_02 = Exercise("02.3", weight_gradient)
WEIGHT_GRADIENT_02.part(SEVERAL, 3, several_images)
WEIGHT_GRADIENT_02.part(APART, 1, apart)
WEIGHT_GRADIENT_02.part(ONE, 1, one_position)


@WEIGHT_GRADIENT_02.mistake(
    "you return the mean over the images; dw = x' dy is the sum over all rows"
)
def mean_over_images(x, dy, kernel, stride):
    return weight_gradient(x, dy, kernel, stride) / len(x)


@WEIGHT_GRADIENT_02.mistake("you use the first image only")
def first_image(x, dy, kernel, stride):
    return weight_gradient(x[:1], dy[:1], kernel, stride)


@WEIGHT_GRADIENT_02.mistake("you move the kernel by one pixel, whatever the stride")
def gradient_without_stride(x, dy, kernel, stride):
    rows, columns = dy.shape[1:3]
    return weight_gradient(x[:, : rows + kernel - 1, : columns + kernel - 1], dy, kernel, 1)


@WEIGHT_GRADIENT_02.mistake(
    "your rows have the channels before the pixels; the gradient's shape is (K, K, C, O)"
)
def gradient_channels_first(x, dy, kernel, stride):
    rows = windows(x, kernel, stride).reshape(-1, kernel * kernel * x.shape[-1])
    product = rows.T @ dy.reshape(-1, dy.shape[-1])
    return product.reshape(kernel, kernel, x.shape[-1], dy.shape[-1])


@WEIGHT_GRADIENT_02.mistake(
    "you return the matrix (K*K*C, O); wanted the shape of the weights, (K, K, C, O)"
)
def gradient_as_a_matrix(x, dy, kernel, stride):
    return weight_gradient(x, dy, kernel, stride).reshape(-1, dy.shape[-1])


# ---- ready_order(weight_s, input_s) ----


LAYERS, FEW = "several layers", "no layer, one layer"


def ready_order(weight_s: list[float], input_s: list[float]) -> list[tuple[int, float]]:
    pairs = list(zip(weight_s, input_s))[::-1]
    before_s = accumulate([weight + inputs for weight, inputs in pairs], initial=0.0)
    last = len(pairs) - 1
    return [(last - i, s + pairs[i][0]) for i, s in zip(range(len(pairs)), before_s)]


def layers(random: np.random.Generator) -> list[Arguments]:
    weight_s, input_s = (random.integers(1, 40, (2, 5)) / 8).tolist()
    return [([1.0, 2.0, 0.5], [0.25, 3.0, 1.0]), (weight_s, input_s)]


READY_02 = Exercise("02.4", ready_order)
READY_02.part(LAYERS, 3, layers)
READY_02.part(
    FEW,
    1,
    lambda random: [
        ([], []),
        ([2.0], [0.5]),
        tuple((random.integers(1, 400, (2, 1)) / 8).tolist()),
    ],
)


@READY_02.mistake("you start with the first layer; backward goes from the last layer to the first")
def first_layer_first(weight_s, input_s):
    times = ready_order(weight_s[::-1], input_s[::-1])
    return [(len(times) - 1 - layer, s) for layer, s in times]


@READY_02.mistake(
    "your list is in the order of the layers; wanted the order in which they are ready"
)
def sorted_by_layer(weight_s, input_s):
    return ready_order(weight_s, input_s)[::-1]


@READY_02.mistake(
    "a gradient is ready after its own weight product; it need not wait for the gradient "
    "of the layer's input"
)
def after_its_layer(weight_s, input_s):
    return [(layer, s + input_s[layer]) for layer, s in ready_order(weight_s, input_s)]


READY_02.given(
    "your later layers take too little time: each computes the gradient of its input too",
    input_s=lambda input_s: [0.0] * len(input_s),
)


@READY_02.mistake("a gradient is not ready before its own weight product has ended")
def before_its_product(weight_s, input_s):
    return [(layer, s - weight_s[layer]) for layer, s in ready_order(weight_s, input_s)]
