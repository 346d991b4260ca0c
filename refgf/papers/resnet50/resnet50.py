"""ResNet-50 (He et al. 2015): 25,557,032 parameters in 161 tensors at 1000 classes.

    conv1 7x7/2, 64 - norm - ReLU - pool1 3x3/2
    3, 4, 6, 3 blocks of 64, 128, 256, 512 channels - mean - fc

    block   a 1x1, c - norm - ReLU - b 3x3, c - norm - ReLU - c 1x1, 4c - norm - + - ReLU
            |________ x itself; in the first block of a stage 1x1, 4c - norm ______|

The first block of stages 2 to 4 halves height and width, in its 3x3 convolution (version 1.5) and
in its shortcut. No convolution has a bias, because the normalisation after it would cancel it. In
backward a block's shortcut follows its main path, so its three tensors are generated last.

Initial weights are as in AlexNet (He et al., fan-in), for the last layer too.
"""

from collections.abc import Callable

import numpy as np

from refgf.arguments import checked, require
from refgf.nn.conv import Convolution, Filters
from refgf.nn.layers import FullyConnected, Layer, ReLU
from refgf.nn.network import Network
from refgf.nn.normalization import BatchNorm
from refgf.nn.pooling import MaxPool
from refgf.nn.workspace import Workspace
from refgf.papers.resnet50.residual import Border, GlobalAveragePool, ResidualBlock

BLOCKS = [3, 4, 6, 3]
STEM_CHANNELS = 64
EXPANSION = 4
WIDEST = 10**6  # a layer wider than NumPy can count has no array to be refused by


@checked
class ResNet50(Network):
    """ResNet-50 for images (image_size, image_size, channels); width: factor on all channels.

    `layers` has one entry per block; a block's tensors are announced one by one. The other
    arguments are AlexNet's.
    """

    def __init__(
        self,
        num_classes: int,
        image_size: int = 224,
        width: float = 1.0,
        channels: int = 3,
        workspace: Workspace | None = None,
        convolution: Callable[..., Convolution] = Convolution,
    ):
        require(width <= WIDEST, "ResNet50", f"width={width}", f"at most {WIDEST}", "width=1.0")
        super().__init__(num_classes, (image_size, image_size, channels), width, workspace)
        self.convolution = convolution
        stem = Filters(self.scaled(STEM_CHANNELS), 7, stride=2, padding=3)
        self.add(Convolution, "conv1", stem, bias=False, input_gradient=False)
        self.add(BatchNorm, "norm1")
        self.add(ReLU, "relu1")
        self.add(Border, "border1", 1, -np.inf)
        self.add(MaxPool, "pool1", 3, 2)
        for stage, count in enumerate(BLOCKS):
            filters = self.scaled(STEM_CHANNELS * 2**stage)
            for number in range(count):
                stride = 2 if stage and not number else 1
                self.add_block(f"conv{stage + 2}.{number + 1}", filters, stride)
        self.add(GlobalAveragePool, "pool5")
        self.add(FullyConnected, "fc", num_classes)

    def add_block(self, name: str, channels: int, stride: int) -> None:
        """A bottleneck block; its shortcut has a convolution where shapes differ."""
        shape = self.layers[-1].output_shape
        last = Filters(EXPANSION * channels, 1)
        middle = Filters(channels, 3, stride, padding=1)
        main = self.row(shape, {"a": Filters(channels, 1), "b": middle, "c": last}, name)
        shortcut = []
        if stride > 1 or shape[2] != last.outputs:
            shortcut = self.row(shape, {"shortcut": Filters(last.outputs, 1, stride)}, name)
        self.layers.append(ResidualBlock(name, main, shortcut, self.workspace))

    def row(self, shape: tuple, convolutions: dict[str, Filters], block: str) -> list[Layer]:
        """Convolutions of a block, each with its normalisation, and ReLU between them."""
        layers: list[Layer] = []
        for letter, filters in convolutions.items():
            name = f"{block}.{letter}"
            if layers:
                layers.append(ReLU(f"{name}.relu", shape, self.workspace))
            layers.append(self.convolution(name, shape, filters, self.workspace, bias=False))
            shape = layers[-1].output_shape
            layers.append(BatchNorm(name.replace("conv", "norm"), shape, self.workspace))
        return layers
