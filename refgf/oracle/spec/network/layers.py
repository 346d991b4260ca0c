"""N1 to N5: convolution, pooling, ReLU, batch normalisation, local response normalisation."""

from itertools import product
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, random_source
from refgf.oracle.spec.network.gradients import N9, U, bounds, check, gamma
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

Array = np.ndarray
IMAGE = ("image", "row", "column", "channel")
WEIGHT = ("row", "column", "channel", "output")

# ---- N1: convolution ----


def conv(x: Array, w: Array, b: Array, stride: int = 1, pad: int = 0) -> Array:
    """N1: convolution, zero padding.

    y[n,i,j,o] = b[o] + sum over u, v, c of x[n, i*stride+u-pad, j*stride+v-pad, c] w[u,v,c,o]
    """
    (batch, height, width, _), (k, _, _, outputs) = x.shape, w.shape
    rows, columns = (height + 2 * pad - k) // stride + 1, (width + 2 * pad - k) // stride + 1
    y = np.zeros((batch, rows, columns, outputs), x.dtype)
    for n, i, j in product(range(batch), range(rows), range(columns)):
        y[n, i, j] = b
        for u, v in product(range(k), range(k)):
            row, column = i * stride + u - pad, j * stride + v - pad
            if 0 <= row < height and 0 <= column < width:
                y[n, i, j] += x[n, row, column] @ w[u, v]  # (C,) (C, O) -> (O,)
    return y


def conv_backward(
    x: Array, w: Array, dy: Array, stride: int = 1, pad: int = 0
) -> tuple[Array, Array, Array]:
    """N1, backward: each product of the forward loop adds to both its factors. -> (dx, dw, db)"""
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    for n, i, j in product(*map(range, dy.shape[:3])):
        for u, v in product(range(w.shape[0]), range(w.shape[0])):
            row, column = i * stride + u - pad, j * stride + v - pad
            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                dx[n, row, column] += w[u, v] @ dy[n, i, j]  # (C, O) (O,) -> (C,)
                dw[u, v] += np.outer(x[n, row, column], dy[n, i, j])  # (C,) (O,) -> (C, O)
    return dx, dw, dy.sum(axis=(0, 1, 2))


N1 = Statement("N1", conv)
CONV = JudgedFunction(conv, "N1", {"y": IMAGE}, "x w b")
CONV_GRADIENTS = {"dx": IMAGE, "dw": WEIGHT, "db": ("output",)}
CONV_BACKWARD = JudgedFunction(conv_backward, "N1 N9", CONV_GRADIENTS, "x w dy")


@CONV.bounds
def any_order_of_products(case: Case) -> Given:
    x, w, b = (np.abs(case[f"in.{name}"]) for name in "xwb")
    return {"y": gamma(w[..., 0].size + 2) * conv(x, w, b, **case.arguments)}


@CONV.fresh
def any_convolution(d: Draw) -> Given:
    k, stride, shape = any_window(d)
    x = d.normal(*shape, dtype="float64")
    w, b = d.normal(k, k, 2, 3, dtype="float64"), d.normal(3, dtype="float64")
    return {"stride": stride, "pad": d.integer(0, 2), "x": x, "w": w, "b": b}


def any_window(d: Draw) -> tuple[int, int, tuple[int, int, int, int]]:
    """(K, stride, (N, H, W, 2)); a window fits into the image."""
    k, stride = d.integer(1, 3), d.integer(1, 2)
    return k, stride, (d.integer(0, 2), d.integer(k, 7), d.integer(k, 7), 2)


@CONV.golden
def conv_cases() -> Cases:
    for name, shape, weights, stride, pad, why in (
        ("strided", (2, 9, 8, 3), (3, 3, 3, 2), 2, 0, "stride 2 leaves the last column out"),
        ("padded", (1, 4, 5, 2), (5, 5, 2, 3), 1, 2, "a kernel larger than the image, padded"),
        ("one-by-one", (3, 2, 3, 4), (1, 1, 4, 2), 1, 0, "1 x 1: a product of matrices"),
        ("none", (0, 4, 4, 2), (3, 3, 2, 2), 1, 1, "no images"),
    ):
        given: Given = {"stride": stride, "pad": pad}
        rng = random_source(f"conv-{name}")
        x, w, b = (rng.standard_normal(s) for s in (shape, weights, weights[-1]))
        case = CONV.within(CONV.case(f"conv-{name}", why, **given, x=x, w=w, b=b))
        yield case
        dy = rng.standard_normal(case["out.y"].shape)
        case = CONV_BACKWARD.case(f"conv-backward-{name}", why, **given, x=x, w=w, dy=dy)
        sizes = conv_backward(abs(x), abs(w), abs(dy), **given)
        case.tensors |= bounds(("dx", "dw", "db"), gamma(dy.size + w.size + 1), sizes)

        def loss(x, w, b=b, dy=dy, given=given):
            return (conv(x, w, b, **given) * dy).sum()

        check(case, lambda x, w=w, loss=loss: loss(x, w), x, "out.dx")
        check(case, lambda w, x=x, loss=loss: loss(x, w), w, "out.dw")
        yield case


@N1.mistake("the kernel is flipped: convolution instead of correlation")
def flipped(x, w, b, stride=1, pad=0):
    return conv(x, w[::-1, ::-1], b, stride, pad)


@N1.mistake("rows and columns of the kernel exchanged")
def transposed(x, w, b, stride=1, pad=0):
    return conv(x, w.transpose(1, 0, 2, 3), b, stride, pad)


@N1.mistake("bias gradient averaged over the pixels", conv_backward)
def bias_averaged(x, w, dy, stride=1, pad=0):
    dx, dw, db = conv_backward(x, w, dy, stride, pad)
    return dx, dw, db / max(1, dy.size // dy.shape[-1])


@N9.mistake("backward ignores the stride", conv_backward)
def stride_ignored(x, w, dy, stride=1, pad=0):
    dx = np.zeros_like(x) + conv_backward(x, w, dy, 1, pad)[0]
    return dx, *conv_backward(x, w, dy, stride, pad)[1:]


# ---- N2: pooling ----

Maxima = dict[tuple[int, int, int, int], tuple[int, int]]  # (n, i, j, c): (row, column)


def max_pool(x: Array, window: int = 3, stride: int = 2) -> tuple[Array, Maxima]:
    """N2: max-pooling over windows that lie wholly inside; of equal values the first in row-major
    order gets the gradient.

    Source: ties chosen.

    -> (y, where), where[n,i,j,c] = (row, column)
    """
    batch, height, width, channels = x.shape
    rows, columns = (height - window) // stride + 1, (width - window) // stride + 1
    y, where = np.zeros((batch, rows, columns, channels), x.dtype), Maxima()
    for n, i, j, c in product(range(batch), range(rows), range(columns), range(channels)):
        patch = x[n, i * stride : i * stride + window, j * stride : j * stride + window, c]
        u, v = divmod(int(patch.argmax()), window)
        y[n, i, j, c], where[n, i, j, c] = patch[u, v], (i * stride + u, j * stride + v)
    return y, where


def max_pool_backward(x: Array, where: Maxima, dy: Array) -> Array:
    """N2, backward: gradients of overlapping windows add up. -> dx"""
    dx = np.zeros_like(x)
    for (n, i, j, c), (row, column) in where.items():
        dx[n, row, column, c] += dy[n, i, j, c]
    return dx


def run_pooling(module: Any, case: Case) -> Outputs:
    """Forward, and backward to the maxima that forward found."""
    x, window = case["in.x"], (case.arguments["window"], case.arguments["stride"])
    y, where = module.max_pool(x, *window)
    return {"out.y": y, "out.dx": module.max_pool_backward(x, where, case["in.dy"])}


N2 = Statement("N2", max_pool)
POOLED = {"y": IMAGE, "dx": IMAGE}
POOL = JudgedFunction(max_pool, "N2", POOLED, "x dy", run_pooling, ("max_pool_backward",))


@POOL.fresh
def any_pooling(d: Draw) -> Given:
    k, stride, (images, *sizes, channels) = any_window(d)
    out = [(size - k) // stride + 1 for size in sizes]
    x = d.rng.integers(-3, 4, (images, *sizes, channels)) * 1.0
    dy = d.rng.integers(-3, 4, (images, *out, channels)) * 1.0
    return {"window": k, "stride": stride, "x": x, "dy": dy}


@POOL.golden
def pooling_cases() -> Cases:
    given: Given = {"window": 3, "stride": 2}
    rng = random_source("pool")
    x = rng.integers(-3, 4, (2, 7, 6, 3)).astype(np.float64)  # of equal values the first counts
    dy = rng.integers(-8, 9, (2, 3, 2, 3)).astype(np.float64)
    why = (
        "overlapping windows, a row and a column that no window covers whole, ties to "
        "the first; exact"
    )
    yield POOL.case("max-pool", why, **given, x=x, dy=dy)
    x = rng.standard_normal((1, 5, 5, 2))
    dy = rng.integers(-8, 9, (1, 2, 2, 2)).astype(np.float64)
    case = POOL.case("max-pool-values", "no ties", "N2 N9", **given, x=x, dy=dy)
    backward = max_pool_backward(x, max_pool(x)[1], dy)
    case.shows((backward == case["out.dx"]).all(), "backward")
    check(case, lambda x: (max_pool(x)[0] * dy).sum(), x, "out.dx")
    yield case


@N2.mistake("of equal values the last gets the gradient")
def last_of_equals(x, window=3, stride=2):
    y, where = max_pool(x, window, stride)
    for n, i, j, c in where:
        patch = x[n, i * stride : i * stride + window, j * stride : j * stride + window, c]
        u, v = np.argwhere(patch == patch.max())[-1]
        where[n, i, j, c] = (i * stride + u, j * stride + v)
    return y, where


@N2.mistake("overlapping windows overwrite each other's gradient", max_pool_backward)
def pool_overwrites(x, where, dy):
    dx = np.zeros_like(x)
    for (n, i, j, c), (row, column) in where.items():
        dx[n, row, column, c] = dy[n, i, j, c]
    return dx


# ---- N3: ReLU ----


def relu(x: Array) -> Array:
    """N3: max(x, 0), gradient 0 at 0."""
    return np.where(x > 0, x, 0)


N3 = Statement("N3", relu)
RELU = JudgedFunction(relu, "N3", {"y": ("element",)}, "x")
RELU.fresh(lambda d: {"x": d.floats(40).astype(np.float64)})


@RELU.golden
def relu_cases() -> Cases:
    x = np.array([-1.0, -0.0, 0.0, 2.0**-1074, 3.0, -np.inf, np.inf])
    yield RELU.case("relu", "zeros of both signs, denormals, infinities", family="special", x=x)


@N3.mistake("keeps the sign of zero")
def relu_keeps_zero(x):
    return np.where(x >= 0, x, 0)


@N3.mistake("leaky ReLU: one percent below 0")
def leaky(x):
    return np.where(x > 0, x, 0.01 * x)


# ---- N4: batch normalisation ----


def batch_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    """N4: batch normalisation with this rank's mean and biased variance over (N, H, W), eps 1e-5.

    Source: Ioffe & Szegedy 2015; eps: usual practice.
    """
    mean, variance = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    return (x - mean) / np.sqrt(variance + eps) * gamma + beta


def batch_norm_backward(
    x: Array, gamma: Array, dy: Array, eps: float = 1e-5
) -> tuple[Array, Array, Array]:
    """N4, backward: mean and variance depend on every x. -> (dx, dgamma, dbeta)"""
    count = x.size // x.shape[-1]
    deviation, root = x - x.mean(axis=(0, 1, 2)), np.sqrt(x.var(axis=(0, 1, 2)) + eps)
    dgamma, dbeta = (dy * deviation / root).sum(axis=(0, 1, 2)), dy.sum(axis=(0, 1, 2))
    dx = gamma / root * (dy - dbeta / count - deviation / root * dgamma / count)
    return dx, dgamma, dbeta


N4 = Statement("N4", batch_norm)
NORM = JudgedFunction(batch_norm, "N4", {"y": IMAGE}, "x gamma beta")
NORM_GRADIENTS = {"dx": IMAGE, "dgamma": ("channel",), "dbeta": ("channel",)}
NORM_BACKWARD = JudgedFunction(batch_norm_backward, "N4 N9", NORM_GRADIENTS, "x gamma dy")


@NORM.golden
def normalisation_cases() -> Cases:
    rng = random_source("norm")
    x = rng.standard_normal((2, 3, 4, 3)) * 2 + 1
    scale, shift = rng.standard_normal(3), rng.standard_normal(3)
    why, pixels = "statistics over image, row and column; the variance divides by their number", 24
    case = NORM.case("batch-norm", why, x=x, gamma=scale, beta=shift)
    # mean and variance are sums of `pixels` terms;
    # an error of either moves y by at most its product with the largest |xhat|^2
    mean, deviation = x.mean((0, 1, 2)), x.std((0, 1, 2))
    largest = np.abs((x - mean) / deviation).max() + np.abs(mean / deviation).max()
    spread = gamma(4 * pixels + 1) * (1 + largest) ** 3
    bound = spread * np.abs(scale) + 4 * U * np.abs(shift)
    case.tensors["bound.y"] = np.broadcast_to(bound, x.shape).copy()
    without = batch_norm(x, scale, shift, eps=0)
    yield case.shows(not np.allclose(without, case["out.y"], atol=1e-9), "epsilon counts")
    dy = rng.standard_normal(x.shape)
    case = NORM_BACKWARD.case("batch-norm-backward", why, x=x, gamma=scale, dy=dy)
    sizes = batch_norm_backward(x, np.abs(scale), np.abs(dy))
    wide = [np.full(np.shape(size), np.abs(size).max() + np.abs(dy).sum()) for size in sizes]
    case.tensors |= bounds(("dx", "dgamma", "dbeta"), spread, wide)
    check(case, lambda x: (batch_norm(x, scale, shift) * dy).sum(), x, "out.dx")
    check(case, lambda scale: (batch_norm(x, scale, shift) * dy).sum(), scale, "out.dgamma")
    yield case
    why = "seven channels: windows of five are cut off at both ends"
    case = RESPONSE.case("local-response-norm", why, x=rng.standard_normal((2, 2, 3, 7)) * 20)
    # at most 5 sums, 2 products, a power, a division
    case.tensors["bound.y"] = 16 * U * np.abs(case["out.y"])
    yield case


@N4.mistake("the variance divides by one less")
def unbiased(x, gamma, beta, eps=1e-5):
    count = x.size // x.shape[-1]
    return batch_norm(x, gamma * np.sqrt((count - 1) / count), beta, eps * (count - 1) / count)


@N4.mistake("epsilon is added to the deviation, not to the variance")
def epsilon_outside(x, gamma, beta, eps=1e-5):
    return (x - x.mean(axis=(0, 1, 2))) / (x.std(axis=(0, 1, 2)) + eps) * gamma + beta


@N4.mistake("statistics per image")
def per_image(x, gamma, beta, eps=1e-5):
    return np.concatenate([batch_norm(x[i : i + 1], gamma, beta, eps) for i in range(len(x))])


@N9.mistake("mean and variance are treated as constants", batch_norm_backward)
def constant_statistics(x, gamma, dy, eps=1e-5):
    _, dgamma, dbeta = batch_norm_backward(x, gamma, dy, eps)
    return gamma / np.sqrt(x.var(axis=(0, 1, 2)) + eps) * dy, dgamma, dbeta


# ---- N5: local response normalisation ----


def local_response_norm(
    x: Array, k: float = 2.0, neighbours: int = 5, alpha: float = 1e-4, power: float = 0.75
) -> Array:
    """N5: local response normalisation across channels: x / (2 + 1e-4 times the sum of squares of
    the channels c-2 .. c+2 that exist)^0.75.

    Source: Krizhevsky et al. 2012.
    """
    y = np.zeros_like(x)
    for c in range(x.shape[-1]):
        low, high = max(0, c - neighbours // 2), min(x.shape[-1], c + neighbours // 2 + 1)
        y[..., c] = x[..., c] / (k + alpha * (x[..., low:high] ** 2).sum(axis=-1)) ** power
    return y


N5 = Statement("N5", local_response_norm)
RESPONSE = JudgedFunction(local_response_norm, "N5", {"y": IMAGE}, "x")
N5.given("alpha divided by the number of neighbours, as in PyTorch", alpha=lambda alpha: alpha / 5)


@N5.mistake("neighbours along another axis than the channels")
def wrong_axis(x, k=2.0, neighbours=5, alpha=1e-4, power=0.75):
    turned = local_response_norm(x.transpose(0, 1, 3, 2), k, neighbours, alpha, power)
    return turned.transpose(0, 1, 3, 2)
