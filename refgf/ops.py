"""The door to the engine: arithmetic in plain NumPy (or CuPy) that faster code may replace.

    cast, add, rounded, unscale         flat arrays of equal length
    momentum_sgd, plain_sgd             the optimiser, on flat arrays
    relu_gradient ... to_winners        layers, on blocks of images (n, ...)
    background, exact, Buffers          messages

Callers write `ops.cast(x, out)`, so the function is looked up at each call. `import refgf.engine`
(done by `refgf.launch`) puts faster functions in place of these, with the same bits: one test
compares all of them. This module is the definition: to understand a result, forget the engine.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refgf.device import Array, Memory, array_module, synchronize


def cast(x: Array, out: Array) -> None:
    """out <- x, rounded to nearest, ties to even; infinite where too large for out's type."""
    out[...] = x


def add(x: Array, out: Array) -> None:
    """out <- out + x, in out's type."""
    out += x.astype(out.dtype, copy=False)


def rounded(x: Array, kind: DTypeLike, out: Array) -> None:
    """out <- x rounded to the type `kind`; out has x's type and may be x."""
    out[...] = x.astype(kind)


def unscale(x: Array, factor: float) -> bool:
    """x <- factor x. Returns whether every element of x was finite before."""
    finite = bool(array_module(x).isfinite(x).all())
    if factor != 1:
        x *= factor
    return finite


def momentum_sgd(w: Array, v: Array, g: Array, momentum: float, decay: float, rate: float) -> None:
    """v <- momentum v + (g + decay w);  w <- w - rate v. Each operation rounds to w's type."""
    if decay:
        g = decay * w + g
    v *= momentum
    v += g
    w -= rate * v


def plain_sgd(w: Array, g: Array, rate: float) -> None:
    """w <- w - rate g."""
    w -= rate * g


def relu_gradient(dy: Array, y: Array, positive: Array) -> None:
    """dy <- dy where y > 0, else 0. positive: scratch, bool, of y's shape."""
    array_module(y).greater(y, 0, out=positive)
    dy *= positive


def dropout(x: Array, mask: Array, factor: float, out: Array) -> None:
    """out <- factor x where the mask is true, else 0."""
    array_module(x).multiply(x, mask, out=out)
    out *= factor


def normalize(x: Array, mean: Array, scale: Array, beta: Array, y: Array) -> None:
    """y <- (x - mean) scale + beta. The difference first: x scale + constant loses digits."""
    array_module(x).subtract(x, mean, out=y)
    y *= scale
    y += beta


def normalize_gradient(
    x: Array, mean: Array, scale: Array, slope: Array, offset: Array, dy: Array, scratch: Array
) -> None:
    """dy <- scale dy - slope (x - mean) - offset. scratch: of x's shape."""
    array_module(x).subtract(x, mean, out=scratch)
    scratch *= slope
    dy *= scale
    dy -= scratch
    dy -= offset


def largest_in_windows(x: Array, y: Array, winner: Array, kernel: int, stride: int) -> None:
    """y <- the maximum of each window of x, winner <- its number in the window.

    Among equal values the first one wins. x (n, H, W, C); y and winner (uint8) (n, OH, OW, C)
    """
    xp = array_module(x)
    y[...], winner[...] = in_windows(x, y, 0, kernel, stride), 0
    for number in range(1, kernel**2):
        value = in_windows(x, y, number, kernel, stride)
        larger: Array = value > y
        xp.maximum(value, y, out=y)
        larger = larger.view(np.uint8)
        larger *= np.uint8(number)
        xp.maximum(winner, larger, out=winner)  # numbers grow: the last one that was larger stays


def to_winners(dy: Array, winner: Array, dx: Array, kernel: int, stride: int) -> None:
    """dx <- for each pixel the sum of dy over the windows whose maximum it is, in row order.

    dy and winner (uint8) (n, OH, OW, C); dx (n, H, W, C)
    """
    dx[...] = 0
    for number in reversed(range(kernel**2)):  # a pixel's last number is its first window
        pixels = in_windows(dx, dy, number, kernel, stride)
        pixels += array_module(dy).where(winner == number, dy, dy.dtype.type(0))


def in_windows(x: Array, y: Array, number: int, kernel: int, stride: int) -> Array:
    """A view: value `number`, row by row, of every window. (n, H, W, C) -> (n, OH, OW, C)"""
    (i, j), (_, rows, columns, _) = divmod(number, kernel), y.shape
    down = slice(i, i + stride * (rows - 1) + 1, stride)
    return x[:, down, j : j + stride * (columns - 1) + 1 : stride]


def background(comm: Any) -> Any:
    """The communicator of a communication thread. In the engine's, waits sleep."""
    return comm


def exact(comm: Any) -> Any:
    """The communicator of a collective. In the engine's, a message of a wrong length raises."""
    return comm


class Buffers:
    """Memory for the messages of a schedule: slices of one array x (n,), sent in the type `wire`.

    scratch: a dict that keeps the memory from call to call. comm: sends the messages; only the
    engine's version, which stages device arrays, looks at it.
    """

    def __init__(
        self, x: Array, wire: DTypeLike, scratch: Memory | None = None, comm: Any = None
    ) -> None:
        self.x, self.wire, self.xp = x, np.dtype(wire), array_module(x)
        self.in_place = self.wire == x.dtype  # MPI may read and write x itself
        self._scratch = {} if scratch is None else scratch

    def outgoing(self, view: Array) -> Array:
        """The slice view (k,) in the wire type."""
        if not self.in_place:
            out = self._memory("outgoing", view.size)
            cast(view, out)
            view = out
        synchronize(self.x)  # MPI does not know streams
        return view

    def incoming(self, n: int) -> Array:
        """Memory (n,) in the wire type for what arrives; the next call overwrites it."""
        synchronize(self.x)  # a queued kernel may still read this memory
        return self._memory("incoming", n)

    def arrived(self, buffer: Array) -> Array:
        """What arrived in `incoming` memory, where x lives."""
        return buffer

    def _memory(self, name: str, n: int) -> Array:
        key = name, self.wire, self.xp  # short messages notice each lookup
        if key not in self._scratch or self._scratch[key].size < n:
            self._scratch[key] = self.xp.empty(n, self.wire)
        return self._scratch[key][:n]
