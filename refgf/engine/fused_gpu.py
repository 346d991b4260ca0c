"""CUDA kernels for CuPy: one kernel each where CuPy's passes are several. The bits are the same.

Names and arguments are those of the loops of `fused.py` and of the layers' functions of
`refgf.ops`; a kernel needs no scratch memory and ignores it. Each function calls a kernel that says
what happens to one element; CuPy compiles it at the first call with arrays of a type. `i` is the
number of the element in the whole array, T the array's type; of a `raw` array any element may be
read. The last arguments of a call are written, and may be read before.

The bits are the same because each operation is rounded by itself: the compiler must not fuse a
product and a sum (`--fmad=false`), and a statement holds one operation only, because CuPy computes
float16 in float and rounds when it assigns. The exception are subnormal numbers of float32: CuPy 14
compiles every kernel with `-ftz=true`, its own too, and a GPU then takes them as 0.
`narrow` and `widen` are missing: CuPy's casts are one kernel already.

docs/gpu.md has what a GPU showed. The tests run the same text as C, and compile it for GPUs.
"""

import functools
import sys
from collections.abc import Callable

from refgf.device import Array


@functools.cache
def _kernel(cupy, inputs, outputs, operation, name):
    return cupy.ElementwiseKernel(inputs, outputs, operation, name, options=("--fmad=false",))


def elementwise(inputs: str, outputs: str, operation: str, name: str) -> Callable:
    return _kernel(sys.modules["cupy"], inputs, outputs, operation, name)


def momentum_sgd(
    w: Array, v: Array, g: Array, momentum: float, decay: float, rate: float, decays: bool
) -> None:
    kernel = elementwise(
        "T g, T momentum, T decay, T rate, bool decays",
        "T w, T v",
        """
        T gradient = g;
        if (decays) {
            T decayed = decay * w;
            gradient = decayed + g;
        }
        T kept = momentum * v;
        v = kept + gradient;
        T move = rate * v;
        w = w - move;
        """,
        "momentum_sgd",
    )
    kernel(g, momentum, decay, rate, decays, w, v)


def accumulate(
    g: Array, u: Array, v: Array, w: Array, after: Array, out: Array, factors: tuple, flags: tuple
) -> None:
    kernel = elementwise(
        "T g, T u, T w, T unscale, T decay, T momentum, bool decays, bool adds_u",
        "T v, T after, T out",
        """
        T gradient = unscale * g;
        if (decays) {
            T decayed = decay * w;
            gradient = gradient + decayed;
        }
        if (adds_u) v = v + u;
        T kept = momentum * u;
        after = gradient + kept;
        T sent = v + after;
        out = fabs(sent);
        """,
        "accumulate",
    )
    kernel(g, u, w, *factors, *flags, v, after, out)


def pack(v: Array, g: Array, numbers: Array, chunk: int, scale: float, out: Array) -> None:
    kernel = elementwise(
        "raw T v, raw T g, raw int64 numbers, int64 chunk, T scale",
        "T out",
        """
        long long from = numbers[i / chunk] * chunk + i % chunk;
        T sent = v[from] + g[from];
        out = scale * sent;
        """,
        "pack",
    )
    kernel(v, g, sys.modules["cupy"].asarray(numbers, "int64"), chunk, scale, out)


# Max-pooling: x and dx (n, height, width, channels), y and dy (n, rows, columns, channels)
SHAPES = (
    "int64 height, int64 width, int64 rows, int64 columns, int64 channels, int64 side, int64 stride"
)


def largest_in_windows(x: Array, y: Array, winner: Array, kernel: int, stride: int) -> None:
    maximum = elementwise(
        f"raw T x, {SHAPES}",
        "T y, uint8 winner",
        """
        long long channel = i % channels, column = i / channels % columns;
        long long row = i / channels / columns % rows, image = i / channels / columns / rows;
        long long top = image * height + row * stride, left = column * stride;
        long long corner = (top * width + left) * channels + channel;
        T largest = x[corner];
        int number = 0;
        for (int place = 1; place < side * side; ++place) {
            T value = x[corner + (place / side * width + place % side) * channels];
            if (value > largest) number = place;
            if (value > largest || value != value) largest = value;  // a NaN stays
        }
        y = largest;
        winner = number;
        """,
        "largest_in_windows",
    )
    maximum(x, *_shapes(x, y), kernel, stride, y, winner)


def to_winners(dy: Array, winner: Array, dx: Array, kernel: int, stride: int) -> None:
    """Each pixel adds up the windows that it won, row by row: the order is fixed."""
    add_windows = elementwise(
        f"raw T dy, raw uint8 winner, {SHAPES}",
        "T dx",
        """
        long long channel = i % channels, x = i / channels % width;
        long long y = i / channels / width % height, image = i / channels / width / height;
        long long first_row = y < side ? 0 : (y - side) / stride + 1;  // the first that reaches y
        long long first_column = x < side ? 0 : (x - side) / stride + 1;
        T total = 0;
        for (long long row = first_row; row < rows && row * stride <= y; ++row)
            for (long long column = first_column;
                 column < columns && column * stride <= x; ++column) {
                long long window = ((image * rows + row) * columns + column) * channels + channel;
                long long number = (y - row * stride) * side + x - column * stride;
                if (winner[window] == number) total = total + dy[window];
            }
        dx = total;
        """,
        "to_winners",
    )
    add_windows(dy, winner, *_shapes(dx, dy), kernel, stride, dx)


def _shapes(x, y):
    (_, height, width, channels), (_, rows, columns, _) = x.shape, y.shape
    return height, width, rows, columns, channels


def relu_gradient(dy: Array, y: Array, positive: Array) -> None:
    elementwise("T y", "T dy", "dy = dy * (T)(y > 0);", "relu_gradient")(y, dy)


def dropout(x: Array, mask: Array, factor: float, out: Array) -> None:
    kernel = elementwise(
        "T x, bool mask, T factor",
        "T out",
        """
        T chosen = x * (T)mask;
        out = factor * chosen;
        """,
        "dropout",
    )
    kernel(x, mask, factor, out)


def normalize(x: Array, mean: Array, scale: Array, beta: Array, y: Array) -> None:
    kernel = elementwise(
        "T x, T mean, T scale, T beta",
        "T y",
        """
        T centred = x - mean;
        T scaled = centred * scale;
        y = scaled + beta;
        """,
        "normalize",
    )
    kernel(x, mean, scale, beta, y)


def normalize_gradient(
    x: Array, mean: Array, scale: Array, slope: Array, offset: Array, dy: Array, scratch: Array
) -> None:
    kernel = elementwise(
        "T x, T mean, T scale, T slope, T offset",
        "T dy",
        """
        T centred = x - mean;
        T correction = slope * centred;
        T scaled = scale * dy;
        T corrected = scaled - correction;
        dy = corrected - offset;
        """,
        "normalize_gradient",
    )
    kernel(x, mean, scale, slope, offset, dy)


KERNELS = {
    function.__name__: function
    for function in (
        momentum_sgd,
        accumulate,
        pack,
        largest_in_windows,
        to_winners,
        relu_gradient,
        dropout,
        normalize,
        normalize_gradient,
    )
}
