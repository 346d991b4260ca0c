"""Convolution as matrix products over strips of a few images at a time.

The usual way (im2col) copies the K x K pixels under the kernel at each place of the output into one row of a matrix:
every pixel K*K times. Here only the K pixels of one image row are copied, every pixel K times, and the products with
the kernel's rows are added up (MEC: Cho, Brand, ICML 2017). At stride 1:

    x (n, H, W, C)  --windows along the width-->  strips (H, n, OW, K*C)
    y      = sum over i of strips[i : i+OH] @ W[i] + b              W (K, K, C, O), W[i] seen as (K*C, O)
    dW[i]  = strips[i : i+OH].T @ dy
    dx     = fold(dstrips),  dstrips[i : i+OH] += dy @ W[i].T       fold adds the K pixels of overlapping windows

With the image row in front, strips[i : i+OH] is one block of memory, a matrix of OH*n*OW rows, and needs no copy. At
stride s the s image rows that one step passes lie side by side in a strip; s rows of the kernel are multiplied at once.

The strips of a whole batch would not fit a cache (conv2 of AlexNet, batch 64: 103 MB, its im2col 448 MB); those of a
few images do. They are formed again in backward: keeping them would cost more than it saves.
"""

import math

from refgf.nn.layers import Layer


class Convolution(Layer):
    """kernel x kernel pixels to `outputs` channels, zero padding on all four sides; pixels left over are not read.

    input_gradient=False (the first layer: images need no gradient): backward ends with the weight gradient.
    bias=False: no bias, where a normalisation follows that would take it away again.
    """

    def __init__(self, name, input_shape, outputs, kernel, workspace, stride=1, padding=0, input_gradient=True,
                 bias=True):  # fmt: skip
        height, width, channels = input_shape
        if kernel > min(height, width) + 2 * padding:
            got = f"{height}x{width} pixels with padding {padding}"
            raise ValueError(f"{name}: got {got}, wanted at least the kernel's {kernel} each way")
        self.kernel, self.stride, self.padding, self.input_gradient = kernel, stride, padding, input_gradient
        rows, columns = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
        output_shape = (rows, columns, outputs)
        tensors = [("bias", (outputs,), False)] * bias + [("weight", (kernel, kernel, channels, outputs), True)]
        product = 2 * kernel * kernel * channels * math.prod(output_shape)
        operations = (product, 2 * product if input_gradient else product)
        super().__init__(name, input_shape, output_shape, workspace, operations, tensors)
        self.groups = [slice(i, min(i + stride, kernel)) for i in range(0, kernel, stride)]  # of kernel rows
        strips = rows + len(self.groups) - 1  # R
        self.padded_shape = (strips * stride, width + 2 * padding, channels)
        self.strips_shape = (strips, columns, stride, kernel, channels)
        self.bytes_per_image = (math.prod(self.strips_shape) + 2 * math.prod(output_shape)) * workspace.dtype.itemsize

    def forward(self, x, training):
        bias, weight = [0, *self.parameters][-2:]
        self.x, weight = x, self.prepared(weight)
        y = self.keep("y", (len(x), *self.output_shape))

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                total = self.products(x[block], weight, worker)
                self.xp.add(total.swapaxes(0, 1), bias, out=y[block])  # (OH, n, OW, O) -> (n, OH, OW, O)

        self.workspace.share(work, len(x))
        return y

    def prepared(self, weight):
        """The weight as `products` wants it. (K, K, C, O)"""
        return weight

    def products(self, x, weight, worker):
        """y without its bias. (n, H, W, C) -> (OH, n, OW, O)"""
        strips = self.strips(x, worker)
        total, term = (self.rows_first(len(x), name, worker) for name in ("total", "term"))
        for group in self.groups:
            out = total if group.start == 0 else term
            self.xp.matmul(self.under(strips, group), matrix(weight[group]), out=matrix(out))
            if group.start > 0:
                total += term
        return total

    def backward(self, dy, ready):
        *bias_gradient, weight_gradient = self.gradients

        def bias_sum(worker, block, out):
            self.xp.sum(matrix(dy[block]), axis=0, out=out)

        if bias_gradient:
            self.workspace.sum_over_blocks(bias_sum, len(dy), self.bytes_per_image, bias_gradient[0])
            ready(0)
        self.backward_weight(dy, weight_gradient)
        ready(len(bias_gradient))
        return self.backward_input(dy) if self.input_gradient else None

    def backward_weight(self, dy, weight_gradient):
        def weight_products(worker, block, out):
            strips, dy_rows = self.strips(self.x[block], worker), matrix(self.copy_rows_first(dy[block], worker))
            for group in self.groups:
                self.xp.matmul(self.under(strips, group).T, dy_rows, out=matrix(out[group]))

        self.workspace.sum_over_blocks(weight_products, len(dy), self.bytes_per_image, weight_gradient)

    def backward_input(self, dy):
        weight = self.transposed_weight()
        dx = self.workspace.gradient((len(dy), *self.input_shape))

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                dy_rows = matrix(self.copy_rows_first(dy[block], worker))
                strips = self.new_strips(len(dy[block]), worker)
                strips[0 if self.kernel < self.stride else self.output_shape[0] :] = 0  # what the first group leaves
                for group in self.groups:
                    under = self.under(strips, group)
                    out = under if group.start == 0 else self.workspace.scratch("term", under.shape, worker)
                    self.xp.matmul(dy_rows, weight[:, group].reshape(len(weight), -1), out=out)
                    if group.start > 0:
                        under += out
                self.fold(strips, dx[block], worker)

        self.workspace.share(work, len(dy))
        return dx

    def transposed_weight(self):
        """A copy, as BLAS reads it faster than a transposed view. (K, K, C, O) -> (O, K, K*C)"""
        weight = matrix(self.parameters[-1])
        copy = self.workspace.scratch("weight", weight.T.shape, 0)

        def work(worker, part):
            copy[part] = weight[:, part].T

        self.workspace.share(work, len(copy))
        return copy.reshape(len(copy), self.kernel, -1)

    def rows_first(self, n, name, worker):
        """Scratch memory for the outputs of n images with the row in front: (OH, n, OW, O)"""
        rows, *rest = self.output_shape
        return self.workspace.scratch(name, (rows, n, *rest), worker)

    def copy_rows_first(self, dy, worker):
        """(n, OH, OW, O) -> (OH, n, OW, O), or dy itself where that is the same memory."""
        if len(dy) == 1:
            return dy
        rows = self.rows_first(len(dy), "total", worker)
        rows[...] = dy.swapaxes(0, 1)
        return rows

    def new_strips(self, n, worker):
        strips, *rest = self.strips_shape
        return self.workspace.scratch("strips", (strips, n, *rest), worker)  # (R, n, OW, s, K, C)

    def strips(self, x, worker):
        """The K pixels under the kernel at each place along the width. (n, H, W, C) -> (R, n, OW, s, K, C)"""
        s = self.stride
        rows = self.pad(x, worker).reshape(len(x), -1, s, *self.padded_shape[1:])  # (n, R*s, W', C) -> (n, R, s, W', C)
        image, strip, row, pixel, channel = rows.strides
        strides = strip, image, s * pixel, row, pixel, channel  # windows begin s pixels apart; within one they are neighbours
        strips = self.new_strips(len(x), worker)
        # not by sliding_window_view, for which CuPy's host waits for the device
        strips[...] = self.xp.lib.stride_tricks.as_strided(rows, strips.shape, strides)  # a view: (R, n, OW, s, K, C)
        return strips

    def under(self, strips, group):
        """A view of what these kernel rows are multiplied with. (R, n, OW, s, K, C) -> (OH*n*OW, group*K*C)"""
        first = group.start // self.stride
        row = self.kernel * self.input_shape[2]
        under = strips[first : first + self.output_shape[0]].reshape(-1, self.stride * row)
        return under[:, : (group.stop - group.start) * row]

    def pad(self, x, worker):
        """x with zeros around, and with as many rows as the strips have. (n, H, W, C) -> (n, R*s, W + 2 padding, C)"""
        if x.shape[1:] == self.padded_shape:
            return x
        padded = self.workspace.scratch("padded", (len(x), *self.padded_shape), worker)
        padded[...] = 0
        inside = self.inside(padded)
        inside[...] = x[:, : inside.shape[1]]
        return padded

    def inside(self, padded):
        p, (height, width, _) = self.padding, self.input_shape
        return padded[:, p : p + height, p : p + width]

    def fold(self, strips, dx, worker):
        """dx <- the gradients of the strips, added where windows overlap. (R, n, OW, s, K, C) -> (n, H, W, C)"""
        padded = self.workspace.scratch("padded", (len(dx), *self.padded_shape), worker)
        padded[...] = 0
        rows = padded.reshape(len(dx), -1, self.stride, *self.padded_shape[1:])  # (n, R*s, W', C) -> (n, R, s, W', C)
        strips = strips.transpose(1, 0, 3, 2, 4, 5)  # (R, n, OW, s, K, C) -> (n, R, s, OW, K, C)
        for j in range(self.kernel):
            pixel = rows[:, :, :, j : j + self.stride * (strips.shape[3] - 1) + 1 : self.stride]
            pixel += strips[:, :, :, :, j]
        inside = self.inside(padded)
        dx[:, : inside.shape[1]] = inside
        dx[:, inside.shape[1] :] = 0


def matrix(array):
    return array.reshape(-1, array.shape[-1])  # (..., O) -> (the others together, O)
