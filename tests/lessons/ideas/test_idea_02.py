"""Lesson 02's idea: a convolution and its weight gradient as matrix products.

The numbers are small and whole, so every order of summation has the same bits.
"""

import numpy as np
import pytest

from docs.tools import gains
from refgf.nn.conv import Convolution, Filters
from refgf.nn.workspace import Workspace
from refgf.oracle.definitions import conv, conv_backward

LESSON = gains.module_of(gains.ROOT / "lessons" / "02_alexnet.py")
CASES = [  # images, pixels, channels, outputs, kernel, stride, padding
    (2, 8, 3, 4, 3, 1, 1),
    (1, 9, 1, 2, 5, 2, 2),
    (3, 11, 2, 1, 4, 3, 0),
    (2, 3, 2, 3, 3, 1, 0),
    (0, 6, 2, 3, 3, 1, 1),
    (2, 5, 3, 2, 1, 1, 0),
]


@pytest.mark.parametrize("images, side, channels, outputs, kernel, stride, pad", CASES)
def test_the_matrix_products_are_the_convolution(
    images, side, channels, outputs, kernel, stride, pad
):
    random = np.random.default_rng(side)

    def whole(*shape):
        return random.integers(-9, 10, shape).astype(np.float64)

    x, w = whole(images, side, side, channels), whole(kernel, kernel, channels, outputs)
    y, weight_gradient = LESSON.convolution(x, w, stride, pad)
    dy = whole(*y.shape)
    dw = weight_gradient(dy)
    assert np.array_equal(y, conv(x, w, np.zeros(outputs), stride, pad))
    assert np.array_equal(dw, conv_backward(x, w, dy, stride, pad)[1])

    filters = Filters(outputs, kernel, stride, pad)
    space = Workspace(dtype=np.float64)
    layer = Convolution("conv", x.shape[1:], filters, space, input_gradient=False, bias=False)
    layer.parameters, layer.gradients = [w], [np.empty_like(w)]
    if images:  # a step has images
        assert np.array_equal(layer.forward(x, True), y)
        layer.backward(dy, lambda i: None)
        assert np.array_equal(layer.gradients[0], dw)
