import numpy as np
import pytest

from refgf.nn.conv import Convolution
from tests.support.convolutions import build, by_definition
from tests.support.differences import assert_layer, bind_random

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
def test_forward(case):
    layer, x = build(case)
    bind_random(layer)
    expected = by_definition(x, layer.parameters[1], layer.parameters[0], *case[-2:])
    y = layer.forward(x, True)
    assert y.shape == (len(x), *layer.output_shape)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-12)  # 180 products of about 1


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
    product = (
        2 * 3 * 5 * 4 * 6 * (3 * 3 * 2)
    )  # a multiply-add for 3 images, 5 x 4 places, 6 outputs, 3 x 3 x 2 inputs
    assert layer.flops(3) == (product, 2 * product)
    assert build(CASES[2], input_gradient=False)[0].flops(3) == (product, product)


def test_a_kernel_larger_than_the_image():
    with pytest.raises(ValueError, match="conv.*kernel"):
        build((1, 3, 4, 2, 2, 5, 1, 0))


def test_assigning_overlaps_instead_of_adding_goes_red():
    class Wrong(Convolution):
        def fold(self, strips, dx, worker):
            dx[...] = 0
            for j in range(self.kernel):
                dx[:, :, j : j + self.output_shape[1]] = strips[:, :, :, 0, j].swapaxes(0, 1)

    with pytest.raises(AssertionError, match="input"):
        assert_layer(*build(CASES[0], kind=Wrong))


def test_keeping_only_the_last_block_goes_red():
    layer, x = build(CASES[0], (3, 1))

    def only_the_last(compute, n, bytes_per_image, total):
        for block in layer.workspace.image_blocks(slice(0, n), bytes_per_image):
            compute(0, block, total)

    layer.workspace.sum_over_blocks = only_the_last
    with pytest.raises(AssertionError, match="bias|weight"):
        assert_layer(layer, x)
