import numpy as np
import pytest

from refgf.nn.normalization import BatchNorm
from refgf.nn.workspace import Workspace
from tests.support.differences import assert_layer, bind_random, workspace

SHAPE = (5, 4, 3, 7)  # images, height, width, channels
SPLITS = [(None, 1), (1, 1), (3, 1), (None, 2), (2, 3)]  # images_per_block, threads


def images(n=SHAPE[0], seed=0):
    rng = np.random.default_rng(seed)
    # mean 3, another deviation for each channel
    return 3 + rng.standard_normal((n, *SHAPE[1:])) * np.arange(1, 8)


def batch_norm(split=(None, 1)):
    return bind_random(BatchNorm("norm", SHAPE[1:], workspace(*split)))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_batch_norm_gradients(n, split):
    assert_layer(batch_norm(split), images(n))


def test_a_large_mean_does_not_spoil_the_variance():
    """In float32 E[x^2] - E[x]^2 would lose all digits of a variance of 1 at a mean of 10000."""
    layer = BatchNorm("norm", SHAPE[1:], workspace())
    layer.workspace.dtype = np.dtype(np.float32)
    # exact in float32
    x = (10000 + np.random.default_rng(0).integers(-2, 3, SHAPE)).astype(np.float32)
    _, variance, _ = layer.statistics(layer.rows(x))
    # 60 roundings of 6e-8
    np.testing.assert_allclose(variance, x.astype(np.float64).var(axis=(0, 1, 2)), rtol=1e-5)


@pytest.mark.parametrize("split", SPLITS)
def test_running_statistics(split):
    """Two accepted batches: the mean, and the variance over n - 1, enter with momentum 0.1."""
    layer = batch_norm(split)
    mean, variance = np.zeros(7), np.ones(7)
    for seed in (1, 2):
        x = images(seed=seed)
        layer.forward(x, True)
        layer.accept()
        mean = 0.9 * mean + 0.1 * x.mean(axis=(0, 1, 2))
        variance = 0.9 * variance + 0.1 * x.var(axis=(0, 1, 2), ddof=1)
    np.testing.assert_allclose(layer.running_mean, mean, rtol=1e-12)
    np.testing.assert_allclose(layer.running_variance, variance, rtol=1e-12)


def test_only_accepted_batches_count_and_only_once():
    layer = batch_norm()
    layer.forward(images(seed=1), True)
    layer.forward(images(0), True)  # a rank whose shard is empty
    layer.accept()
    np.testing.assert_array_equal(layer.running_mean, 0)
    np.testing.assert_array_equal(layer.running_variance, 1)
    layer.forward(images(seed=1), True)
    layer.accept()
    once = layer.running_mean.copy()
    layer.accept()
    np.testing.assert_array_equal(layer.running_mean, once)


def test_evaluation_uses_the_running_statistics():
    layer, x = batch_norm(), images()
    layer.running_mean[...], layer.running_variance[...] = np.arange(7), np.arange(1, 8)
    beta, gamma = layer.parameters
    expected = gamma * (x - np.arange(7)) / np.sqrt(np.arange(1, 8) + 1e-5) + beta
    np.testing.assert_allclose(layer.forward(x, False), expected, rtol=0, atol=1e-13)
    assert layer.batch is None


def test_one_value_per_channel_has_variance_zero():
    layer = bind_random(BatchNorm("norm", (1, 1, 7), workspace()))
    np.testing.assert_array_equal(
        layer.forward(np.ones((1, 1, 1, 7)), True), layer.parameters[0].reshape(1, 1, 1, 7)
    )
    layer.accept()
    np.testing.assert_allclose(layer.running_variance, 0.9, rtol=1e-15)


def test_sums_over_a_batch_may_exceed_float16():
    """112,000 pixels of about 2: their sum, 224,000, is no float16, their mean is."""
    layer = BatchNorm("norm", (40, 40, 2), Workspace(dtype=np.float16))
    layer.bind(
        [np.zeros(2, np.float16), np.ones(2, np.float16)],
        [np.zeros(2, np.float16) for _ in range(2)],
    )
    x = (2 + np.random.default_rng(0).standard_normal((70, 40, 40, 2))).astype(np.float16)
    exact = x.astype(np.float64)
    assert exact.sum(axis=(0, 1, 2)).min() > np.finfo(np.float16).max
    y = layer.forward(x, True)
    wanted = (exact - exact.mean(axis=(0, 1, 2))) / exact.std(axis=(0, 1, 2))
    # mean, difference, scale, product, beta: rounded
    bound = 5 * 2.0**-11 * (np.abs(exact).max() + np.abs(wanted).max())
    assert np.abs(y - wanted).max() <= bound
    layer.backward(np.full(x.shape, 1e-3, np.float16), lambda k: None)
    assert np.isfinite(layer.gradients).all()
