"""ResNet-50 (He et al. 2015): 25,557,032 parameters in 161 tensors at 1000 classes, most of them small.

    conv1 7x7/2, 64 - norm - ReLU - pool1 3x3/2 - 3, 4, 6, 3 blocks of 64, 128, 256, 512 channels - mean - fc

    block   a 1x1, c - norm - ReLU - b 3x3, c - norm - ReLU - c 1x1, 4c - norm - + - ReLU
            |________ x itself; in the first block of a stage 1x1, 4c - norm ______|

The first block of stages 2 to 4 halves height and width, in its 3x3 convolution (version 1.5) and in its shortcut. No
convolution has a bias: the normalisation after it would take it away. In backward a block's shortcut comes after its
main path, so its three tensors are generated last.

Initial weights as in AlexNet here (He et al., fan-in); the weight of the last layer too.
"""

import numpy as np

from refgf.engine.minimal import kind_of_convolution
from refgf.nn.alexnet import AlexNet, scaled
from refgf.nn.conv import Convolution
from refgf.nn.layers import FullyConnected, ReLU
from refgf.nn.normalization import BatchNorm
from refgf.nn.pooling import MaxPool
from refgf.nn.workspace import Workspace
from refgf.papers.resnet50.residual import Border, GlobalAveragePool, Residual

BLOCKS = [3, 4, 6, 3]
STEM_CHANNELS = 64
EXPANSION = 4


class ResNet50(AlexNet):
    """Used like AlexNet: bind, initialize, then loss, backward, accept in each step; `tensors`, `layers`, `running`.

    image_size: height and width, any; width: factor on all channels; the other arguments as in AlexNet. `layers` has one
    entry per block; a block's tensors are announced one by one.
    """

    def __init__(self, num_classes, image_size=224, width=1.0, channels=3, dtype=np.float32, xp=np,
                 images_per_block=None, threads=1, minimal_filtering=False):  # fmt: skip
        check_settings(num_classes, image_size, width, channels)
        self.num_classes, self.image_shape = num_classes, (image_size, image_size, channels)
        self.workspace = Workspace(xp, dtype, threads, images_per_block)
        self.dtype, self.xp, self.minimal_filtering = self.workspace.dtype, xp, minimal_filtering
        self.layers = []
        self.add(Convolution, "conv1", scaled(STEM_CHANNELS, width), 7, stride=2, padding=3, bias=False,
                 input_gradient=False)  # fmt: skip
        self.add(BatchNorm, "norm1")
        self.add(ReLU, "relu1")
        self.add(Border, "border1", 1, -np.inf)
        self.add(MaxPool, "pool1", 3, 2)
        for stage, count in enumerate(BLOCKS):
            for number in range(count):
                stride = 2 if stage and not number else 1
                self.add_block(f"conv{stage + 2}.{number + 1}", scaled(STEM_CHANNELS * 2**stage, width), stride)
        self.add(GlobalAveragePool, "pool5")
        self.add(FullyConnected, "fc", num_classes)
        self.tensors = [spec for layer in self.layers[::-1] for spec in layer.tensors]  # the order of generation
        inner = [part for layer in self.layers for part in parts(layer)]
        self.normalizations = [layer for layer in inner if isinstance(layer, BatchNorm)]
        self.logits_gradient = None
        self.bound = False

    def add_block(self, name, filters, stride):
        """A bottleneck block; its shortcut has a convolution where shapes differ."""
        before = self.layers[-1].output_shape
        outputs = EXPANSION * filters
        main = self.row(before, (f"{name}.a", filters, 1, 1, 0), (f"{name}.b", filters, 3, stride, 1),
                        (f"{name}.c", outputs, 1, 1, 0))  # fmt: skip
        projected = stride > 1 or before[2] != outputs
        shortcut = self.row(before, (f"{name}.shortcut", outputs, 1, stride, 0)) if projected else []
        self.layers.append(Residual(name, main, shortcut, self.workspace))

    def row(self, input_shape, *convolutions):
        """Convolutions (name, outputs, kernel, stride, padding) with their normalisations, and ReLU between them."""
        layers = []
        for name, outputs, kernel, stride, padding in convolutions:
            if layers:
                layers.append(ReLU(f"{name}.relu", input_shape, self.workspace))
            options = {"stride": stride, "padding": padding, "bias": False}
            kind = kind_of_convolution(kernel, stride, self.minimal_filtering)
            layers.append(kind(name, input_shape, outputs, kernel, self.workspace, **options))
            input_shape = layers[-1].output_shape
            layers.append(BatchNorm(name.replace("conv", "norm"), input_shape, self.workspace))
        return layers


def parts(layer):
    """The layers inside a block in the order of forward, or the layer itself."""
    return layer.main + layer.shortcut if isinstance(layer, Residual) else [layer]


def check_settings(num_classes, image_size, width, channels):
    if min(num_classes, image_size, channels) < 1 or not width > 0:
        got = f"{num_classes} classes, image_size {image_size}, {channels} channels, width {width}"
        raise ValueError(f"ResNet50: got {got}; wanted all above 0")
