"""Convolution as a matrix product over a few images at a time.

The pixels under the kernel at one place of the output are one row of a matrix, "columns" (im2col):

    x (n, H, W, C)  --windows-->  columns (n*OH*OW, K*K*C)
    y       = columns @ W + b               W (K, K, C, O) seen as (K*K*C, O)
    dW      = columns.T @ dy                the columns are formed again: keeping them costs more memory than this time
    dx      = col2im(dy @ W.T)              the columns' gradients, added where windows overlap

The columns of a whole batch do not fit a cache (448 MB for conv2 of AlexNet at batch 64); those of a few images do.
"""

from refgf.nn.layers import Layer, window_pixel


class Convolution(Layer):
    """kernel x kernel pixels to `outputs` channels, zero padding on all four sides; pixels left over are not read.

    input_gradient=False (the first layer: images need no gradient): backward ends with the weight gradient.
    """

    def __init__(self, name, input_shape, outputs, kernel, workspace, stride=1, padding=0, input_gradient=True):
        height, width, self.channels = input_shape
        self.kernel, self.stride, self.padding, self.input_gradient = kernel, stride, padding, input_gradient
        self.padded_shape = (height + 2 * padding, width + 2 * padding, self.channels)
        if kernel > min(self.padded_shape[:2]):
            got = f"{height}x{width} pixels with padding {padding}"
            raise ValueError(f"{name}: got {got}, wanted at least the kernel's {kernel} each way")
        self.rows, self.columns = ((side - kernel) // stride + 1 for side in self.padded_shape[:2])
        self.patch = kernel * kernel * self.channels
        product = 2 * self.rows * self.columns * self.patch * outputs
        weight_shape = (kernel, kernel, self.channels, outputs)
        tensors = [("bias", (outputs,), False), ("weight", weight_shape, True)]
        operations = (product, 2 * product if input_gradient else product)
        output_shape = (self.rows, self.columns, outputs)
        super().__init__(name, input_shape, output_shape, workspace, operations, tensors)
        self.bytes_per_image = self.rows * self.columns * self.patch * workspace.dtype.itemsize

    def forward(self, x, training):
        bias, weight = self.parameters
        self.x = x
        y = self.keep("y", (len(x), *self.output_shape))

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                y_block = self.pixels(y[block])
                self.xp.matmul(self.im2col(x[block], worker), weight.reshape(self.patch, -1), out=y_block)
                y_block += bias

        self.workspace.share(work, len(x))
        return y

    def backward(self, dy, ready):
        bias_gradient, weight_gradient = self.gradients

        def bias_sum(worker, block, out):
            self.xp.sum(self.pixels(dy[block]), axis=0, out=out)

        def weight_product(worker, block, out):
            columns = self.im2col(self.x[block], worker)
            self.xp.matmul(columns.T, self.pixels(dy[block]), out=out.reshape(self.patch, -1))

        self.workspace.sum_over_blocks(bias_sum, len(dy), self.bytes_per_image, bias_gradient)
        ready(0)
        self.workspace.sum_over_blocks(weight_product, len(dy), self.bytes_per_image, weight_gradient)
        ready(1)
        return self.backward_input(dy) if self.input_gradient else None

    def backward_input(self, dy):
        weight = self.parameters[1].reshape(self.patch, -1)
        dx = self.workspace.gradient((len(dy), *self.input_shape))

        def work(worker, part):
            for block in self.workspace.blocks(part, self.bytes_per_image):
                dy_block = self.pixels(dy[block])
                columns = self.workspace.scratch("columns", (len(dy_block), self.patch), worker)
                self.xp.matmul(dy_block, weight.T, out=columns)
                self.col2im(columns, dx[block], worker)

        self.workspace.share(work, len(dy))
        return dx

    def pixels(self, y):
        return y.reshape(len(y) * self.rows * self.columns, y.shape[3])  # (n, OH, OW, O) -> (n*OH*OW, O)

    def im2col(self, x, worker):
        """The pixels under the kernel, one row per place of the output. (n, H, W, C) -> (n*OH*OW, K*K*C)"""
        n, k, s = len(x), self.kernel, self.stride
        windows = self.xp.lib.stride_tricks.sliding_window_view(self.pad(x, worker), (k, k), axis=(1, 2))
        windows = windows[:, ::s, ::s].transpose(0, 1, 2, 4, 5, 3)  # (n, OH, OW, C, K, K) -> (n, OH, OW, K, K, C)
        columns = self.workspace.scratch("columns", windows.shape, worker)
        columns[...] = windows
        return columns.reshape(n * self.rows * self.columns, self.patch)

    def pad(self, x, worker):
        """(n, H, W, C) -> (n, H + 2 padding, W + 2 padding, C)"""
        if self.padding == 0:
            return x
        padded = self.workspace.scratch("padded", (len(x), *self.padded_shape), worker)
        padded[...] = 0
        self.inside(padded)[...] = x
        return padded

    def inside(self, padded):
        p, (height, width, _) = self.padding, self.input_shape
        return padded[:, p : p + height, p : p + width]

    def col2im(self, columns, dx, worker):
        """dx <- the columns' gradients, added where windows overlap. (n*OH*OW, K*K*C) -> (n, H, W, C)"""
        n, k, s = len(dx), self.kernel, self.stride
        columns = columns.reshape(n, self.rows, self.columns, k, k, self.channels)
        padded = dx if self.padding == 0 else self.workspace.scratch("padded", (n, *self.padded_shape), worker)
        padded[...] = 0
        for i in range(k):
            for j in range(k):
                pixel = window_pixel(padded, i, j, s, self.rows, self.columns)
                pixel += columns[:, :, :, i, j]
        if self.padding:
            dx[...] = self.inside(padded)
