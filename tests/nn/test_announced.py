"""A gradient that has been announced belongs to the exchange, which may overwrite it while backward goes on."""

import numpy as np
import pytest

from refgf.exchange.pool import Pool
from refgf.nn.alexnet import AlexNet


def gradients(normalization, scribble):
    network = AlexNet(5, 67, width=1 / 16, normalization=normalization, dropout=0.0)
    parameters, pool = Pool(network.tensors), Pool(network.tensors)
    network.bind(parameters.views, pool.views)
    network.initialize(3)
    random = np.random.default_rng(0)
    network.loss(random.standard_normal((3, 67, 67, 3)).astype(np.float32), random.integers(0, 5, 3), 3)
    seen = {}

    def on_ready(i):
        seen[i] = pool.views[i].copy()
        if scribble:
            pool.views[i][...] = np.nan

    network.backward(on_ready)
    return [seen[i] for i in range(len(seen))]


@pytest.mark.parametrize("normalization", ["batch", "local", "none"])
def test_backward_does_not_read_what_it_has_announced(normalization):
    left_alone, scribbled = gradients(normalization, False), gradients(normalization, True)
    assert all(np.array_equal(a, b) for a, b in zip(left_alone, scribbled))
