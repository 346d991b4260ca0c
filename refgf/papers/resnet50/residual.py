"""What a residual network (He et al. 2015) needs beside convolution and normalisation."""

import math

from refgf.nn.layers import Layer, ReLU


class Residual(Layer):
    """y = ReLU(main(x) + shortcut(x)); main and shortcut are lists of layers, an empty shortcut is x itself.

    The order of generation is that of backward here: main's layers, last first, then the shortcut's, last first. The
    last layer of each list must not need its own output in backward (a batch normalisation does not).
    """

    def __init__(self, name, main, shortcut, workspace):
        inner = main + shortcut
        forward, backward = (sum(layer.operations[i] for layer in inner) for i in range(2))
        output_shape = main[-1].output_shape
        elements = math.prod(output_shape)
        operations = (forward + 2 * elements, backward + 2 * elements)
        super().__init__(name, main[0].input_shape, output_shape, workspace, operations)
        self.main, self.shortcut = main, shortcut
        self.backwards = main[::-1] + shortcut[::-1]
        self.tensors = tuple(spec for layer in self.backwards for spec in layer.tensors)
        self.relu = ReLU(f"{name}.relu", output_shape, workspace)
        if output_shape != (shortcut[-1].output_shape if shortcut else self.input_shape):
            raise ValueError(
                f"{name}: got {output_shape} from the main path, wanted the shape of the shortcut; next: a shortcut with "
                "a 1 x 1 convolution of the same channels and stride"
            )

    def bind(self, parameters, gradients):
        super().bind(parameters, gradients)
        start = 0
        for layer in self.backwards:
            stop = start + len(layer.tensors)
            layer.bind(parameters[start:stop], gradients[start:stop])
            start = stop

    def forward(self, x, training):
        y = beside = x
        for layer in self.main:
            y = layer.forward(y, training)
        for layer in self.shortcut:
            beside = layer.forward(beside, training)
        y += beside
        return self.relu.forward(y, training)

    def backward(self, dy, ready):
        dy = self.relu.backward(dy, None)
        beside = self.keep("beside", dy.shape)  # main's layers overwrite dy
        beside[...] = dy
        dx, start = self.along(self.main, dy, ready, 0)
        if not self.shortcut:
            dx += beside
            return dx
        through, _ = self.along(self.shortcut, beside, ready, start)
        through += dx  # the last of the workspace's two gradient buffers is the one to hand on
        return through

    def along(self, layers, dy, ready, start):
        """Backward through a list of layers whose tensors are numbered from `start`; (dx, next number)."""
        for layer in reversed(layers):
            dy = layer.backward(dy, lambda k, start=start: ready(start + k))
            start += len(layer.tensors)
        return dy, start


class Border(Layer):
    """Pixels of one value around the image: with -infinity, what a max-pooling with padding does."""

    def __init__(self, name, input_shape, pixels, value, workspace):
        height, width, channels = input_shape
        output_shape = (height + 2 * pixels, width + 2 * pixels, channels)
        super().__init__(name, input_shape, output_shape, workspace, (0, 0))
        self.pixels, self.value = pixels, value

    def inside(self, y):
        height, width, _ = self.input_shape
        return y[:, self.pixels : self.pixels + height, self.pixels : self.pixels + width]

    def forward(self, x, training):
        y = self.keep("y", (len(x), *self.output_shape))
        y[...] = self.value
        self.inside(y)[...] = x
        return y  # (N, H, W, C) -> (N, H + 2 pixels, W + 2 pixels, C)

    def backward(self, dy, ready):
        dx = self.workspace.gradient((len(dy), *self.input_shape))
        dx[...] = self.inside(dy)
        return dx


class GlobalAveragePool(Layer):
    """y = the mean over an image's pixels, per channel."""

    def __init__(self, name, input_shape, workspace):
        elements = math.prod(input_shape)
        super().__init__(name, input_shape, (input_shape[2],), workspace, (elements, elements))

    def forward(self, x, training):
        y = self.keep("y", (len(x), *self.output_shape))
        self.xp.mean(x, axis=(1, 2), out=y)  # (N, H, W, C) -> (N, C)
        return y

    def backward(self, dy, ready):
        height, width, _ = self.input_shape
        dx = self.workspace.gradient((len(dy), *self.input_shape))
        dx[...] = dy[:, None, None, :]
        dx *= 1 / (height * width)
        return dx
