import pytest

from tests.support.convolutions import build
from tests.support.differences import assert_layer

# images, height, width, channels, outputs, kernel, stride, padding
# The first six differ; pixels are left over.
CASES = [
    (4, 10, 7, 2, 5, 3, 1, 0),
    (4, 10, 7, 2, 5, 3, 1, 1),
    (4, 10, 8, 2, 6, 3, 2, 1),
    (5, 11, 9, 2, 3, 4, 3, 0),
    (2, 4, 6, 3, 5, 1, 1, 0),
    (2, 3, 4, 5, 7, 6, 1, 2),
    (0, 10, 7, 2, 5, 3, 2, 1),
    (1, 10, 7, 2, 5, 3, 2, 1),
]
SPLITS = [(None, 1), (1, 1), (3, 1), (None, 2), (1, 3)]  # images_per_block, threads


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    assert_layer(*build(case))


@pytest.mark.parametrize("split", SPLITS)
def test_gradients_in_blocks_and_threads(split):
    assert_layer(*build((5, 8, 6, 2, 4, 3, 2, 1), split))


def test_the_first_layer_has_no_input_gradient():
    layer, x = build(CASES[1], input_gradient=False)
    assert_layer(layer, x)
    assert layer.backward(layer.forward(x, True).copy(), lambda k: None) is None


def test_flops():
    layer, _ = build(CASES[2])
    # a multiply-add for 3 images, 5 x 4 places, 6 outputs, 3 x 3 x 2 inputs
    product = 2 * 3 * 5 * 4 * 6 * (3 * 3 * 2)
    assert layer.flops(3) == (product, 2 * product)
    assert build(CASES[2], input_gradient=False)[0].flops(3) == (product, product)


def test_a_kernel_larger_than_the_image():
    with pytest.raises(ValueError, match="conv.*kernel"):
        build((1, 3, 4, 2, 2, 5, 1, 0))
