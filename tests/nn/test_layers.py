import numpy as np
import pytest

from refgf.nn.layers import Dropout, FullyConnected, ReLU
from tests.support.differences import assert_layer, bind_random, workspace

SPLITS = [(None, 1), (1, 1), (2, 1), (None, 2), (2, 3)]  # images_per_block, threads


def images(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(
    "n, outputs, longest",
    [
        (0, 4096, 200),
        (1, 3000, 200),
        (16, 4096, 8),
        (18, 4096, 8),
        (19, 4096, 200),
        (64, 4096, 200),
        (16, 1000, 32),
    ],
)
def test_rows_of_the_weight_gradient(n, outputs, longest):
    """Each row once, in blocks that BLAS need not pack if they have 8 rows, else in one."""
    layer = FullyConnected("fc", (200,), outputs, workspace())
    for span in (slice(0, 200), slice(0, 101), slice(101, 200), slice(7, 8), slice(5, 5)):
        rows = layer.rows(span, n)
        assert [row for block in rows for row in range(200)[block]] == list(range(200))[span]
        longest_here = max([block.stop - block.start for block in rows], default=0)
        assert longest_here == min(longest, span.stop - span.start)


def test_blocks_of_images_do_not_cut_an_input_gradient(monkeypatch):
    """With one image a block there was a product for each input."""
    layer = bind_random(FullyConnected("fc", (43,), 50, workspace(1)))
    cut, blocks = layer.workspace.cache_blocks, []
    monkeypatch.setattr(
        layer.workspace, "cache_blocks", lambda *args: blocks.extend(cut(*args)) or blocks
    )
    layer.forward(images((3, 43)), True)
    layer.backward(images((3, 50)), lambda k: None)
    assert blocks == [slice(0, 43)]


def test_a_weight_gradient_in_parts_is_the_same_product():
    layer = bind_random(FullyConnected("fc", (43,), 5000, workspace()))
    x, dy = images((15, 43)), images((15, 5000), seed=1)
    assert len(layer.rows(slice(0, 43), 15)) == 6
    layer.forward(x, True)
    layer.backward(dy, lambda k: None)
    # 15 products of about 1
    np.testing.assert_allclose(layer.gradients[1], x.T @ dy, rtol=0, atol=1e-13)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("n", [0, 1, 5])
def test_fully_connected(n, split):
    assert_layer(FullyConnected("fc", (2, 3, 4), 7, workspace(*split)), images((n, 2, 3, 4)))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("n", [0, 5])
def test_relu(n, split):
    assert_layer(ReLU("relu", (2, 3, 4), workspace(*split)), images((n, 2, 3, 4)))


def test_relu_in_place_and_flat_at_zero():
    layer = ReLU("relu", (3,), workspace())
    x = np.array([[-1.0, 0.0, 2.0]])
    assert layer.forward(x, True) is x
    np.testing.assert_array_equal(x, [[0, 0, 2]])
    np.testing.assert_array_equal(layer.backward(np.full((1, 3), 5.0), None), [[0, 0, 5]])


def dropout(probability, seed=3):
    rng = np.random.default_rng(seed)
    return Dropout("dropout", (40, 5), probability, workspace(), lambda: rng)


def same_mask_each_time(layer):
    def restart():
        rng = np.random.default_rng(3)
        layer.rng = lambda: rng

    return restart


@pytest.mark.parametrize("n", [0, 2])
def test_dropout(n):
    layer = dropout(0.3)
    assert_layer(layer, images((n, 40, 5)), before_forward=same_mask_each_time(layer))


def test_dropout_keeps_the_expectation():
    y = dropout(0.25).forward(np.ones((50, 40, 5)), True)
    assert set(np.unique(y)) == {0, 1 / 0.75}
    deviation = (0.25 / 0.75 / y.size) ** 0.5  # of the mean of y.size values that are 0 or 1/0.75
    assert abs(y.mean() - 1) < 5 * deviation


def test_dropout_is_seeded_and_off_in_evaluation():
    x = images((2, 40, 5))
    first, again, other = (dropout(0.5, seed).forward(x, True) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(dropout(0.5).forward(x, False), x)
    np.testing.assert_array_equal(dropout(0.0).forward(x, True), x)


def test_dropout_masks_do_not_depend_on_the_type():
    wide, narrow = dropout(0.5), dropout(0.5)
    narrow.workspace.dtype = np.dtype(np.float32)
    y = wide.forward(np.ones((2, 40, 5)), True)
    np.testing.assert_array_equal(y, narrow.forward(np.ones((2, 40, 5), np.float32), True))


@pytest.mark.parametrize("probability", [-0.1, 1.0, float("nan")])
def test_dropout_rejects(probability):
    with pytest.raises(ValueError, match="probability"):
        Dropout("dropout", (3,), probability, workspace(), np.random.default_rng)
