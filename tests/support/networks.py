"""Small networks and batches that several tests share."""

import numpy as np

from refgf.exchange.pool import Pool
from refgf.nn.alexnet import AlexNet
from refgf.papers.resnet50.resnet50 import ResNet50
from tests.support.differences import workspace

NORMALIZATIONS = ["batch", "local", "none"]


def bound(network, seed=3):
    """(parameters, gradients) of an initialised network; the gradients are NaN."""
    arrays = [
        [np.full(spec.shape, np.nan, network.dtype) for spec in network.tensors] for _ in "pg"
    ]
    network.bind(*arrays)
    network.initialize(seed)
    return arrays


def small(normalization="batch", dropout=0.0, space=None, **options):
    """AlexNet with channels 2, 4, 6, 6, 4 and 64 hidden units: (network, parameters, gradients)."""
    space = space or workspace()
    network = AlexNet(7, 71, 1 / 64, normalization, dropout, workspace=space, **options)
    return network, *bound(network)


def batch(network, n, seed=0):
    """n random images and their labels."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, *network.image_shape)).astype(network.dtype)
    return x, rng.integers(0, network.num_classes, n)


def small_resnet50(space=None, **options):
    """ResNet-50 in 1/32 of its width: (network, pool of its gradients)."""
    network = ResNet50(7, 40, width=1 / 32, workspace=space or workspace(), **options)
    parameters, gradients = (Pool(network.tensors, network.dtype) for _ in "pg")
    gradients.flat[...] = np.nan
    network.bind(parameters.views, gradients.views)
    network.initialize(0)
    return network, gradients


def resnet50_step(network, n, seed=0):
    """Loss and gradients of n random images; returns the loss."""
    labels = np.random.default_rng(seed).integers(0, 7, n)
    images = np.random.default_rng(seed).standard_normal((n, *network.image_shape))
    loss = network.loss(images, labels, max(1, n))
    network.backward(lambda i: None)
    return loss
