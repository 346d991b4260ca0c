"""A convolution built from a case."""

import numpy as np

from refgf.nn.conv import Convolution, Filters
from tests.support.differences import workspace


def build(case, split=(None, 1), kind=Convolution, **options):
    """Layer and images of (images, height, width, channels, outputs, kernel, stride, padding)."""
    n, height, width, channels, *filters = case
    shape = height, width, channels
    layer = kind("conv", shape, Filters(*filters), workspace(*split), **options)
    return layer, np.random.default_rng(0).standard_normal((n, *shape))
