"""A convolution built from a case, and its definition as loops."""

import numpy as np

from refgf.nn.conv import Convolution, Filters
from tests.support.differences import workspace


def build(case, split=(None, 1), kind=Convolution, **options):
    """Layer and images of (images, height, width, channels, outputs, kernel, stride, padding)."""
    n, height, width, channels, *filters = case
    shape = height, width, channels
    layer = kind("conv", shape, Filters(*filters), workspace(*split), **options)
    return layer, np.random.default_rng(0).standard_normal((n, *shape))


def by_definition(x, weight, bias, stride, padding):
    """Loops over places and kernel pixels; pixels outside the image are zero."""
    (n, height, width, _), (kernel, _, _, outputs) = x.shape, weight.shape
    rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
    y = np.zeros((n, rows, columns, outputs))
    for image, row, column in np.ndindex(n, rows, columns):
        y[image, row, column] = bias
        for i, j in np.ndindex(kernel, kernel):
            above, left = row * stride + i - padding, column * stride + j - padding
            if 0 <= above < height and 0 <= left < width:
                y[image, row, column] += x[image, above, left] @ weight[i, j]
    return y
