import numpy as np
import pytest

from refgf.nn.pooling import MaxPool
from refgf.ops import in_windows
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


def build(case, split=(None, 1), kind=MaxPool):
    n, height, width, channels, kernel, stride = case
    layer = kind("pool", (height, width, channels), kernel, stride, workspace(*split))
    return layer, np.random.default_rng(0).standard_normal((n, height, width, channels))


def by_definition(x, dy, kernel, stride):
    """Loops: the maximum of each window; the gradient goes to the first maximum in row order."""
    (n, height, width, channels) = x.shape
    rows, columns = (height - kernel) // stride + 1, (width - kernel) // stride + 1
    y, dx = np.zeros((n, rows, columns, channels)), np.zeros(x.shape)
    for image, row, column, channel in np.ndindex(y.shape):
        places = [
            (row * stride + i, column * stride + j) for i in range(kernel) for j in range(kernel)
        ]
        values = [x[image, above, left, channel] for above, left in places]
        y[image, row, column, channel] = max(values)
        above, left = places[values.index(max(values))]
        dx[image, above, left, channel] += dy[image, row, column, channel] if dy is not None else 0
    return y, dx


@pytest.mark.parametrize("case", CASES)
def test_gradient(case):
    assert_layer(*build(case))


def assert_as_defined(layer, x, kernel, stride):
    y = layer.forward(x, True).copy()
    dy = (
        np.random.default_rng(1).integers(-9, 9, y.shape).astype(float)
    )  # integers: sums are exact in any order
    expected_y, expected_dx = by_definition(x, dy, kernel, stride)
    np.testing.assert_array_equal(y, expected_y)
    np.testing.assert_array_equal(layer.backward(dy, None), expected_dx)


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


def test_the_gradient_to_all_equal_values_goes_red():
    class Wrong(MaxPool):
        def forward(self, x, training):
            self.x = x
            self.y = super().forward(x, training)
            return self.y

        def backward(self, dy, ready):
            dx = np.zeros_like(self.x)
            for w in range(self.kernel**2):
                value = in_windows(self.x, self.y, w, self.kernel, self.stride)
                dx_w = in_windows(dx, self.y, w, self.kernel, self.stride)
                dx_w += dy * (value == self.y)
            return dx

    layer, x = build(CASES[0], kind=Wrong)
    assert_as_defined(layer, x, 3, 2)  # without ties it is right
    with pytest.raises(AssertionError):
        assert_as_defined(layer, np.ones_like(x), 3, 2)
