"""Max-pooling; windows may overlap (AlexNet: 3 x 3 every 2)."""

import math

import numpy as np

from refgf.engine.fused import compiled, largest_in_windows, to_winners
from refgf.nn.layers import Layer


class MaxPool(Layer):
    """y = the largest value of each kernel x kernel window, every `stride` pixels; pixels left over are not read.

    The gradient goes to the window's largest value; among equal ones to the first in row order, as in PyTorch. Equal
    values are common (a constant background), and what all of them together receive must be dy.

    `fused.py` does both directions in one pass over memory each: to a float32 batch of full size, and to all on a GPU.
    """

    def __init__(self, name, input_shape, kernel, stride, workspace):
        height, width, channels = input_shape
        if not 0 < kernel <= min(height, width, 15):
            raise ValueError(f"{name}: got kernel {kernel} on {height}x{width} pixels, wanted 1 to 15, not above these")
        self.kernel, self.stride = kernel, stride
        self.rows, self.columns = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        output_shape = (self.rows, self.columns, channels)
        comparisons = kernel * kernel * math.prod(output_shape)
        super().__init__(name, input_shape, output_shape, workspace, (comparisons, math.prod(output_shape)))
        self.bytes_per_image = (math.prod(input_shape) + 3 * math.prod(output_shape)) * workspace.dtype.itemsize
        self.offsets, self.corners = self.flat_positions()

    def flat_positions(self):
        """Value number w of a window lies at offsets[w] + corners in the flattened image. (K*K,), (OH, OW, C)"""
        _, width, channels = self.input_shape
        k = np.arange(self.kernel)
        offsets = (k[:, None] * width + k).reshape(-1) * channels
        row, column, channel = np.ix_(*(np.arange(side) for side in self.output_shape))
        corners = (row * self.stride * width + column * self.stride) * channels + channel
        return offsets, corners

    def forward(self, x, training):
        y = self.keep("y", (len(x), *self.output_shape))
        self.winner = self.keep("winner", y.shape, np.uint8)  # which of the window's K*K values is the largest
        loop = compiled(largest_in_windows, x)

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                if loop:
                    loop(x[block], y[block], self.winner[block], self.kernel, self.stride)
                else:
                    self.largest(x[block], y[block], self.winner[block], worker)

        self.workspace.share(work, len(x))
        return y

    def largest(self, x, y, winner, worker):
        """y <- the windows' largest values, winner <- their numbers. Without `where=`, which is ten times slower."""
        larger = self.workspace.scratch("mask", y.shape, worker, bool)
        number = larger.view(np.uint8)
        y[...] = self.window_value(x, 0)
        winner[...] = 0
        for w in range(1, self.kernel**2):
            value = self.window_value(x, w)
            np.greater(value, y, out=larger)
            np.maximum(value, y, out=y)
            number *= np.uint8(w)
            np.maximum(winner, number, out=winner)  # w only grows, so the last strictly larger value wins

    def window_value(self, x, w):
        """Value number w of every window. (n, H, W, C) -> (n, OH, OW, C)"""
        i, j = divmod(w, self.kernel)
        s = self.stride
        return x[:, i : i + s * (self.rows - 1) + 1 : s, j : j + s * (self.columns - 1) + 1 : s]

    def backward(self, dy, ready):
        dx = self.workspace.gradient((len(dy), *self.input_shape))
        loop = compiled(to_winners, dx)

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                if loop:
                    loop(dy[block], self.winner[block], dx[block], self.kernel, self.stride)
                else:
                    self.add_at_winners(dy[block], self.winner[block], dx[block])

        self.workspace.share(work, len(dy))
        return dx

    def add_at_winners(self, dy, winner, dx):
        dx[...] = 0
        images = np.arange(len(dx)).reshape(-1, 1, 1, 1) * math.prod(self.input_shape)
        places = self.offsets[winner] + self.corners + images  # (n, OH, OW, C) into dx, flattened
        np.add.at(dx.reshape(-1), places.reshape(-1), dy.reshape(-1))
