"""ResNet-50's shape, and its layers against central differences.

tests/baselines compares the network with PyTorch.
"""

import numpy as np
import pytest

from refgf.nn.conv import Convolution, Filters
from refgf.nn.layers import ReLU
from refgf.nn.normalization import BatchNorm
from refgf.nn.pooling import MaxPool
from refgf.papers.resnet50.residual import Border, GlobalAveragePool, ResidualBlock
from refgf.papers.resnet50.resnet50 import ResNet50
from refgf.papers.scaling.workloads import resnet50
from tests.support.differences import assert_layer, workspace
from tests.support.networks import resnet50_step as step
from tests.support.networks import small_resnet50 as small


def block(height=5, channels=4, outputs=4, stride=1):
    """Two convolutions with normalisation, a projected shortcut where shapes differ."""
    space, shape = workspace(), (height, 6, channels)

    def pair(name, shape, kernel, stride):
        filters = Filters(outputs, kernel, stride, kernel // 2)
        convolution = Convolution(name, shape, filters, space, bias=False)
        return [convolution, BatchNorm(f"{name} norm", convolution.output_shape, space)]

    first = pair("first", shape, 3, stride)
    main = (
        first
        + [ReLU("relu", first[-1].output_shape, space)]
        + pair("second", first[-1].output_shape, 3, 1)
    )
    shortcut = pair("shortcut", shape, 1, stride) if (channels, stride) != (outputs, 1) else []
    return ResidualBlock("block", main, shortcut, space)


def images(n, shape, seed=0):
    return np.random.default_rng(seed).standard_normal((n, *shape))


# ---- layers ----


@pytest.mark.parametrize("channels, outputs, stride", [(4, 4, 1), (3, 4, 1), (4, 4, 2)])
def test_gradients_of_a_block(channels, outputs, stride):
    layer = block(channels=channels, outputs=outputs, stride=stride)
    assert_layer(layer, images(3, layer.input_shape))


def test_a_block_is_what_its_docstring_says():
    layer = block()
    for part in layer.main:
        part.bind(
            [0.5 + images(1, spec.shape)[0] for spec in part.tensors],
            [np.empty(s.shape) for s in part.tensors],
        )
    x = y = images(3, layer.input_shape)
    for part in layer.main:
        y = part.forward(y, True)
    wanted = np.maximum(y + x, 0)
    assert np.array_equal(layer.forward(x, True), wanted)


def test_a_block_whose_paths_do_not_fit_is_refused():
    layer = block(channels=3)
    with pytest.raises(ValueError, match="block: got .* wanted the shape of the shortcut"):
        ResidualBlock("block", layer.main, [], layer.workspace)


@pytest.mark.parametrize("n", [0, 3])
def test_gradients_of_border_and_mean(n):
    assert_layer(GlobalAveragePool("mean", (3, 4, 5), workspace()), images(n, (3, 4, 5)))
    assert_layer(Border("border", (3, 4, 2), 2, 0.5, workspace()), images(n, (3, 4, 2)))


def test_pooling_behind_a_border_ignores_it():
    """Each place looks at the pixels that there are."""
    x, space = images(2, (5, 4, 3)) - 10, workspace()
    border = Border("border", (5, 4, 3), 1, -np.inf, space)
    got = MaxPool("pool", border.output_shape, 3, 2, space).forward(border.forward(x, True), True)
    for i, j in np.ndindex(3, 2):
        window = x[:, max(0, 2 * i - 1) : 2 * i + 2, max(0, 2 * j - 1) : 2 * j + 2]
        assert np.array_equal(got[:, i, j], window.max(axis=(1, 2)))


@pytest.mark.parametrize("kernel, stride", [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_gradients_of_a_convolution_without_bias(kernel, stride):
    filters = Filters(4, kernel, stride, kernel // 2)
    layer = Convolution("conv", (7, 5, 3), filters, workspace(), bias=False)
    assert [spec.name for spec in layer.tensors] == ["conv.weight"]
    assert_layer(layer, images(3, (7, 5, 3)))


# ---- the network ----


def test_tensors_in_order_of_generation():
    """Names, order and sizes as `predict` has them, from the architecture's description alone."""
    tensors = ResNet50(1000).tensors
    assert len(tensors) == 161 and sum(spec.size for spec in tensors) == 25_557_032
    assert [(spec.name, spec.shape) for spec in tensors] == [
        (t.name, t.shape) for t in resnet50().tensors
    ]
    assert all(spec.decay == spec.name.endswith("weight") for spec in tensors)


def test_the_stride_is_in_the_3_x_3_convolution():
    """Version 1.5; in the paper's the first 1 x 1 convolution has it."""
    blocks = [
        layer for layer in ResNet50(10, 64, width=1 / 64).layers if isinstance(layer, ResidualBlock)
    ]
    strides = [(block.main[0].stride, block.main[3].stride) for block in blocks]
    assert [i for i, pair in enumerate(strides) if pair == (1, 2)] == [3, 7, 13]
    assert all(pair in ((1, 1), (1, 2)) for pair in strides)


def test_width_and_image_size():
    layers = {layer.name: layer for layer in ResNet50(10, 75, width=1 / 8).layers}
    assert layers["conv1"].output_shape == (38, 38, 8)
    assert [layers[f"conv{s}.1"].output_shape for s in (2, 3, 4, 5)] == [
        (19, 19, 32),
        (10, 10, 64),
        (5, 5, 128),
        (3, 3, 256),
    ]
    assert layers["fc"].parameters == [] and layers["fc"].inputs == 256
    assert ResNet50(2, 1, width=1e-9).layers[-1].inputs == 4


def test_the_slope_along_a_line():
    """Central differences along a random direction, which meets all 161 tensors."""
    network, gradients = small()
    flat = np.concatenate(
        [p.reshape(-1) for layer in network.layers[::-1] for p in layer.parameters]
    )
    step(network, 3)
    gradient, direction = gradients.flat.copy(), np.random.default_rng(1).standard_normal(flat.size)
    direction /= np.linalg.norm(direction)
    views = [p for layer in network.layers[::-1] for p in layer.parameters]

    def loss_at(distance):
        start = 0
        for view in views:
            stop = start + view.size
            view[...] = (flat[start:stop] + distance * direction[start:stop]).reshape(view.shape)
            start = stop
        return step(network, 3)

    slope = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6
    assert abs(slope - gradient @ direction) <= 1e-6 * np.linalg.norm(gradient)


def test_all_normalisations_have_running_statistics():
    network, _ = small()
    assert len(network.normalizations) == 53 and len(network.running) == 106
    before = [array.copy() for array in network.running]
    step(network, 2)
    assert all(np.array_equal(a, b) for a, b in zip(before, network.running))
    network.accept()
    assert not any(np.array_equal(a, b) for a, b in zip(before, network.running))


@pytest.mark.parametrize("split", [(2, 1), (None, 2)])  # images_per_block, threads
def test_blocks_and_threads_change_no_more_than_the_order_of_sums(split):
    (plain, wanted), (other, got) = small(), small(workspace(*split))
    assert step(other, 5) == pytest.approx(step(plain, 5), rel=1e-12)
    assert np.linalg.norm(got.flat - wanted.flat) <= 1e-9 * np.linalg.norm(wanted.flat)


def test_it_learns():
    """Eight images by heart, in float32."""
    network, gradients = small(workspace(dtype=np.float32))
    views = [p for layer in network.layers[::-1] for p in layer.parameters]
    losses = []
    for _ in range(30):
        losses.append(step(network, 8))
        network.accept()
        for parameter, gradient in zip(views, gradients.views):
            parameter -= 0.05 * gradient
    assert losses[-1] < 0.2 * losses[0]


def test_nonsense_is_refused():
    for options in ({"num_classes": 0}, {"image_size": 0}, {"width": 0.0}, {"channels": 0}):
        with pytest.raises(ValueError, match="ResNet50: got .* wanted all above 0"):
            ResNet50(**{"num_classes": 3, **options})
    for width in (2**63, 1e300):
        with pytest.raises(ValueError, match="ResNet50: got width=.*; wanted at most 1000000"):
            ResNet50(3, width=width)
