"""Convolution as matrix products over strips of a few images at a time.

The usual way (im2col) copies the K x K pixels under the kernel at each output position into one row
of a matrix: every pixel K*K times. Here only the K pixels of one image row are copied, every pixel
K times, and the products with the kernel's rows are added (MEC: Cho, Brand, 2017). At stride 1:

    x (n, H, W, C)  --windows along the width-->  strips (H, n, OW, K*C)
    y      = sum over i of strips[i : i+OH] @ W[i] + b      W (K, K, C, O), W[i] seen as (K*C, O)
    dW[i]  = strips[i : i+OH].T @ dy
    dx     = fold(dstrips)                                  adds the K pixels of overlapping windows
             dstrips[i : i+OH] += dy @ W[i].T

With the image row in front, strips[i : i+OH] is one block of memory, a matrix of OH*n*OW rows, and
needs no copy. At stride s a strip holds the s image rows of one step side by side, and a group of s
kernel rows is multiplied at once.

The strips of a whole batch would not fit a cache (conv2 of AlexNet, batch 64: 103 MB, its im2col
448 MB); those of a few images do. Backward forms them again: storing them would cost more.
Shapes below: R strips, W' the width with padding, n images of a block.
"""

import math
from dataclasses import dataclass

from refgf.nn.layers import Layer, Ready
from refgf.nn.workspace import Array, Shape, Workspace, cut


@dataclass(frozen=True)
class Filters:
    """`outputs` filters of kernel x kernel pixels every `stride` pixels; zero padding around."""

    outputs: int
    kernel: int
    stride: int = 1
    padding: int = 0

    def positions(self, side: int) -> int:
        """Outputs along a height or width of `side` pixels; pixels left over are not read."""
        return (side + 2 * self.padding - self.kernel) // self.stride + 1


class Convolution(Layer):
    """Filters with a bias, or without (bias=False) where a normalisation removes it.

    input_gradient=False: backward ends with the weight gradient, because images need no gradient.
    """

    def __init__(
        self,
        name: str,
        shape: Shape,
        filters: Filters,
        workspace: Workspace,
        input_gradient: bool = True,
        bias: bool = True,
    ):
        height, width, channels = shape
        outputs, kernel, stride = filters.outputs, filters.kernel, filters.stride
        if kernel > min(height, width) + 2 * filters.padding:
            got = f"got kernel {kernel} on {height}x{width} pixels with padding {filters.padding}"
            raise ValueError(f"{name}: {got}; wanted one not above these; next: larger images")
        self.kernel, self.stride, self.padding = kernel, stride, filters.padding
        self.input_gradient = input_gradient
        output_shape = *(filters.positions(side) for side in (height, width)), outputs
        product = 2 * kernel * kernel * channels * math.prod(output_shape)
        operations = product, (1 + input_gradient) * product
        tensors: list[tuple[str, Shape, bool]] = [("bias", (outputs,), False)] * bias
        tensors += [("weight", (kernel, kernel, channels, outputs), True)]
        super().__init__(name, shape, output_shape, workspace, operations, tensors)
        self.groups = cut(slice(0, kernel), stride)
        strips = output_shape[0] + len(self.groups) - 1  # R
        self.padded_shape = (strips * stride, width + 2 * filters.padding, channels)
        self.strips_shape = (strips, output_shape[1], stride, kernel, channels)
        elements = math.prod(self.strips_shape) + 2 * math.prod(output_shape)
        self.bytes_per_image = elements * workspace.dtype.itemsize

    def forward(self, x: Array, training: bool) -> Array:
        self.x, bias = x, [0, *self.parameters][-2]
        y = self.memory("y", (len(x), *self.output_shape))

        def work(worker: int, block: slice) -> None:
            total = self.products(x[block], worker)
            self.xp.add(total.swapaxes(0, 1), bias, out=y[block])  # -> (n, OH, OW, O)

        self.workspace.each_block(work, len(x), self.bytes_per_image)
        return y

    def products(self, x: Array, worker: int) -> Array:
        """y without its bias. (n, H, W, C) -> (OH, n, OW, O)"""
        strips, weight = self.strips(x, worker), self.parameters[-1]
        shape = self.output_shape
        total, term = (self.rows_first(name, shape, len(x), worker) for name in ("total", "term"))
        for group in self.groups:
            out = term if group.start else total
            self.xp.matmul(self.under(strips, group), matrix(weight[group]), out=matrix(out))
            if group.start:
                total += term
        return total

    def backward(self, dy: Array, ready: Ready) -> Array | None:
        *bias_gradient, weight_gradient = self.gradients

        def bias_sum(worker: int, block: slice, out: Array) -> None:
            self.xp.sum(matrix(dy[block]), axis=0, out=out)

        for gradient in bias_gradient:
            self.workspace.sum_over_blocks(bias_sum, len(dy), self.bytes_per_image, gradient)
            ready(0)
        self.backward_weight(dy, weight_gradient)
        ready(len(bias_gradient))
        return self.backward_input(dy) if self.input_gradient else None

    def backward_weight(self, dy: Array, weight_gradient: Array) -> None:
        def products(worker: int, block: slice, out: Array) -> None:
            strips = self.strips(self.x[block], worker)
            dy_rows = self.dy_rows(dy[block], worker)
            for group in self.groups:
                self.xp.matmul(self.under(strips, group).T, dy_rows, out=matrix(out[group]))

        self.workspace.sum_over_blocks(products, len(dy), self.bytes_per_image, weight_gradient)

    def backward_input(self, dy: Array) -> Array:
        view = matrix(self.parameters[-1]).T
        weight = self.workspace.scratch("weight", view.shape)  # BLAS reads it faster than the view
        weight[...] = view
        weight = weight.reshape(len(weight), self.kernel, -1)  # (O, K*K*C) -> (O, K, K*C)
        dx = self.workspace.gradient((len(dy), *self.input_shape))

        def work(worker: int, block: slice) -> None:
            dy_rows = self.dy_rows(dy[block], worker)
            strips = self.rows_first("strips", self.strips_shape, len(dy[block]), worker)
            strips[0 if self.kernel < self.stride else self.output_shape[0] :] = 0
            for group in self.groups:  # the first one overwrites, the others add
                under = self.under(strips, group)
                out = self.workspace.scratch("term", under.shape, worker) if group.start else under
                self.xp.matmul(dy_rows, weight[:, group].reshape(len(weight), -1), out=out)
                if group.start:
                    under += out
            self.fold(strips, dx[block], worker)

        self.workspace.each_block(work, len(dy), self.bytes_per_image)
        return dx

    def rows_first(self, name: str, shape: Shape, n: int, worker: int) -> Array:
        """Scratch memory for n images of this shape, with the row in front: (rows, n, ...)"""
        return self.workspace.scratch(name, (shape[0], n, *shape[1:]), worker)

    def dy_rows(self, dy: Array, worker: int) -> Array:
        """(n, OH, OW, O) -> (OH*n*OW, O): a copy, or a view where n = 1 makes them one."""
        if len(dy) == 1:
            return matrix(dy)
        rows = self.rows_first("total", self.output_shape, len(dy), worker)
        rows[...] = dy.swapaxes(0, 1)
        return matrix(rows)

    def strips(self, x: Array, worker: int) -> Array:
        """The K pixels under the kernel along the width. (n, H, W, C) -> (R, n, OW, s, K, C)"""
        s = self.stride
        if x.shape[1:] != self.padded_shape:
            padded, inside = self.padded(len(x), worker)
            inside[...] = x[:, : inside.shape[1]]
            x = padded  # (n, H, W, C) -> (n, R*s, W', C)
        rows = x.reshape(len(x), -1, s, *self.padded_shape[1:])  # (n, R, s, W', C)
        image, strip, row, pixel, channel = rows.strides
        strides = strip, image, s * pixel, row, pixel, channel  # windows begin s pixels apart
        strips = self.rows_first("strips", self.strips_shape, len(x), worker)
        # CuPy's host would wait for the device in sliding_window_view
        strips[...] = self.xp.lib.stride_tricks.as_strided(rows, strips.shape, strides)
        return strips

    def under(self, strips: Array, group: slice) -> Array:
        """A view: what a group is multiplied with. (R, n, OW, s, K, C) -> (OH*n*OW, group*K*C)"""
        first, row = group.start // self.stride, self.kernel * self.input_shape[2]
        under = strips[first : first + self.output_shape[0]].reshape(-1, self.stride * row)
        return under[:, : (group.stop - group.start) * row]

    def padded(self, n: int, worker: int) -> tuple[Array, Array]:
        """Scratch memory of zeros, with as many rows as the strips, (n, R*s, W', C); its inside."""
        padded = self.workspace.scratch("padded", (n, *self.padded_shape), worker)
        padded[...] = 0
        return padded, self.inside(padded)

    def inside(self, padded: Array) -> Array:
        """A view: the image without padding, and without rows that are not read."""
        p, (height, width, _) = self.padding, self.input_shape
        return padded[:, p : p + height, p : p + width]

    def fold(self, strips: Array, dx: Array, worker: int) -> None:
        """dx <- sums of the strips where they overlap. (R, n, OW, s, K, C) -> (n, H, W, C)"""
        padded, inside = self.padded(len(dx), worker)
        rows = padded.reshape(len(dx), -1, self.stride, *self.padded_shape[1:])  # (n, R, s, W', C)
        strips = strips.transpose(1, 0, 3, 2, 4, 5)  # (R, n, OW, s, K, C) -> (n, R, s, OW, K, C)
        for j in range(self.kernel):
            stop = j + self.stride * (strips.shape[3] - 1) + 1
            rows[:, :, :, j : stop : self.stride] += strips[:, :, :, :, j]
        dx[:, : inside.shape[1]] = inside
        dx[:, inside.shape[1] :] = 0


def matrix(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1])  # (..., O) -> (product of the others, O)
