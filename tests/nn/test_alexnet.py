import pytest

from refgf.nn.alexnet import AlexNet

SIZES = {"batch": (26, 62_381_096), "local": (16, 62_378_344), "none": (16, 62_378_344)}


@pytest.mark.parametrize("normalization", SIZES)
def test_tensors_and_parameters(normalization):
    network = AlexNet(1000, normalization=normalization)
    assert (len(network.tensors), sum(spec.size for spec in network.tensors)) == SIZES[
        normalization
    ]
    assert len({spec.name for spec in network.tensors}) == len(network.tensors)


def test_order_of_generation():
    names = [spec.name for spec in AlexNet(10, 67).tensors]
    assert names[:6] == [
        "fc8.bias",
        "fc8.weight",
        "fc7.bias",
        "fc7.weight",
        "fc6.bias",
        "fc6.weight",
    ]
    convolutions = [
        [f"norm{n}.beta", f"norm{n}.gamma", f"conv{n}.bias", f"conv{n}.weight"]
        for n in (5, 4, 3, 2, 1)
    ]
    assert names[6:] == sum(convolutions, [])
    assert all(spec.decay == spec.name.endswith("weight") for spec in AlexNet(10, 67).tensors)


def test_layers():
    names = {
        kind: [layer.name for layer in AlexNet(10, normalization=kind).layers] for kind in SIZES
    }
    assert names["batch"][:5] == ["conv1", "norm1", "relu1", "pool1", "conv2"]
    assert (
        names["local"][:5] == ["conv1", "relu1", "norm1", "pool1", "conv2"]
        and "norm3" not in names["local"]
    )
    assert names["none"][:4] == ["conv1", "relu1", "pool1", "conv2"]
    assert names["none"][-7:] == ["fc6", "relu6", "dropout6", "fc7", "relu7", "dropout7", "fc8"]


@pytest.mark.parametrize("image_size,pixels", [(67, 1), (98, 1), (99, 2), (227, 6)])
def test_pixels_before_fc6(image_size, pixels):
    layers = {layer.name: layer for layer in AlexNet(10, image_size).layers}
    assert layers["pool5"].output_shape == (pixels, pixels, 256)


def test_flops():
    """2.27 GFLOP forward and 6.6 in all for an image: 1135 and 3299 million multiply-adds."""
    flops = [
        layer.flops(1) for layer in AlexNet(1000, normalization="none").layers if layer.tensors
    ]
    forward, backward = (sum(column) for column in zip(*flops))
    assert forward == 2 * 1_135_256_096
    assert backward == 2 * forward - flops[0][0]  # conv1 needs no input gradient


@pytest.mark.parametrize("width", [1, 1 / 8, 0.3, 1e-9])
def test_width(width):
    layers = {layer.name: layer for layer in AlexNet(10, 67, width=width).layers}
    assert layers["conv2"].output_shape[2] == max(1, round(256 * width))
    assert layers["fc7"].output_shape == (max(1, round(4096 * width)),)
    assert layers["fc8"].output_shape == (10,)


@pytest.mark.parametrize(
    "settings",
    [
        dict(num_classes=0),
        dict(image_size=66),
        dict(width=0),
        dict(width=float("nan")),
        dict(normalization="layer"),
        dict(dropout=1.0),
        dict(channels=0),
    ],
)
def test_settings(settings):
    with pytest.raises(ValueError, match="got"):
        AlexNet(**{"num_classes": 10, "image_size": 67, "width": 1 / 64, **settings})
