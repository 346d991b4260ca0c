"""Max-pooling. Windows may overlap (AlexNet: 3 x 3 pixels, stride 2)."""

import math

import numpy as np

from refgf import ops
from refgf.nn.layers import Layer, Ready
from refgf.nn.workspace import Array, Shape, Workspace


class MaxPool(Layer):
    """y = the maximum of each kernel x kernel window, every `stride` pixels; the rest is not read.

    The gradient goes to the window's maximum; among equal values to the first in row order, as in
    PyTorch. Equal values are common (a constant background) and together receive dy exactly once.
    """

    def __init__(
        self, name: str, input_shape: Shape, kernel: int, stride: int, workspace: Workspace
    ):
        height, width, channels = input_shape
        if not 0 < kernel <= min(height, width, 15):
            got = f"got kernel {kernel} on {height}x{width} pixels; wanted 1 to 15 and to these"
            raise ValueError(f"{name}: {got}; next: a smaller kernel, or larger images")
        self.kernel, self.stride = kernel, stride
        output_shape = *((side - kernel) // stride + 1 for side in (height, width)), channels
        inputs, outputs = math.prod(input_shape), math.prod(output_shape)
        operations = (kernel * kernel * outputs, outputs)
        super().__init__(name, input_shape, output_shape, workspace, operations)
        self.bytes_per_image = (inputs + 3 * outputs) * workspace.dtype.itemsize

    def forward(self, x: Array, training: bool) -> Array:
        y = self.memory("y", (len(x), *self.output_shape))
        self.winner = self.memory("winner", y.shape, np.uint8)  # the maximum's number in its window

        def work(worker: int, block: slice) -> None:
            ops.largest_in_windows(x[block], y[block], self.winner[block], self.kernel, self.stride)

        self.workspace.each_block(work, len(x), self.bytes_per_image)
        return y

    def backward(self, dy: Array, ready: Ready) -> Array:
        dx = self.workspace.gradient((len(dy), *self.input_shape))

        def work(worker: int, block: slice) -> None:
            ops.to_winners(dy[block], self.winner[block], dx[block], self.kernel, self.stride)

        self.workspace.each_block(work, len(dy), self.bytes_per_image)
        return dx
