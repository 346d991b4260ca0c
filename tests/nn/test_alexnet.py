import numpy as np
import pytest
from networks import batch, bound, small

from refgf.nn.alexnet import AlexNet

SIZES = {"batch": (26, 62_381_096), "local": (16, 62_378_344), "none": (16, 62_378_344)}


# ---- shape ----


@pytest.mark.parametrize("normalization", SIZES)
def test_tensors_and_parameters(normalization):
    network = AlexNet(1000, normalization=normalization)
    assert (len(network.tensors), sum(spec.size for spec in network.tensors)) == SIZES[normalization]
    assert len({spec.name for spec in network.tensors}) == len(network.tensors)


def test_order_of_generation():
    names = [spec.name for spec in AlexNet(10, 67).tensors]
    assert names[:6] == ["fc8.bias", "fc8.weight", "fc7.bias", "fc7.weight", "fc6.bias", "fc6.weight"]
    convolutions = [[f"norm{n}.beta", f"norm{n}.gamma", f"conv{n}.bias", f"conv{n}.weight"] for n in (5, 4, 3, 2, 1)]
    assert names[6:] == sum(convolutions, [])
    assert all(spec.decay == spec.name.endswith("weight") for spec in AlexNet(10, 67).tensors)


def test_layers():
    names = {kind: [layer.name for layer in AlexNet(10, normalization=kind).layers] for kind in SIZES}
    assert names["batch"][:5] == ["conv1", "norm1", "relu1", "pool1", "conv2"]
    assert names["local"][:5] == ["conv1", "relu1", "norm1", "pool1", "conv2"] and "norm3" not in names["local"]
    assert names["none"][:4] == ["conv1", "relu1", "pool1", "conv2"]
    assert names["none"][-7:] == ["fc6", "relu6", "dropout6", "fc7", "relu7", "dropout7", "fc8"]


@pytest.mark.parametrize("image_size,pixels", [(67, 1), (98, 1), (99, 2), (227, 6)])
def test_pixels_before_fc6(image_size, pixels):
    layers = {layer.name: layer for layer in AlexNet(10, image_size).layers}
    assert layers["pool5"].output_shape == (pixels, pixels, 256)


def test_flops():
    """2.27 GFLOP forward and 6.6 forward and backward for an image: 1135 and 3299 million multiply-adds."""
    flops = [layer.flops(1) for layer in AlexNet(1000, normalization="none").layers if layer.tensors]
    forward, backward = (sum(column) for column in zip(*flops))
    assert forward == 2 * 1_135_256_096
    assert backward == 2 * forward - flops[0][0]  # conv1 needs no input gradient


@pytest.mark.parametrize("width", [1, 1 / 8, 0.3, 1e-9])
def test_width(width):
    layers = {layer.name: layer for layer in AlexNet(10, 67, width=width).layers}
    assert layers["conv2"].output_shape[2] == max(1, round(256 * width))
    assert layers["fc7"].output_shape == (max(1, round(4096 * width)),)
    assert layers["fc8"].output_shape == (10,)


# ---- state ----


def test_initialize_is_the_same_for_every_type_and_rank():
    _, wide, _ = small()
    _, again, _ = small()
    _, narrow, _ = small(dtype=np.float32)
    for a, b, c in zip(wide, again, narrow):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    network = AlexNet(7, 71, width=1 / 64, dtype=np.float64)
    parameters, _ = bound(network, seed=4)
    assert any((a != b).any() for a, b in zip(parameters, wide))


def test_initial_weights_have_the_variance_of_he():
    network = AlexNet(50, 67, width=1 / 4)
    parameters, _ = bound(network)
    for spec, parameter in zip(network.tensors, parameters):
        if spec.decay and spec.size > 10000:
            inputs = spec.size // spec.shape[-1]
            spread = 5 * (2 / spec.size) ** 0.5  # five standard deviations of a sample variance
            assert abs(parameter.var() * inputs / 2 - 1) < spread, spec.name


def assert_running_statistics_wait_for_accept(network):
    assert len(network.running) == 10
    before = [array.copy() for array in network.running]
    network.loss(*batch(network, 3), 3)
    network.backward(lambda i: None)
    assert all((a == b).all() for a, b in zip(network.running, before))
    network.accept()
    assert all((a != b).any() for a, b in zip(network.running, before))
    before = [array.copy() for array in network.running]
    network.loss(*batch(network, 0), 3)
    network.backward(lambda i: None)
    network.accept()
    assert all((a == b).all() for a, b in zip(network.running, before))
    network.running[0][...] = 5  # averaging over ranks works in place
    assert (network.normalizations[0].running_mean == 5).all()


def test_running_statistics_wait_for_accept():
    assert_running_statistics_wait_for_accept(small()[0])


def test_folding_statistics_in_at_once_goes_red():
    network, *_ = small()
    for layer in network.normalizations:

        def wrong(x, training, layer=layer, forward=layer.forward):
            y = forward(x, training)
            layer.accept()
            return y

        layer.forward = wrong
    with pytest.raises(AssertionError):
        assert_running_statistics_wait_for_accept(network)


def test_predict_has_no_dropout_and_depends_on_no_other_image():
    network, *_ = small(dropout=0.5)
    x, _ = batch(network, 5)
    logits = network.predict(x)
    assert logits.shape == (5, 7)
    np.testing.assert_allclose(network.predict(x[2:3]), logits[2:3], rtol=0, atol=1e-12 * np.abs(logits).max())
    assert network.predict(x[:0]).shape == (0, 7)


def test_dropout_rng_decides_the_masks():
    network, *_ = small("none", dropout=0.5)
    losses = []
    for seed in (1, 1, 2):
        network.dropout_rng = np.random.default_rng(seed)
        losses.append(network.loss(*batch(network, 5), 5))
    assert losses[0] == losses[1] != losses[2]


# ---- bad input ----


@pytest.mark.parametrize("settings", [dict(num_classes=0), dict(image_size=66), dict(width=0), dict(width=float("nan")),
                                      dict(normalization="layer"), dict(dropout=1.0), dict(channels=0)])  # fmt: skip
def test_settings(settings):
    with pytest.raises(ValueError, match="got"):
        AlexNet(**{"num_classes": 10, "image_size": 67, "width": 1 / 64, **settings})


def test_bind_says_which_array_is_wrong():
    network, parameters, gradients = small()
    with pytest.raises(ValueError, match="gradients: got 25 arrays, wanted 26"):
        network.bind(parameters, gradients[:-1])
    with pytest.raises(ValueError, match="fc8.bias"):
        network.bind(parameters[::-1], gradients)
    with pytest.raises(ValueError, match="float32.*fc8.bias"):
        network.bind(parameters, [gradient.astype(np.float32) for gradient in gradients])
    with pytest.raises(ValueError, match="contiguous"):
        network.bind(parameters, [np.asfortranarray(gradient) for gradient in gradients])


def test_use_before_bind_and_backward_without_loss():
    network = AlexNet(7, 71, width=1 / 64)
    for call in (lambda: network.initialize(1), lambda: network.predict(batch(network, 1)[0])):
        with pytest.raises(ValueError, match="bind"):
            call()
    network, *_ = small()
    with pytest.raises(ValueError, match="no loss"):
        network.backward(lambda i: None)
    network.loss(*batch(network, 2), 2)
    network.backward(lambda i: None)
    with pytest.raises(ValueError, match="no loss"):
        network.backward(lambda i: None)


def test_images_and_labels():
    network, *_ = small()
    x, labels = batch(network, 3)
    wrong_images = [(x[:, :-1], labels, 3), (x[..., 0], labels, 3)]
    wrong_labels = [(x, labels[:2], 3), (x, labels + 7, 3), (x, labels - 7, 3), (x, labels.astype(float), 3)]
    wrong_batch = [(x, labels, 2), (x[:0], labels[:0], 0)]
    for arguments in wrong_images + wrong_labels + wrong_batch:
        with pytest.raises(ValueError, match="AlexNet.*got"):
            network.loss(*arguments)
