import numpy as np
import pytest

from refgf.nn.pooling import MaxPool
from refgf.oracle.definitions import max_pool, max_pool_backward
from tests.support.differences import assert_layer, workspace

# images, height, width, channels, kernel, stride
CASES = [
    (4, 9, 7, 2, 3, 2),
    (2, 10, 8, 4, 3, 2),
    (3, 7, 8, 4, 2, 2),
    (2, 8, 7, 3, 4, 1),
    (5, 9, 11, 4, 2, 3),
    (0, 7, 8, 4, 3, 2),
]
SPLITS = [(None, 1), (1, 1), (3, 1), (None, 2), (1, 3)]


def build(case, split=(None, 1)):
    n, height, width, channels, kernel, stride = case
    layer = MaxPool("pool", (height, width, channels), kernel, stride, workspace(*split))
    return layer, np.random.default_rng(0).standard_normal((n, height, width, channels))


@pytest.mark.parametrize("case", CASES)
def test_gradient(case):
    assert_layer(*build(case))


def assert_as_defined(layer, x, kernel, stride):
    y = layer.forward(x, True).copy()
    # integers: sums are exact in any order
    dy = np.random.default_rng(1).integers(-9, 9, y.shape).astype(float)
    wanted, where = max_pool(x, kernel, stride)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(layer.backward(dy, None), max_pool_backward(x, where, dy))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("values", ["different", "often equal", "constant"])
def test_values_and_ties(case, split, values):
    layer, x = build(case, split)
    if values != "different":
        x = (
            np.random.default_rng(2)
            .integers(0, 3 if values == "often equal" else 1, x.shape)
            .astype(float)
        )
    assert_as_defined(layer, x, *case[-2:])


def test_a_second_batch_leaves_nothing_of_the_first():
    layer, x = build(CASES[0])
    assert_as_defined(layer, x, 3, 2)
    assert_as_defined(layer, -x[:3], 3, 2)
    assert_as_defined(layer, x, 3, 2)


@pytest.mark.parametrize("kernel", [0, 8, 16])
def test_impossible_kernels(kernel):
    with pytest.raises(ValueError, match="pool.*kernel"):
        MaxPool("pool", (30 if kernel == 16 else 7, 30, 2), kernel, 2, workspace())
