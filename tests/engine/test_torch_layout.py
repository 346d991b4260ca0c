"""Weights to PyTorch's layout and back; agreement with PyTorch itself is in tests/baselines."""

import numpy as np
import pytest

from refgf.engine.torch_layout import (
    from_torch,
    images_from_torch,
    images_to_torch,
    state_to_torch,
    to_torch,
)
from refgf.nn.alexnet import AlexNet


def bound(normalization="batch"):
    # 99: 2 x 2 pixels before fc6
    network = AlexNet(7, 99, width=1 / 32, normalization=normalization)
    rng = np.random.default_rng(0)
    parameters, gradients = (
        [rng.standard_normal(s.shape, np.float32) for s in network.tensors] for _ in range(2)
    )
    network.bind(parameters, gradients)
    return network


def assert_round_trips(network, inverse=from_torch):
    for layer in network.layers:
        for array in layer.parameters:
            np.testing.assert_array_equal(inverse(layer, to_torch(layer, array)), array)


@pytest.mark.parametrize("normalization", ["batch", "local", "none"])
def test_round_trips(normalization):
    assert_round_trips(bound(normalization))


def test_single_elements():
    layers = {layer.name: layer for layer in bound().layers}
    weight = layers["conv2"].parameters[1]  # (5, 5, C, O)
    assert to_torch(layers["conv2"], weight)[4, 1, 0, 3] == weight[0, 3, 1, 4]
    weight, (height, width, channels) = layers["fc6"].parameters[1], layers["fc6"].input_shape
    assert (height, width) == (2, 2) and channels == 8
    row, column, channel, output = 1, 0, 5, 9
    theirs = to_torch(layers["fc6"], weight)[output, (channel * height + row) * width + column]
    assert theirs == weight[(row * width + column) * channels + channel, output]
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5))
    assert images_to_torch(x)[1, 4, 2, 3] == x[1, 2, 3, 4]
    np.testing.assert_array_equal(images_from_torch(images_to_torch(x)), x)


def test_names():
    names = set(state_to_torch(bound()))
    assert len(names) == 26
    assert {"conv1.weight", "norm5.weight", "norm5.bias", "fc8.bias"} <= names
