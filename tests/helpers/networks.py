"""Small networks and batches that the tests of AlexNet share."""

import numpy as np

from refgf.nn.alexnet import AlexNet

NORMALIZATIONS = ["batch", "local", "none"]


def bound(network, seed=3):
    arrays = [[np.full(spec.shape, np.nan, network.dtype) for spec in network.tensors] for _ in range(2)]
    network.bind(*arrays)
    network.initialize(seed)
    return arrays


def small(normalization="batch", dropout=0.0, width=1 / 64, **options):
    """Channels 2, 4, 6, 6, 4 and 64 hidden units."""
    options = {"dtype": np.float64, "num_classes": 7, "image_size": 71, **options}
    network = AlexNet(width=width, normalization=normalization, dropout=dropout, **options)
    return network, *bound(network)


def batch(network, n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, *network.image_shape)).astype(network.dtype)
    return x, rng.integers(0, network.num_classes, n)
