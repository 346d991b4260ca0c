"""Convolution with fewer products: minimal filtering (Winograd 1980; Lavin, Gray 2016) along rows.

m rows of the output need n = m + K - 1 rows of the padded input, a tile. The plain way multiplies
each of the m rows with K rows of the kernel. The gradient of a tile shows how to save products:
dx[i + k] += dy[i] w[k] are the coefficients of a product of polynomials, dy(t) w(t), which n values
determine (Toom, Cook): evaluate both at n points, multiply value by value, interpolate.

    dx = B.T ((G w) * (A.T dy))         A.T (n, m) and G (n, K) evaluate, B.T (n, n) interpolates,
                                        with interpolation's divisors in G

where * is a product of matrices for each of n values, in place of m K. The others are other
derivatives of the same sum of dy[i] w[k] x[i + k], so that the same constants serve:

    y  = A ((G w) * (B x))              dw = G.T (sum over tiles, images of (B x) * (A.T dy))

Here m = K - 1: 4 products for 6 with 3 x 3 kernels, 8 for 20 with 5 x 5 ones; with a single row of
output there are more. For K = 3, at the points 0, 1, -1 and infinity:

    a = (x0 - x2) w0                    b = (x1 + x2) (w0 + w1 + w2) / 2         y0 = a + b + c
    d = (x3 - x1) w2                    c = (x2 - x1) (w0 - w1 + w2) / 2         y1 = b - c + d

Along the width nothing changes: a value is multiplied as a strip (nn/conv.py), as large as there.
A, G and B are thin products.

What it costs: values cancel. Where all |x| <= X and |w| <= W, the absolute values that add up to an
output are at most 8/3 (K = 3) or 17.4 (K = 5) times the plain K K C X W, in dw 3 and 19.4 times (a
last tile counted as full), in dx 8/3 and 16.6; rounding errors grow with them. A single element has
no such factor: one whose own products are all zero may come out as a rounding error of others, and
an infinity or NaN spreads over its tile. SPEC.md's N12 does not hold. Hence only on request:

    AlexNet(1000, convolution=minimal_filtering)
"""

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from refgf.nn.conv import Convolution, Filters
from refgf.nn.workspace import Array, Workspace

POINTS = np.array([0, 1, -1, 2, -2, 1 / 2, -1 / 2])  # besides infinity
KERNELS = (3, 5)


def minimal_filtering(
    name: str, input_shape: tuple[int, int, int], filters: Filters, workspace: Workspace, **options
) -> Convolution:
    """Called as Convolution is: a MinimalConvolution where the filters allow it, else that."""
    fits = filters.stride == 1 and filters.kernel in KERNELS
    kind = MinimalConvolution if fits else Convolution
    return kind(name, input_shape, filters, workspace, **options)


def transforms(outputs: int, taps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A (m, n), G (n, K) and B (n, n) for m outputs of a filter with K taps, in float64.

    A and B are exact.
    """
    points = POINTS[: outputs + taps - 2]
    others = [np.delete(points, j) for j in range(len(points))]
    a, g = (np.vander(points, count, increasing=True) for count in (outputs, taps))
    g = g / np.array([[np.prod(point - roots)] for point, roots in zip(points, others)])
    at_infinity = (np.vstack([rows, np.eye(rows.shape[1])[-1:]]) for rows in (a, g))
    a, g = at_infinity  # the last coefficient
    b = np.array([[*np.poly(roots)[::-1], 0] for roots in others] + [np.poly(points)[::-1]])
    return a.T, g, b


class MinimalConvolution(Convolution):
    """A Convolution of 3 x 3 or 5 x 5 pixels and stride 1, in float32 or float64 on the CPU.

    `operations` are those of the plain convolution, so that rates compare. Of its methods only
    forward, backward and `inside` are used here.
    """

    def __init__(
        self, name: str, input_shape, filters: Filters, workspace: Workspace, **options
    ) -> None:
        super().__init__(name, input_shape, filters, workspace, **options)
        kernel, stride = filters.kernel, filters.stride
        if stride != 1 or kernel not in KERNELS:
            got = f"got kernel {kernel}, stride {stride}; wanted 3 or 5, and 1"
            raise ValueError(f"{name}: {got}; next: Convolution")
        if workspace.xp is not np or workspace.dtype.itemsize < 4:
            got = f"got minimal filtering in {workspace.dtype} with {workspace.xp.__name__}"
            wanted = "wanted float32 or float64 with numpy"
            raise ValueError(f"{name}: {got}; {wanted}; next: leave minimal_filtering out")
        self.rows = kernel - 1  # m, of the output in a tile
        constants = transforms(self.rows, kernel)
        self.a, self.g, self.b = (matrix.astype(workspace.dtype) for matrix in constants)
        self.terms = len(self.g)  # n
        (height, columns, outputs), (_, width, channels) = self.output_shape, self.padded_shape
        self.tiles = -(-height // self.rows)
        floats = self.terms * (width * channels + columns * outputs) + columns * kernel * channels
        self.bytes_per_image = self.tiles * floats * workspace.dtype.itemsize

    def forward(self, x: Array, training: bool) -> Array:
        self.weight = self.prepared(self.parameters[-1])
        return super().forward(x, training)

    def prepared(self, weight: Array) -> Array:
        """G w. (K, K, C, O) -> (terms, K*C, O)"""
        kernel, _, channels, outputs = weight.shape
        filters = self.workspace.scratch("filters", (self.terms, kernel * channels, outputs))
        np.matmul(self.g, weight.reshape(kernel, -1), out=filters.reshape(self.terms, -1))
        return filters

    def products(self, x: Array, worker: int) -> Array:
        terms = self.new_terms(len(x), worker)
        for i, strips in enumerate(self.strips_of_terms(x, worker)):
            np.matmul(strips, self.weight[i], out=terms[i])
        total = self.new_total(len(x), worker)
        np.matmul(self.a, self.by_tile(terms), out=total.reshape(self.tiles, self.rows, -1))
        return total[: self.output_shape[0]]

    def backward_weight(self, dy: Array, weight_gradient: Array) -> None:
        kernel, _, channels, outputs = weight_gradient.shape
        shape = self.terms, kernel * channels, outputs
        gradients = self.workspace.scratch("filter gradients", shape)

        def filter_products(worker, block, out):
            terms = self.gradient_terms(dy[block], worker)
            for i, strips in enumerate(self.strips_of_terms(self.x[block], worker)):
                np.matmul(strips.T, terms[i], out=out[i])

        self.workspace.sum_over_blocks(filter_products, len(dy), self.bytes_per_image, gradients)
        np.matmul(
            self.g.T, gradients.reshape(self.terms, -1), out=weight_gradient.reshape(kernel, -1)
        )

    def backward_input(self, dy: Array) -> Array:
        weight = self.prepared(self.parameters[-1])
        dx = self.workspace.gradient((len(dy), *self.input_shape))

        def work(worker, block):
            terms = self.gradient_terms(dy[block], worker)
            inputs = self.new_inputs(len(dy[block]), worker)
            strips = self.new_strips(len(dy[block]), worker)
            for i in range(self.terms):
                np.matmul(terms[i], weight[i].T, out=strips.reshape(len(terms[i]), -1))
                fold_columns(strips, inputs[i])
            self.fold_tiles(inputs, dx[block], worker)

        self.workspace.each_block(work, len(dy), self.bytes_per_image)
        return dx

    def strips_of_terms(self, x: Array, worker: int) -> Iterator[Array]:
        """The strips of B x, one term after another in the same memory.

        (n, H, W, C) -> terms times (tiles*n*OW, K*C)
        """
        rows = self.new_rows(len(x), worker)
        rows[...] = 0
        self.inside(rows.swapaxes(0, 1))[...] = x
        rows = rows.reshape(len(rows), -1)  # (R, n, W', C) -> (R, n*W'*C)
        tiles = sliding_window_view(rows, self.terms, axis=0)[
            :: self.rows
        ]  # (tiles, n*W'*C, terms)
        inputs, strips = self.new_inputs(len(x), worker), self.new_strips(len(x), worker)
        np.matmul(self.b, tiles.swapaxes(1, 2), out=self.by_tile(inputs))
        windows = sliding_window_view(inputs, self.kernel, axis=3)  # (terms, tiles, n, OW, C, K)
        for term in windows.swapaxes(4, 5):
            strips[...] = term
            yield strips.reshape(-1, self.kernel * x.shape[3])

    def gradient_terms(self, dy: Array, worker: int) -> Array:
        """A.T dy. (n, OH, OW, O) -> (terms, tiles*n*OW, O)"""
        total, height = self.new_total(len(dy), worker), self.output_shape[0]
        total[:height], total[height:] = dy.swapaxes(0, 1), 0
        terms = self.new_terms(len(dy), worker)
        np.matmul(self.a.T, total.reshape(self.tiles, self.rows, -1), out=self.by_tile(terms))
        return terms

    def fold_tiles(self, inputs: Array, dx: Array, worker: int) -> None:
        """dx <- B.T inputs, added where tiles overlap. (terms, tiles, n, W', C) -> (n, H, W, C)"""
        shape = self.tiles, self.terms, *inputs.shape[2:]
        tiles = self.workspace.scratch("tiles", shape, worker)
        np.matmul(self.b.T, self.by_tile(inputs), out=tiles.reshape(self.tiles, self.terms, -1))
        rows = self.new_rows(len(dx), worker)
        rows[...] = 0
        for i in range(self.terms):
            rows[i : i + self.rows * (self.tiles - 1) + 1 : self.rows] += tiles[:, i]
        dx[...] = self.inside(rows.swapaxes(0, 1))

    def by_tile(self, terms: Array) -> Array:
        """A view. (terms, tiles..., ...) -> (tiles, terms, product of the others)"""
        return terms.reshape(self.terms, self.tiles, -1).swapaxes(0, 1)

    def new_rows(self, n: int, worker: int) -> Array:
        rows = self.rows * (self.tiles - 1) + self.terms
        return self.workspace.scratch("padded", (rows, n, *self.padded_shape[1:]), worker)

    def new_inputs(self, n: int, worker: int) -> Array:
        shape = self.terms, self.tiles, n, *self.padded_shape[1:]
        return self.workspace.scratch("inputs", shape, worker)

    def new_strips(self, n: int, worker: int) -> Array:
        shape = (self.tiles, n, self.output_shape[1], self.kernel, self.input_shape[2])
        return self.workspace.scratch("strips", shape, worker)

    def new_terms(self, n: int, worker: int) -> Array:
        _, columns, outputs = self.output_shape
        shape = self.terms, self.tiles * n * columns, outputs
        return self.workspace.scratch("terms", shape, worker)

    def new_total(self, n: int, worker: int) -> Array:
        _, columns, outputs = self.output_shape
        shape = self.tiles * self.rows, n, columns, outputs
        return self.workspace.scratch("total", shape, worker)


def fold_columns(strips: Array, rows: Array) -> None:
    """rows <- sums of the strips where they overlap. (tiles, n, OW, K, C) -> (tiles, n, W', C)"""
    columns = strips.shape[2]
    rows[:, :, :columns], rows[:, :, columns:] = strips[:, :, :, 0], 0
    for j in range(1, strips.shape[3]):
        rows[:, :, j : j + columns] += strips[:, :, :, j]
