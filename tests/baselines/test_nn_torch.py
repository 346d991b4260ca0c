"""Loss and all gradients against PyTorch in float64, through tests/support/torch_layout.py."""

import numpy as np
import pytest

from refgf.engine.minimal import minimal_filtering
from refgf.engine.threaded import ThreadedWorkspace
from refgf.nn.alexnet import CONVOLUTIONS, AlexNet
from refgf.nn.conv import Convolution
from tests.support.torch_layout import from_torch, images_to_torch, state_to_torch, torch_name

torch = pytest.importorskip("torch")
nn = torch.nn


def torch_alexnet(network):
    """The same network from PyTorch's own layers."""
    layers, channels = {}, network.image_shape[2]
    kinds = {layer.name: layer for layer in network.layers}
    for number, (_, kernel, stride, padding, pooled) in enumerate(CONVOLUTIONS, start=1):
        outputs = kinds[f"conv{number}"].output_shape[2]
        layers[f"conv{number}"] = nn.Conv2d(channels, outputs, kernel, stride, padding)
        norm = type(kinds.get(f"norm{number}")).__name__
        if norm == "BatchNorm":
            layers[f"norm{number}"] = nn.BatchNorm2d(outputs)
        layers[f"relu{number}"] = nn.ReLU(inplace=True)
        if norm == "LocalResponseNorm":
            layers[f"norm{number}"] = nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)
        if pooled:
            layers[f"pool{number}"] = nn.MaxPool2d(3, 2)
        channels = outputs
    layers["flatten"] = nn.Flatten()
    for number in (6, 7, 8):
        layer = kinds[f"fc{number}"]
        layers[f"fc{number}"] = nn.Linear(layer.inputs, layer.outputs)
        if number < 8:
            layers[f"relu{number}"] = nn.ReLU(inplace=True)
            if kinds[f"dropout{number}"].probability:
                layers[f"dropout{number}"] = nn.Dropout(kinds[f"dropout{number}"].probability)
    model = nn.Sequential()
    for name, layer in layers.items():
        model.add_module(name, layer)
    return model.double()


def bound(**settings):
    network = AlexNet(**settings)
    arrays = [[np.full(spec.shape, np.nan) for spec in network.tensors] for _ in range(2)]
    network.bind(*arrays)
    network.initialize(3)
    rng = np.random.default_rng(4)
    for spec, parameter in zip(network.tensors, arrays[0]):
        if not spec.decay:  # or a bias in the wrong place would not be seen
            parameter += 0.1 * rng.standard_normal(spec.shape)
    return network


@pytest.mark.parametrize("normalization", ["batch", "local", "none"])
@pytest.mark.parametrize(
    "images,image_size,images_per_block,threads", [(5, 71, 2, 1), (3, 99, None, 2)]
)
@pytest.mark.parametrize("convolution", [Convolution, minimal_filtering])
def test_loss_and_gradients(
    normalization, images, image_size, images_per_block, threads, convolution
):
    network = bound(
        num_classes=7,
        image_size=image_size,
        width=1 / 16,
        normalization=normalization,
        dropout=0.0,
        workspace=ThreadedWorkspace(threads, np.float64, images_per_block),
        convolution=convolution,
    )
    rng = np.random.default_rng(5)
    x = rng.standard_normal((images, image_size, image_size, 3))
    labels = rng.integers(0, 7, images)
    loss = network.loss(x, labels, images)
    network.backward(lambda i: None)
    network.accept()

    model = torch_alexnet(network)
    arrays = state_to_torch(network).items()
    state = {name: torch.tensor(np.ascontiguousarray(array)) for name, array in arrays}
    assert not model.load_state_dict(state, strict=False).unexpected_keys
    images = torch.tensor(images_to_torch(x))
    expected = nn.functional.cross_entropy(model(images), torch.tensor(labels))
    expected.backward()
    assert abs(loss - expected.item()) <= 1e-10 * abs(expected.item())

    theirs = dict(model.named_parameters())
    compared = 0
    for layer in network.layers:
        grads = [theirs[torch_name(spec)].grad.numpy() for spec in layer.tensors]
        wanted = [from_torch(layer, grad) for grad in grads]
        scale = max([np.linalg.norm(w) for w in wanted], default=0)
        for got, want in zip(layer.gradients, wanted):
            allowed = 1e-10 * max(np.linalg.norm(want), scale)
            assert np.linalg.norm(got - want) <= allowed, layer.name
            compared += 1
    assert compared == {"batch": 26, "local": 16, "none": 16}[normalization]

    buffers = dict(model.named_buffers())
    for layer in network.normalizations:
        mean, variance = (buffers[f"{layer.name}.running_{name}"] for name in ("mean", "var"))
        np.testing.assert_allclose(layer.running_mean, mean, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(layer.running_variance, variance, rtol=1e-10)
    with torch.no_grad():
        want = model.eval()(images).numpy()
    got = network.predict(x)
    assert np.linalg.norm(got - want) <= 1e-10 * np.linalg.norm(want)
