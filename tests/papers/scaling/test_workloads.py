"""Shapes of the networks.

Totals against published or separately computed counts, order, and flops by hand.
"""

import pytest

from refgf.papers.scaling.shapes import Builder, pooled
from refgf.papers.scaling.workloads import PUBLISHED, WORKLOADS, alexnet, googlenet, resnet50


def tiny():
    net = Builder("tiny", 5, 5, 2)
    net.conv("conv1", 4, 3)
    net.fc("fc2", 3)
    return net.workload()


@pytest.mark.parametrize(
    "network, parameters, tensors",
    [
        (alexnet(), 62_381_096, 26),
        (alexnet(normalization="none"), 62_378_344, 16),
        (alexnet(normalization="local"), 62_378_344, 16),
        (resnet50(), 25_557_032, 161),
    ],
)
def test_totals(network, parameters, tensors):
    assert (network.parameters, len(network.tensors)) == (parameters, tensors)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_totals(name):
    assert WORKLOADS[name]().parameters == PUBLISHED[name][0]


def test_only_alexnet_with_batch_normalisation_has_no_published_count():
    assert WORKLOADS.keys() - PUBLISHED.keys() == {"AlexNet"}
    assert googlenet(auxiliary=False).parameters == 6_998_552


@pytest.mark.parametrize(
    "name, convolutions, tensors",
    [
        ("ResNet-152", 155, 155 * 3 + 2),
        ("DenseNet-201", 200, 200 * 3 + 2 + 2),
        ("Inception-v4", 149, 149 * 3 + 2),
    ],
)
def test_tensor_counts(name, convolutions, tensors):
    """Each convolution has a normalisation (DenseNet one more at its end).

    And there is one product with bias.
    """
    network = WORKLOADS[name]()
    assert sum(layer.kind == "conv" for layer in network.layers) == convolutions
    assert len(network.tensors) == tensors


@pytest.mark.parametrize(
    "name, giga",
    [("VGG-16", 15.47), ("ResNet-152", 11.51), ("DenseNet-201", 4.29), ("DenseNet-161", 7.73)],
)
def test_multiplications(name, giga):
    """torchvision's documentation.

    Billions of multiply-adds in convolutions and products (rounded to 0.01).
    """
    products = [layer for layer in WORKLOADS[name]().layers if layer.kind in ("conv", "fc")]
    assert sum(layer.forward_flops for layer in products) / 2e9 == pytest.approx(giga, abs=0.012)


def test_bert_s_largest_gradient_comes_last():
    network = WORKLOADS["BERT-Large"]()
    assert network.tensors[-1].shape == (30_522, 1024)
    assert len(network.tensors) == 391
    assert network.sample == "sequence of 128 tokens"


def test_chunks_of_the_gradientflow_paper():
    """1904 chunks of which 1903 are full for AlexNet, 780 of which 779 for ResNet-50."""
    assert [-(-w.parameters // 32_768) for w in (alexnet(normalization="none"), resnet50())] == [
        1904,
        780,
    ]
    assert resnet50().parameters - 779 * 32_768 == 30_760


def test_small_tensors_of_resnet50():
    sizes = [tensor.elements for tensor in resnet50().tensors]
    assert sum(size <= 2048 for size in sizes) == 107
    small = [size for size in sizes if size < 32_768]
    assert len(small) == 115 and 0.005 < sum(small) / sum(sizes) < 0.0065


def test_order_of_generation():
    names = [tensor.name for tensor in alexnet().tensors]
    assert names[:4] == ["fc8.bias", "fc8.weight", "fc7.bias", "fc7.weight"]
    assert names[6:10] == ["norm5.beta", "norm5.gamma", "conv5.bias", "conv5.weight"]
    assert names[-4:] == ["norm1.beta", "norm1.gamma", "conv1.bias", "conv1.weight"]


def test_shapes_of_alexnet():
    shapes = {tensor.name: tensor.shape for tensor in alexnet().tensors}
    assert shapes["conv2.weight"] == (5, 5, 96, 256)
    assert shapes["fc6.weight"] == (9216, 4096)
    assert shapes["norm3.gamma"] == (384,)


def test_flops_by_hand():
    """One 3 x 3 convolution from 2 to 4 channels on 5 x 5.

    No padding, then a layer of 3 features.
    """
    conv, fc = tiny().layers
    assert conv.forward_flops == 2 * 9 * 18 * 4 + 36 and conv.input_gradient_flops == 0
    assert [t.flops for t in conv.tensors] == [36, 2 * 9 * 18 * 4]
    assert fc.forward_flops == 2 * 36 * 3 + 3 and fc.backward_flops == 4 * 36 * 3 + 3
    assert conv.forward_bytes(10, 4) == 4 * (10 * (50 + 36) + 76)
    assert fc.backward_bytes(10, 4) == 4 * (10 * (2 * 36 + 3) + 2 * 111)


def test_multiplications_of_resnet50():
    """4.089 G multiply-adds.

    As torchvision states for its version 1.5 network (verified in its documentation).
    """
    products = [layer for layer in resnet50().layers if layer.kind in ("conv", "fc")]
    assert sum(layer.forward_flops for layer in products) == 2 * 4_089_184_256 + 1000


def test_a_step_of_alexnet_is_6_6_gflop():
    net = alexnet(normalization="none")
    assert (net.forward_flops + net.backward_flops) / 1e9 == pytest.approx(6.6, abs=0.05)


def test_shares_by_hand():
    """Backward of fc2: bias 3, weight 216, input 216.

    Of conv1: bias 36, weight 1296; 1767 in all.
    """
    total = 3 + 216 + 216 + 36 + 1296
    wanted = [3 / total, 219 / total, (435 + 36) / total, 1.0]
    assert tiny().shares == pytest.approx(wanted, rel=1e-14)


def test_gradients_from_measured_layers():
    times = [seconds for seconds, _ in tiny().gradients(8.0, 1.0, layer_backward_s=[6.0, 2.0])]
    assert times == pytest.approx(
        [1 + 2 * 3 / 435, 1 + 2 * 219 / 435, 1 + 2 + 6 * 36 / 1332, 9.0], rel=1e-14
    )


@pytest.mark.parametrize("network", [build() for build in WORKLOADS.values()], ids=list(WORKLOADS))
def test_gradients_come_in_order_and_end_with_the_backward_pass(network):
    gradients = network.gradients(backward_s=2.0, forward_s=1.0, itemsize=2)
    ready = [seconds for seconds, _ in gradients]
    assert ready == sorted(ready) and ready[0] > 1.0
    assert ready[-1] == pytest.approx(3.0, rel=1e-12)
    assert sum(nbytes for _, nbytes in gradients) == 2 * network.parameters


def test_forward_order_is_not_the_order_of_generation():
    """Seeded mistake: gradients listed first layer first.

    Sizes alone would not show it; the shares do.
    """
    net = alexnet()
    assert [t.name for layer in net.layers for t in layer.tensors] != [t.name for t in net.tensors]
    # the fully connected layers are over early, though they hold 94 % of the bytes
    assert net.shares[5] < 0.15
    assert sum(t.elements for t in net.tensors[:6]) / net.parameters > 0.93


def test_width_and_image_size():
    net = alexnet(num_classes=10, image_size=67, width=1 / 8)
    assert len(net.tensors) == 26
    assert {t.name: t.shape for t in net.tensors}["fc6.weight"] == (32, 512)
    with pytest.raises(ValueError, match="got a window of 3 for 1 elements"):
        alexnet(image_size=35)


def test_pooling_with_and_without_partial_windows():
    assert pooled(55, 3, 2, 0, True) == 27
    assert pooled(112, 3, 2, 0, True) == 55 and pooled(112, 3, 2, 0, False) == 56


def test_bad_input():
    with pytest.raises(ValueError, match="'batch', 'local' or 'none'"):
        alexnet(normalization="layer")
    with pytest.raises(ValueError, match="got 2 layer times"):
        alexnet().shares_of([1.0, 2.0])
    with pytest.raises(ValueError, match="wanted more than 0 s"):
        alexnet().shares_of([0.0] * len(alexnet().layers))
