"""AlexNet (Krizhevsky et al. 2012): 62,378,344 parameters at 227 x 227 pixels and 1000 classes.

    conv1 11x11/4, 96 - pool1 3x3/2 - conv2 5x5, 256 - pool2
    conv3 3x3, 384 - conv4 3x3, 384 - conv5 3x3, 256 - pool5
    fc6 4096 - dropout - fc7 4096 - dropout - fc8 num_classes

    normalization="batch"  conv - batch normalisation - ReLU - pool, conv1 to 5: 26 tensors,
                           62,381,096 parameters
                  "local"  conv - ReLU - local response normalisation - pool, for conv1 and 2
                           (the paper): 16 tensors
                  "none"   conv - ReLU - pool: 16 tensors

Dropout follows the ReLU of fc6 and of fc7, as in the paper. Two deviations: convolutions are not
grouped (groups served two GPUs), and initial weights are He et al.'s (2015), which train at any
width.
"""

from collections.abc import Callable

from refgf.nn.conv import Convolution, Filters
from refgf.nn.layers import Dropout, FullyConnected, ReLU
from refgf.nn.local_response import LocalResponseNorm
from refgf.nn.network import Network
from refgf.nn.normalization import BatchNorm
from refgf.nn.pooling import MaxPool
from refgf.nn.workspace import Workspace

CONVOLUTIONS = [  # channels, kernel, stride, padding, pooling after it
    (96, 11, 4, 0, True),
    (256, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, True),
]
HIDDEN_UNITS = [4096, 4096]
SMALLEST_IMAGE = 67  # leaves 1 x 1 pixels before fc6


class AlexNet(Network):
    """AlexNet for images (image_size, image_size, channels); width: factor on channels and units.

    workspace: array library and dtype. convolution: called as Convolution is, and makes one;
    `refgf.engine.minimal.minimal_filtering` has fewer products and larger rounding errors.
    """

    def __init__(
        self,
        num_classes: int,
        image_size: int = 227,
        width: float = 1.0,
        normalization: str = "batch",
        dropout: float = 0.5,
        channels: int = 3,
        workspace: Workspace | None = None,
        convolution: Callable[..., Convolution] = Convolution,
    ):
        super().__init__(num_classes, (image_size, image_size, channels), width, workspace)
        if image_size < SMALLEST_IMAGE or normalization not in ("batch", "local", "none"):
            got = f'got image_size {image_size}, normalization "{normalization}"'
            wanted = f'wanted {SMALLEST_IMAGE} or more, "batch", "local" or "none"'
            raise ValueError(f"AlexNet: {got}; {wanted}; next: enlarge the images")
        for number, (outputs, *geometry, pooled) in enumerate(CONVOLUTIONS, start=1):
            filters = Filters(self.scaled(outputs), *geometry)
            self.add(convolution, f"conv{number}", filters, input_gradient=number > 1)
            if normalization == "batch":
                self.add(BatchNorm, f"norm{number}")
            self.add(ReLU, f"relu{number}")
            if normalization == "local" and number <= 2:
                self.add(LocalResponseNorm, f"norm{number}")
            if pooled:
                self.add(MaxPool, f"pool{number}", 3, 2)
        for number, units in enumerate(HIDDEN_UNITS, start=6):
            self.add(FullyConnected, f"fc{number}", self.scaled(units))
            self.add(ReLU, f"relu{number}")
            self.add(Dropout, f"dropout{number}", dropout, rng=lambda: self.dropout_rng)
        self.add(FullyConnected, "fc8", num_classes)
