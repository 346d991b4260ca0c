"""A network's forward and backward on a GPU: this project against PyTorch.

    python tests/gpu/speed_networks.py --network alexnet --precision float32 [results.json]

AlexNet takes 128 images of 227 x 227, ResNet-50 32 of 224 x 224. Precisions: float32; tf32, which
is float32 whose products the GPU may round to TF32; float16, with float16 weights too. Both sides
have the same precision. Sides take turns, and a step ends when the GPU has finished it. PyTorch
runs channels last and tries cuDNN's algorithms before. No dropout and no optimiser on either side.
One precision a process, because CuPy reads CUPY_TF32 once.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import refgf.engine  # noqa: F401  the CUDA kernels
from refgf import device
from refgf.exchange.pool import Pool
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.resnet50.resnet50 import BLOCKS, STEM_CHANNELS, ResNet50
from tests.gpu.measure import TURNS, alternate, judge, over, save

CLASSES = 1000
PRECISIONS = {"float32": "float32", "tf32": "float32", "float16": "float16"}  # and their types


@dataclass(frozen=True)
class Case:
    """A network, its images, and what it has to reach of PyTorch's images per second."""

    title: str
    network: type
    batch: int
    image_size: int
    width: float = 1.0
    options: dict = field(default_factory=dict)
    bars: dict = field(default_factory=dict)

    def new(self, workspace: Workspace | None = None):
        sizes = CLASSES, self.image_size, self.width
        return self.network(*sizes, workspace=workspace, **self.options)


ALEXNET_BARS = {"float32": 0.8, "tf32": 0.8, "float16": 0.6}
CASES = {
    "alexnet": Case("AlexNet", AlexNet, 128, 227, options={"dropout": 0.0}, bars=ALEXNET_BARS),
    "resnet50": Case("ResNet-50", ResNet50, 32, 224),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--network", choices=CASES, required=True)
    parser.add_argument("--precision", choices=PRECISIONS, required=True)
    parser.add_argument("results", nargs="?")
    options = parser.parse_args(arguments)
    os.environ["CUPY_TF32"] = str(int(options.precision == "tf32"))
    save(measure(CASES[options.network], options.precision), options.results)


def measure(case: Case, precision: str, where: str = "cuda", turns: int = TURNS) -> list[dict]:
    """The row of ratios; prints both sides' rates. where: PyTorch's device."""
    sides = {"refgf": our_step(case, precision), "PyTorch": torch_step(case, precision, where)}
    seconds = alternate(sides, turns)
    for name, times_s in seconds.items():
        print(f"{case.title}, {precision}: {name} {case.batch / statistics.median(times_s):.0f} /s")
    name = f"{case.title}, {precision}: images per second, refgf over PyTorch"
    ratios, limit = over(seconds["PyTorch"], seconds["refgf"]), case.bars.get(precision)
    return [judge.bar(name, ratios, limit, least=True) if limit else judge.ratio(name, ratios)]


def our_step(case: Case, precision: str) -> Callable[[], None]:
    xp = device.module("gpu")
    network = case.new(Workspace(xp, PRECISIONS[precision]))
    pools = [Pool(network.tensors, network.dtype, xp.zeros) for _ in range(2)]
    network.bind(*(pool.views for pool in pools))
    network.initialize(0)
    random = np.random.default_rng(0)
    images = random.standard_normal((case.batch, *network.image_shape), np.float32)
    images = xp.asarray(images, network.dtype)
    labels = np.arange(case.batch) % CLASSES

    def step() -> None:
        network.loss(images, labels, case.batch)
        network.backward(lambda i: None)
        network.accept()
        device.synchronize(pools[1].flat)

    return step


def torch_step(case: Case, precision: str, where: str) -> Callable[[], None]:
    import torch

    # for products and for convolutions, whose default is to allow it
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    kind, memory = getattr(torch, PRECISIONS[precision]), {"memory_format": torch.channels_last}
    model = torch_network(case.new()).to(where, kind).to(**memory)
    images = torch.randn(case.batch, 3, case.image_size, case.image_size, device=where, dtype=kind)
    images = images.to(**memory)
    labels = torch.arange(case.batch, device=where) % CLASSES

    def step() -> None:
        model.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        if where == "cuda":
            torch.cuda.synchronize()

    return step


def torch_network(network):
    """The same network from PyTorch's own layers."""
    if isinstance(network, AlexNet):
        from tests.baselines.test_nn_torch import torch_alexnet

        return torch_alexnet(network)
    from tests.baselines.test_resnet50_torch import TorchResNet50

    filters = [network.scaled(STEM_CHANNELS * 2**stage) for stage in range(len(BLOCKS))]
    return TorchResNet50(CLASSES, filters)


if __name__ == "__main__":
    main()
