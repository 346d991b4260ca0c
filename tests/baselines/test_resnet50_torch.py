"""ResNet-50's loss and its 161 gradients against a network of PyTorch's own layers, in float64."""

import numpy as np
import pytest

from refgf.engine.threaded import ThreadedWorkspace
from refgf.papers.resnet50.resnet50 import BLOCKS, ResNet50
from tests.support.torch_layout import from_torch, images_to_torch, to_torch

torch = pytest.importorskip("torch")
nn = torch.nn


def conv_norm(inputs, outputs, kernel, stride):
    """A convolution that keeps the size at stride 1, and its normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Bottleneck(nn.Module):
    """He et al.'s block, version 1.5; with this project's names, to look up tensors."""

    def __init__(self, inputs, filters, stride):
        super().__init__()
        self.a, self.b = conv_norm(inputs, filters, 1, 1), conv_norm(filters, filters, 3, stride)
        self.c = conv_norm(filters, 4 * filters, 1, 1)
        projects = stride > 1 or inputs != 4 * filters
        self.shortcut = conv_norm(inputs, 4 * filters, 1, stride) if projects else None

    def forward(self, x):
        y = self.c(torch.relu(self.b(torch.relu(self.a(x)))))
        return torch.relu(y + (self.shortcut(x) if self.shortcut else x))


class TorchResNet50(nn.Module):
    def __init__(self, num_classes, filters):
        super().__init__()
        self.conv1 = conv_norm(3, filters[0], 7, 2)
        inputs = filters[0]
        self.blocks = nn.ModuleDict()
        for stage, count in enumerate(BLOCKS):
            for number in range(count):
                block = Bottleneck(inputs, filters[stage], 2 if stage > 0 and number == 0 else 1)
                self.blocks[f"conv{stage + 2}_{number + 1}"] = block
                inputs = 4 * filters[stage]
        self.fc = nn.Linear(inputs, num_classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 3, 2, 1)
        for block in self.blocks.values():
            x = block(x)
        return self.fc(x.mean((2, 3)))


def place(name):
    """A tensor's name in PyTorch's network: "norm2.1.a.beta" -> "blocks.conv2_1.a.1.bias"."""
    layer, tensor = name.rsplit(".", 1)
    tensor = {"gamma": "weight", "beta": "bias"}.get(tensor, tensor)
    if layer == "fc":
        return f"fc.{tensor}"
    kind, stage, *block = layer[:4], layer[4], *layer.split(".")[1:]
    in_row = int(kind == "norm")
    row = f"blocks.conv{stage}_{block[0]}.{block[1]}" if block else "conv1"
    return f"{row}.{in_row}.{tensor}"


def bound(**settings):
    network = ResNet50(**settings)
    parameters, gradients = (
        [np.full(spec.shape, np.nan) for spec in network.tensors] for _ in range(2)
    )
    network.bind(parameters, gradients)
    network.initialize(3)
    random = np.random.default_rng(4)
    for spec, parameter in zip(network.tensors, parameters):
        if not spec.decay:  # or a gamma in the wrong place would not be seen
            parameter += 0.1 * random.standard_normal(spec.shape)
    return network


CASES = [  # images, image size, width, images per block, threads
    (4, 64, 1 / 16, None, 1),
    (5, 75, 1 / 8, 2, 2),
    (3, 33, 1 / 16, 1, 1),
]


@pytest.mark.parametrize("images, image_size, width, images_per_block, threads", CASES)
def test_loss_and_all_161_gradients(images, image_size, width, images_per_block, threads):
    """Within 1e-9 of each layer's gradient."""
    space = ThreadedWorkspace(threads, np.float64, images_per_block)
    network = bound(num_classes=7, image_size=image_size, width=width, workspace=space)
    layers = {layer.name: layer for outer in network.layers for layer in outer.sublayers()}
    random = np.random.default_rng(5)
    x = random.standard_normal((images, image_size, image_size, 3))
    labels = random.integers(0, 7, images)
    loss = network.loss(x, labels, images)
    announced = []
    network.backward(announced.append)
    network.accept()
    assert announced == list(range(161))

    filters = [layers[f"conv{stage}.1.a"].output_shape[2] for stage in (2, 3, 4, 5)]
    model = TorchResNet50(7, filters).double()
    theirs = dict(model.named_parameters())
    assert len(theirs) == 161
    bound_tensors = {
        spec.name: (layer, array, gradient)
        for layer in layers.values()
        for spec, array, gradient in zip(layer.tensors, layer.parameters, layer.gradients)
    }
    with torch.no_grad():
        for name, (layer, array, _) in bound_tensors.items():
            theirs[place(name)].copy_(torch.tensor(np.ascontiguousarray(to_torch(layer, array))))
    images = torch.tensor(images_to_torch(x))
    expected = nn.functional.cross_entropy(model(images), torch.tensor(labels))
    expected.backward()
    assert abs(loss - expected.item()) <= 1e-9 * abs(expected.item())
    for name, (layer, _, gradient) in bound_tensors.items():
        wanted = from_torch(layer, theirs[place(name)].grad.numpy())
        assert np.linalg.norm(gradient - wanted) <= 1e-9 * np.linalg.norm(wanted), name

    with torch.no_grad():
        wanted = model.eval()(images).numpy()
    assert np.linalg.norm(network.predict(x) - wanted) <= 1e-9 * np.linalg.norm(wanted)
