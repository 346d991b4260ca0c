"""Batch normalisation (Ioffe, Szegedy 2015) and local response normalisation (Krizhevsky et al. 2012)."""

import math

import numpy as np

from refgf.nn.layers import Layer


class BatchNorm(Layer):
    """y = gamma * (x - mean) / sqrt(variance + epsilon) + beta, per channel.

    Training uses mean and variance (divided by n) of this rank's images and their pixels; evaluation the running ones.
    `forward` only computes the statistics of the batch, `accept` folds them into the running ones:
        running <- (1 - momentum) * running + momentum * batch     with the variance divided by n - 1, as PyTorch does
    so a step that is thrown away (overflow) or a batch of no images leaves no trace.
    """

    def __init__(self, name, input_shape, workspace, momentum=0.1, epsilon=1e-5):
        channels, elements = input_shape[-1], math.prod(input_shape)
        tensors = [("beta", (channels,), False), ("gamma", (channels,), False)]
        super().__init__(name, input_shape, input_shape, workspace, (7 * elements, 9 * elements), tensors)
        self.momentum, self.epsilon = momentum, epsilon
        self.running_mean = self.xp.zeros(channels, workspace.dtype)
        self.running_variance = self.xp.ones(channels, workspace.dtype)
        self.batch = None  # (mean, variance) of the last training batch, until accepted
        self.bytes_per_image = 3 * elements * workspace.dtype.itemsize

    def forward(self, x, training):
        if training:
            mean, variance, unbiased = self.statistics(x)
            self.batch = (mean, unbiased) if len(x) else None
        else:
            mean, variance = self.running_mean, self.running_variance
        beta, gamma = self.parameters
        self.x, self.mean, self.inverse = x, mean, 1 / self.xp.sqrt(variance + self.epsilon)
        y = self.keep("y", x.shape)
        scale = gamma * self.inverse

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                y_block = y[block]
                self.xp.subtract(x[block], mean, out=y_block)  # first: x * scale + constant would cancel
                y_block *= scale
                y_block += beta

        self.workspace.share(work, len(x))
        return y

    def statistics(self, x):
        """Mean, variance over n and over n - 1, each (C,); n pixels in all. Two passes: E[x^2] - E[x]^2 cancels."""
        n = max(1, math.prod(x.shape[:-1]))
        mean, square = self.xp.empty((2, x.shape[-1]), np.float64)

        def pixel_sum(worker, block, out):
            out[...] = self.channel_sum(x[block])

        def square_sum(worker, block, out):
            centred = self.centred(x[block], rounded, worker)
            out[...] = self.product_sum(centred, centred)

        self.workspace.sum_over_blocks(pixel_sum, len(x), self.bytes_per_image, mean)
        mean /= n
        rounded = mean.astype(x.dtype)
        self.workspace.sum_over_blocks(square_sum, len(x), self.bytes_per_image, square)
        return rounded, (square / n).astype(x.dtype), (square / max(1, n - 1)).astype(x.dtype)

    def centred(self, x, mean, worker):
        return self.xp.subtract(x, mean, out=self.workspace.scratch("centred", x.shape, worker))

    def channel_sum(self, x):
        return x.reshape(-1, x.shape[-1]).sum(axis=0)  # (n, H, W, C) -> (C,)

    def product_sum(self, a, b):
        """Sum of a * b per channel, without an array of the products. (n, H, W, C), (n, H, W, C) -> (C,)"""
        return self.xp.einsum("pc,pc->c", a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1]))

    def backward(self, dy, ready):
        """With xhat = (x - mean) * inverse:  dx = gamma * inverse * (dy - sum(dy) / n - xhat * sum(dy * xhat) / n)

        That is scale * dy - slope * (x - mean) - offset, pass by pass in cache.
        """
        beta_gradient, gamma_gradient = self.gradients
        pixels = max(1, math.prod(dy.shape[:-1]))

        def beta_sum(worker, block, out):
            out[...] = self.channel_sum(dy[block])

        def gamma_sum(worker, block, out):
            out[...] = self.product_sum(self.centred(self.x[block], self.mean, worker), dy[block])
            out *= self.inverse

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                dy_block, correction = dy[block], self.centred(self.x[block], self.mean, worker)
                correction *= slope
                dy_block *= scale
                dy_block -= correction
                dy_block -= offset

        self.workspace.sum_over_blocks(beta_sum, len(dy), self.bytes_per_image, beta_gradient)
        beta_mean = beta_gradient / pixels  # before it is announced: the exchange may overwrite it from then on
        ready(0)
        self.workspace.sum_over_blocks(gamma_sum, len(dy), self.bytes_per_image, gamma_gradient)
        gamma_mean = gamma_gradient / pixels
        ready(1)
        scale = self.parameters[1] * self.inverse
        slope, offset = scale * self.inverse * gamma_mean, scale * beta_mean
        self.workspace.share(work, len(dy))
        return dy

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
                base = self.neighbours(x[block] * x[block], self.base[block])
                base *= self.alpha
                base += self.k
                y[block] = x[block] * base**-self.beta

        self.workspace.share(work, len(x))
        return y

    def backward(self, dy, ready):
        """dx_i = dy_i base_i^-b - 2 alpha b x_i * sum over neighbours j of dy_j x_j base_j^(-b-1)"""

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                x, base, dy_block = self.x[block], self.base[block], dy[block]
                dy_block *= base**-self.beta
                crossed = self.neighbours(dy_block * x / base, self.workspace.scratch("centred", x.shape, worker))
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
