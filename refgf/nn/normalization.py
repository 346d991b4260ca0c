"""Batch normalisation (Ioffe, Szegedy 2015) and local response normalisation (Krizhevsky et al. 2012)."""

import math

import numpy as np

from refgf.engine.fused import compiled, normalize, normalize_gradient
from refgf.nn.layers import Layer


class BatchNorm(Layer):
    """y = gamma * (x - mean) / sqrt(variance + epsilon) + beta, per channel.

    Training uses mean and variance (divided by n) of this rank's images and their pixels; evaluation the running ones.
    `forward` only computes the statistics of the batch, `accept` folds them into the running ones:
        running <- (1 - momentum) * running + momentum * batch     with the variance divided by n - 1, as PyTorch does
    so a step that is thrown away (overflow) or a batch of no images leaves no trace.

    Inside, a row of pixels is one axis of W * C numbers and a vector (C,) is repeated W times beside it: NumPy's inner
    loop then runs over the row and not over a few channels only.
    """

    def __init__(self, name, input_shape, workspace, momentum=0.1, epsilon=1e-5):
        (_, self.width, channels), elements = input_shape, math.prod(input_shape)
        tensors = [("beta", (channels,), False), ("gamma", (channels,), False)]
        super().__init__(name, input_shape, input_shape, workspace, (7 * elements, 9 * elements), tensors)
        self.momentum, self.epsilon = momentum, epsilon
        self.sum_type = np.promote_types(workspace.dtype, np.float32)  # sums over a batch do not fit into float16
        self.running_mean = self.xp.zeros(channels, self.sum_type)
        self.running_variance = self.xp.ones(channels, self.sum_type)
        self.batch = None  # (mean, variance) of the last training batch, until accepted
        self.bytes_per_image = 3 * elements * workspace.dtype.itemsize

    def rows(self, x):
        height, width, channels = self.input_shape
        return x.reshape(len(x), height, width * channels)  # (N, H, W, C) -> (N, H, W*C)

    def repeat(self, vector):
        return self.xp.tile(vector, self.width)  # (C,) -> (W*C,)

    def forward(self, x, training):
        x = self.rows(x)
        if training:
            mean, variance, unbiased = self.statistics(x)
            self.batch = (mean, unbiased) if len(x) else None
        else:
            mean, variance = self.running_mean, self.running_variance
        self.x, self.mean = x, self.repeat(mean.astype(x.dtype))
        self.inverse = (1 / self.xp.sqrt(variance + self.epsilon)).astype(x.dtype)
        y = self.keep("y", x.shape)
        beta, scale = self.repeat(self.parameters[0]), self.repeat(self.parameters[1] * self.inverse)
        loop = compiled(normalize, x)

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                y_block = y[block]
                if loop:
                    loop(x[block], self.mean, scale, beta, y_block)
                    continue
                self.xp.subtract(x[block], self.mean, out=y_block)  # first: x * scale + constant would cancel
                y_block *= scale
                y_block += beta

        self.workspace.share(work, len(x))
        return y.reshape(len(x), *self.input_shape)

    def statistics(self, x):
        """Mean, variance over n and over n - 1, each (C,); n pixels in all. Two passes: E[x^2] - E[x]^2 cancels."""
        n = self.pixels(x)
        mean, square = self.xp.empty((2, self.input_shape[2]), np.float64)

        def pixel_sum(worker, block, out):
            out[...] = self.channel_sum(x[block])

        def square_sum(worker, block, out):
            centred = self.centred(x[block], self.repeat(rounded), worker)
            out[...] = self.product_sum(centred, centred)

        self.workspace.sum_over_blocks(pixel_sum, len(x), self.bytes_per_image, mean)
        mean /= n
        rounded = mean.astype(x.dtype)
        self.workspace.sum_over_blocks(square_sum, len(x), self.bytes_per_image, square)
        return [total.astype(self.sum_type) for total in (mean, square / n, square / max(1, n - 1))]

    def centred(self, x, mean, worker):
        return self.xp.subtract(x, mean, out=self.workspace.scratch("centred", x.shape, worker))

    def pixels(self, x):
        return max(1, len(x) * self.input_shape[0] * self.width)

    def pixel_mean(self, total, x):
        return (total.astype(self.sum_type) / self.pixels(x)).astype(total.dtype)  # nor does the number of pixels

    def channel_sum(self, x):
        return x.sum(axis=(0, 1), dtype=self.sum_type).reshape(self.width, -1).sum(axis=0)  # (n, H, W*C) -> (C,)

    def product_sum(self, a, b):
        """Sum of a * b per channel, without an array of the products. (n, H, W*C), (n, H, W*C) -> (C,)"""
        return self.xp.einsum("nhc,nhc->c", a, b, dtype=self.sum_type).reshape(self.width, -1).sum(axis=0)

    def backward(self, dy, ready):
        """With xhat = (x - mean) * inverse:  dx = gamma * inverse * (dy - sum(dy) / n - xhat * sum(dy * xhat) / n)

        That is scale * dy - slope * (x - mean) - offset, pass by pass in cache.
        """
        beta_gradient, gamma_gradient = self.gradients
        dy = self.rows(dy)
        loop = compiled(normalize_gradient, dy)

        def beta_sum(worker, block, out):
            out[...] = self.channel_sum(dy[block])

        def gamma_sum(worker, block, out):
            out[...] = self.product_sum(self.centred(self.x[block], self.mean, worker), dy[block])
            out *= self.inverse

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                if loop:
                    loop(self.x[block], self.mean, scale, slope, offset, dy[block])
                    continue
                dy_block, correction = dy[block], self.centred(self.x[block], self.mean, worker)
                correction *= slope
                dy_block *= scale
                dy_block -= correction
                dy_block -= offset

        self.workspace.sum_over_blocks(beta_sum, len(dy), self.bytes_per_image, beta_gradient)
        beta_mean = self.pixel_mean(beta_gradient, dy)  # before it is announced: the exchange may overwrite it then
        ready(0)
        self.workspace.sum_over_blocks(gamma_sum, len(dy), self.bytes_per_image, gamma_gradient)
        gamma_mean = self.pixel_mean(gamma_gradient, dy)
        ready(1)
        scale = self.parameters[1] * self.inverse
        slope, offset = self.repeat(scale * self.inverse * gamma_mean), self.repeat(scale * beta_mean)
        scale = self.repeat(scale)
        self.workspace.share(work, len(dy))
        return dy.reshape(len(dy), *self.input_shape)

    def accept(self):
        """Fold the statistics of the last training batch into the running ones, once."""
        if self.batch is None:
            return
        for running, batch in zip((self.running_mean, self.running_variance), self.batch):
            running += self.momentum * (batch - running)
        self.batch = None


class LocalResponseNorm(Layer):
    """y = x / (k + alpha * s)^b, s = sum of the squares of the `size` channels around x's own, at the same pixel.

    There are fewer of them at the ends. The constants are the AlexNet paper's; PyTorch divides its alpha by size: there
    it is alpha = size * 1e-4, k = 2.
    """

    def __init__(self, name, input_shape, workspace, size=5, k=2.0, alpha=1e-4, beta=0.75):
        elements = math.prod(input_shape)
        super().__init__(name, input_shape, input_shape, workspace, ((size + 4) * elements, (size + 7) * elements))
        if size < 1 or size % 2 == 0:
            raise ValueError(f"{name}: got a window of {size} channels, wanted an odd number, so that it has a middle")
        self.size, self.k, self.alpha, self.beta = size, k, alpha, beta
        self.bytes_per_image = 4 * elements * workspace.dtype.itemsize

    def forward(self, x, training):
        self.x = x
        self.base, y = self.keep("base", x.shape), self.keep("y", x.shape)

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                squares = self.xp.multiply(x[block], x[block], out=self.workspace.scratch("terms", x[block].shape, worker))
                base = self.neighbours(squares, self.base[block])
                base *= self.alpha
                base += self.k
                self.xp.power(base, -self.beta, out=y[block])
                y[block] *= x[block]

        self.workspace.share(work, len(x))
        return y

    def backward(self, dy, ready):
        """dx_i = dy_i base_i^-b - 2 alpha b x_i * sum over neighbours j of dy_j x_j base_j^(-b-1)"""

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                x, base, dy_block = self.x[block], self.base[block], dy[block]
                terms = self.xp.power(base, -self.beta, out=self.workspace.scratch("terms", x.shape, worker))
                dy_block *= terms
                self.xp.multiply(dy_block, x, out=terms)
                terms /= base
                crossed = self.neighbours(terms, self.workspace.scratch("centred", x.shape, worker))
                crossed *= x
                crossed *= 2 * self.alpha * self.beta
                dy_block -= crossed

        self.workspace.share(work, len(dy))
        return dy

    def neighbours(self, values, out):
        """out_i <- sum of values_j over channels j with |i - j| <= size // 2; channels are the last axis."""
        channels = values.shape[-1]
        out[...] = values
        for d in range(1, min(self.size // 2, channels - 1) + 1):
            out[..., d:] += values[..., :-d]
            out[..., :-d] += values[..., d:]
        return out
