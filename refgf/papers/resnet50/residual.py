"""The layers that a residual network (He et al. 2015) adds to convolution and normalisation."""

import math

from refgf.arguments import checked, require
from refgf.nn.layers import Layer, Ready, ReLU, backward_layers, bind_layers
from refgf.nn.workspace import Array, Workspace


def require_image_shape(name: str, shape: tuple[int, ...]) -> None:
    right = len(shape) == 3 and min(shape) > 0
    require(right, name, f"input_shape={shape}", "(H, W, C), each above 0", "(224, 224, 3)")


@checked
class ResidualBlock(Layer):
    """y = ReLU(main(x) + shortcut(x)); main and shortcut are lists of layers; [] is x itself.

    The order of generation is that of backward: main's layers, last first, then the shortcut's,
    last first. The last layer of each list must not need its own output in backward (a batch
    normalisation does not).
    """

    def __init__(self, name: str, main: list[Layer], shortcut: list[Layer], workspace: Workspace):
        require(bool(main), f"ResidualBlock {name}", "main=[]", "a layer or more", "[layer]")
        inner = [*main, *shortcut]
        forward, backward = (sum(layer.operations[i] for layer in inner) for i in range(2))
        output_shape = main[-1].output_shape
        elements = math.prod(output_shape)
        operations = (forward + 2 * elements, backward + 2 * elements)
        super().__init__(name, main[0].input_shape, output_shape, workspace, operations)
        self.main, self.shortcut = list(main), list(shortcut)
        self.backward_order = self.main[::-1] + self.shortcut[::-1]
        self.tensors = [spec for layer in self.backward_order for spec in layer.tensors]
        self.relu = ReLU(f"{name}.relu", output_shape, workspace)
        shape = shortcut[-1].output_shape if shortcut else self.input_shape
        if output_shape != shape:
            got = (
                f"got {output_shape} from the main path; wanted the shape of the shortcut, {shape}"
            )
            next_step = "next: a shortcut with a 1 x 1 convolution of the same channels and stride"
            raise ValueError(f"{name}: {got}; {next_step}")

    def sublayers(self) -> list[Layer]:
        return self.main + self.shortcut

    def bind(self, parameters: list[Array], gradients: list[Array]) -> None:
        super().bind(parameters, gradients)
        bind_layers(self.backward_order[::-1], parameters, gradients)

    def forward(self, x: Array, training: bool) -> Array:
        y = short = x
        for layer in self.main:
            y = layer.forward(y, training)
        for layer in self.shortcut:
            short = layer.forward(short, training)
        y += short
        return self.relu.forward(y, training)

    def backward(self, dy: Array, ready: Ready) -> Array:
        dy = self.relu.backward(dy, None)
        short = self.memory("short", dy.shape)  # main's layers overwrite dy
        short[...] = dy
        dx = backward_layers(self.main, dy, ready)
        if not self.shortcut:
            dx += short
            return dx
        start = sum(len(layer.tensors) for layer in self.main)
        short = backward_layers(self.shortcut, short, lambda k: ready(start + k))
        short += dx  # returned, because it is the newer of the workspace's two gradient buffers
        return short


@checked
class Border(Layer):
    """Pixels of one value around the image: with -infinity, the padding of a max-pooling."""

    def __init__(
        self,
        name: str,
        input_shape: tuple[int, ...],
        pixels: int,
        value: float,
        workspace: Workspace,
    ):
        require_image_shape(name, input_shape)
        height, width, channels = input_shape
        output_shape = (height + 2 * pixels, width + 2 * pixels, channels)
        super().__init__(name, input_shape, output_shape, workspace, (0, 0))
        self.pixels, self.value = pixels, value

    def inside(self, y: Array) -> Array:
        height, width, _ = self.input_shape
        return y[:, self.pixels : self.pixels + height, self.pixels : self.pixels + width]

    def forward(self, x: Array, training: bool) -> Array:
        y = self.memory("y", (len(x), *self.output_shape))
        y[...] = self.value
        self.inside(y)[...] = x
        return y  # (N, H, W, C) -> (N, H + 2 pixels, W + 2 pixels, C)

    def backward(self, dy: Array, ready: Ready) -> Array:
        dx = self.workspace.gradient((len(dy), *self.input_shape))
        dx[...] = self.inside(dy)
        return dx


@checked
class GlobalAveragePool(Layer):
    """y = the mean over an image's pixels, per channel."""

    def __init__(self, name: str, input_shape: tuple[int, ...], workspace: Workspace):
        require_image_shape(name, input_shape)
        elements = math.prod(input_shape)
        operations = (elements, elements)
        super().__init__(name, input_shape, (input_shape[2],), workspace, operations)

    def forward(self, x: Array, training: bool) -> Array:
        y = self.memory("y", (len(x), *self.output_shape))
        self.xp.mean(x, axis=(1, 2), out=y)  # (N, H, W, C) -> (N, C)
        return y

    def backward(self, dy: Array, ready: Ready) -> Array:
        height, width, _ = self.input_shape
        dx = self.workspace.gradient((len(dy), *self.input_shape))
        dx[...] = dy[:, None, None, :]
        dx *= 1 / (height * width)
        return dx
