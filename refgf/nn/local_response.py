"""Local response normalisation (Krizhevsky et al. 2012)."""

import math

from refgf.nn.layers import Layer, Ready
from refgf.nn.workspace import Array, Shape, Workspace


class LocalResponseNorm(Layer):
    """y = x / (k + alpha * s)^beta, s = sum of squares of the `size` channels around x's own.

    There are fewer channels at the ends. The defaults are the AlexNet paper's. PyTorch divides its
    alpha by size: the same there is alpha = size * 1e-4, k = 2.
    """

    def __init__(
        self,
        name: str,
        input_shape: Shape,
        workspace: Workspace,
        size: int = 5,
        k: float = 2.0,
        alpha: float = 1e-4,
        beta: float = 0.75,
    ):
        if size < 1 or size % 2 == 0:
            got = f"got a window of {size} channels; wanted an odd number, which has a middle"
            raise ValueError(f"{name}: {got}; next: {size + 1}")
        elements = math.prod(input_shape)
        operations = (size + 4) * elements, (size + 7) * elements
        super().__init__(name, input_shape, input_shape, workspace, operations)
        self.size, self.k, self.alpha, self.beta = size, k, alpha, beta
        self.bytes_per_image = 4 * elements * workspace.dtype.itemsize

    def forward(self, x: Array, training: bool) -> Array:
        self.x = x
        self.base, y = self.memory("base", x.shape), self.memory("y", x.shape)

        def work(worker: int, block: slice) -> None:
            squares = self.workspace.scratch("terms", x[block].shape, worker)
            self.xp.multiply(x[block], x[block], out=squares)
            base = self.neighbours(squares, self.base[block])
            base *= self.alpha
            base += self.k
            self.xp.power(base, -self.beta, out=y[block])
            y[block] *= x[block]

        self.workspace.each_block(work, len(x), self.bytes_per_image)
        return y

    def backward(self, dy: Array, ready: Ready) -> Array:
        """dx_i = dy_i base_i^-b - 2 alpha b x_i sum over neighbours j of dy_j x_j base_j^(-b-1)"""

        def work(worker: int, block: slice) -> None:
            x, base, dy_block = self.x[block], self.base[block], dy[block]
            terms = self.workspace.scratch("terms", x.shape, worker)
            self.xp.power(base, -self.beta, out=terms)
            dy_block *= terms
            self.xp.multiply(dy_block, x, out=terms)
            terms /= base
            crossed = self.neighbours(terms, self.workspace.scratch("centred", x.shape, worker))
            crossed *= x
            crossed *= 2 * self.alpha * self.beta
            dy_block -= crossed

        self.workspace.each_block(work, len(dy), self.bytes_per_image)
        return dy

    def neighbours(self, values: Array, out: Array) -> Array:
        """out_i <- sum of values_j over channels j with |i - j| <= size // 2 (the last axis)."""
        out[...] = values
        for d in range(1, min(self.size // 2, values.shape[-1] - 1) + 1):
            out[..., d:] += values[..., :-d]
            out[..., :-d] += values[..., d:]
        return out
