"""Batch normalisation (Ioffe, Szegedy 2015)."""

import math

import numpy as np

from refgf import ops
from refgf.nn.layers import Layer, Ready
from refgf.nn.workspace import Array, Shape, Workspace


class BatchNorm(Layer):
    """y = gamma * (x - mean) / sqrt(variance + epsilon) + beta, per channel.

    Training uses the mean and the variance (divided by n) of this rank's images, evaluation the
    running ones. Only `accept` adds the batch's to them, with variance divided by n - 1 (PyTorch):
        running <- (1 - momentum) * running + momentum * batch
    So a rejected step (overflow) and a batch of no images leave no trace.

    Inside, a row of pixels is one axis of W * C numbers, and a vector (C,) is repeated W times:
    NumPy's inner loop then runs over the row and not over a few channels only.
    """

    def __init__(
        self,
        name: str,
        input_shape: Shape,
        workspace: Workspace,
        momentum: float = 0.1,
        epsilon: float = 1e-5,
    ):
        (_, self.width, channels), elements = input_shape, math.prod(input_shape)
        tensors = [("beta", (channels,), False), ("gamma", (channels,), False)]
        operations = 7 * elements, 9 * elements
        super().__init__(name, input_shape, input_shape, workspace, operations, tensors)
        self.momentum, self.epsilon = momentum, epsilon
        self.sum_type = np.promote_types(workspace.dtype, np.float32)  # sums exceed float16
        self.running_mean = self.xp.zeros(channels, self.sum_type)
        self.running_variance = self.xp.ones(channels, self.sum_type)
        self.batch: tuple[Array, Array] | None = None  # mean, variance of a batch until accepted
        self.bytes_per_image = 3 * elements * workspace.dtype.itemsize

    def forward(self, x: Array, training: bool) -> Array:
        x = self.rows(x)
        mean, variance = self.running_mean, self.running_variance
        if training:
            mean, variance, unbiased = self.statistics(x)
            self.batch = (mean, unbiased) if len(x) else None
        self.x, self.mean = x, self.repeat(mean.astype(x.dtype))
        self.inverse = (1 / self.xp.sqrt(variance + self.epsilon)).astype(x.dtype)
        y = self.memory("y", x.shape)
        beta, gamma = self.parameters
        beta, scale = self.repeat(beta), self.repeat(gamma * self.inverse)

        def work(worker: int, block: slice) -> None:
            ops.normalize(x[block], self.mean, scale, beta, y[block])

        self.workspace.each_block(work, len(x), self.bytes_per_image)
        return y.reshape(len(x), *self.input_shape)

    def statistics(self, x: Array) -> list[Array]:
        """Mean, variance over n, variance over n - 1, each (C,). E[x^2] - E[x]^2 loses digits."""
        n = self.pixels(x)
        mean, square = self.xp.empty((2, self.input_shape[2]), np.float64)

        def square_sum(worker: int, block: slice, out: Array) -> None:
            centred = self.centred(x[block], rounded, worker)
            out[...] = self.product_sum(centred, centred)

        self.pixel_sum(x, mean)
        mean /= n
        rounded = self.repeat(mean.astype(x.dtype))
        self.workspace.sum_over_blocks(square_sum, len(x), self.bytes_per_image, square)
        return [a.astype(self.sum_type) for a in (mean, square / n, square / max(1, n - 1))]

    def backward(self, dy: Array, ready: Ready) -> Array:
        """With xhat = (x - mean) * inverse, sums over the batch's n pixels:

        dx = gamma * inverse * (dy - sum(dy) / n - xhat * sum(dy * xhat) / n)
           = scale * dy - slope * (x - mean) - offset
        """
        (beta_gradient, gamma_gradient), dy = self.gradients, self.rows(dy)

        def gamma_sum(worker: int, block: slice, out: Array) -> None:
            out[...] = self.product_sum(self.centred(self.x[block], self.mean, worker), dy[block])
            out *= self.inverse

        def work(worker: int, block: slice) -> None:
            x, scratch = self.x[block], self.workspace.scratch("centred", dy[block].shape, worker)
            ops.normalize_gradient(x, self.mean, scale, slope, offset, dy[block], scratch)

        self.pixel_sum(dy, beta_gradient)
        beta_mean = self.pixel_mean(beta_gradient, dy)  # now: the exchange may overwrite gradients
        ready(0)
        self.workspace.sum_over_blocks(gamma_sum, len(dy), self.bytes_per_image, gamma_gradient)
        gamma_mean = self.pixel_mean(gamma_gradient, dy)
        ready(1)
        scale = self.parameters[1] * self.inverse
        slope = self.repeat(scale * self.inverse * gamma_mean)
        offset, scale = self.repeat(scale * beta_mean), self.repeat(scale)
        self.workspace.each_block(work, len(dy), self.bytes_per_image)
        return dy.reshape(len(dy), *self.input_shape)

    def accept(self) -> None:
        """Add the statistics of the last training batch to the running ones, once."""
        if self.batch is not None:
            for running, batch in zip((self.running_mean, self.running_variance), self.batch):
                running += self.momentum * (batch - running)
            self.batch = None

    def rows(self, x: Array) -> Array:
        height, width, channels = self.input_shape
        return x.reshape(len(x), height, width * channels)  # (N, H, W, C) -> (N, H, W*C)

    def repeat(self, vector: Array) -> Array:
        return self.xp.tile(vector, self.width)  # (C,) -> (W*C,)

    def centred(self, x: Array, mean: Array, worker: int) -> Array:
        return self.xp.subtract(x, mean, out=self.workspace.scratch("centred", x.shape, worker))

    def pixels(self, x: Array) -> int:
        return max(1, len(x) * self.input_shape[0] * self.width)

    def pixel_mean(self, total: Array, x: Array) -> Array:
        return (total.astype(self.sum_type) / self.pixels(x)).astype(total.dtype)

    def pixel_sum(self, x: Array, out: Array) -> None:
        """out <- sum per channel. (N, H, W*C) -> (C,)"""

        def block_sum(worker: int, block: slice, out: Array) -> None:
            sums = x[block].sum(axis=(0, 1), dtype=self.sum_type)  # (n, H, W*C) -> (W*C,)
            out[...] = sums.reshape(self.width, -1).sum(axis=0)  # -> (C,)

        self.workspace.sum_over_blocks(block_sum, len(x), self.bytes_per_image, out)

    def product_sum(self, a: Array, b: Array) -> Array:
        """Sum of a * b per channel without an array of products. Two (n, H, W*C) -> (C,)"""
        sums = self.xp.einsum("nhc,nhc->c", a, b, dtype=self.sum_type)  # -> (W*C,)
        return sums.reshape(self.width, -1).sum(axis=0)
