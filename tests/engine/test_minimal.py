from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from refgf.engine.minimal import MinimalConvolution, minimal_filtering, transforms
from refgf.nn.conv import Convolution, Filters
from refgf.nn.workspace import Workspace
from refgf.oracle.definitions import conv
from tests.support.convolutions import build
from tests.support.differences import assert_layer, bind_random, workspace
from tests.support.networks import batch, resnet50_step, small, small_resnet50

# images, height, width, channels, outputs, kernel, stride, padding
# A tile has 2 rows for 3 x 3 kernels, 4 rows for 5 x 5 ones.
CASES = [
    (3, 6, 5, 2, 3, 3, 1, 1),
    (3, 7, 4, 2, 3, 3, 1, 1),  # the last tile is not full
    (2, 5, 8, 2, 3, 3, 1, 0),
    (2, 3, 3, 4, 5, 3, 1, 0),  # one pixel
    (3, 8, 7, 2, 3, 5, 1, 2),
    (2, 11, 6, 3, 2, 5, 1, 2),  # 4 + 4 + 3 rows
    (2, 5, 5, 2, 3, 5, 1, 0),
    (1, 2, 3, 2, 2, 5, 1, 2),  # less than a tile
    (0, 7, 4, 2, 3, 3, 1, 1),
]
SPLITS = [(3, 1), (1, 3)]  # images_per_block, threads


def magnitudes(kernel):
    """Sum over terms j of |A_ij G_jk B_jl|: output row i, kernel row k, input row l. (m, K, n)"""
    return np.einsum("ij,jk,jl->ikl", *map(abs, transforms(kernel - 1, kernel)))


@pytest.mark.parametrize("outputs,taps", [(1, 3), (2, 2), (2, 3), (3, 4), (4, 5), (5, 3)])
def test_the_transforms_filter(outputs, taps):
    """In fractions A ((G g) * (B d)) is the correlation: sum_j A_ij G_jk B_jl = [l = i + k]."""
    a, g, b = transforms(outputs, taps)
    exact = np.vectorize(Fraction, otypes=[object])
    a, b = exact(a), exact(b)
    g = np.vectorize(lambda v: Fraction(v).limit_denominator(1000), otypes=[object])(g)
    for i, k, l in np.ndindex(outputs, taps, outputs + taps - 1):  # noqa: E741
        assert sum(a[i, j] * g[j, k] * b[j, l] for j in range(len(g))) == (l == i + k)


def worst_sums(kernel):
    """The largest sums of magnitudes for a row of y, of dw (one tile), of dx (tiles overlap)."""
    met, rows = magnitudes(kernel), kernel - 1
    overlapping = [met.sum(axis=(0, 1))[row::rows].sum() for row in range(rows)]
    return met.sum(axis=(1, 2)).max(), met.sum(axis=(0, 2)).max(), max(overlapping)


def test_how_much_the_bound_on_rounding_grows():
    for kernel, growth in ((3, (8 / 3, 3, 8 / 3)), (5, (17.36, 19.31, 16.56))):
        plain = kernel, kernel - 1, kernel
        assert [worst / sums for worst, sums in zip(worst_sums(kernel), plain)] == pytest.approx(
            growth, abs=0.005
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
def test_forward(case, dtype):
    """Against the definition in float64."""
    n, height, width, channels, outputs, kernel, stride, padding = case
    shape, filters = (height, width, channels), Filters(outputs, kernel, padding=padding)
    layer = MinimalConvolution("conv", shape, filters, Workspace(dtype=dtype))
    x, weight, bias = numbers(dtype, (n, *shape), layer.tensors[1].shape, (outputs,))
    layer.bind([bias, weight], [np.full_like(bias, np.nan), np.full_like(weight, np.nan)])
    expected = conv(x.astype(float), weight.astype(float), bias.astype(float), stride, padding)
    y = layer.forward(x, True)
    assert y.shape == expected.shape and y.dtype == dtype
    largest = (
        worst_sums(kernel)[0] * kernel * channels * abs(x).max(initial=0) * abs(weight).max()
        + abs(bias).max()
    )
    np.testing.assert_allclose(
        y, expected, rtol=0, atol=roundings(kernel, kernel * channels, dtype) * largest
    )


def roundings(kernel, terms, dtype):
    """A bound on the relative error of a product with `terms` others in its sum.

    Two transforms have at most 2 K - 2 terms, one of them with the bias; the third has rounded
    constants and K terms; the constants are converted. The bound is exact for float32. In float64
    the reference rounds too, by less than the largest sums leave.
    """
    return (2 * (2 * kernel - 2) + kernel + terms + 3) * np.finfo(dtype).eps / 2


def numbers(dtype, *shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("case", CASES)
def test_gradients_in_float32(case):
    """Against a plain convolution in float64."""
    n, height, width, channels, outputs, kernel, _, padding = case
    shape, found = (height, width, channels), []
    for kind, dtype in ((MinimalConvolution, np.float32), (Convolution, np.float64)):
        filters = Filters(outputs, kernel, padding=padding)
        layer = kind("conv", shape, filters, Workspace(dtype=dtype))
        sizes = (n, *shape), (n, *layer.output_shape), *(spec.shape for spec in layer.tensors)
        x, dy, *parameters = (array.astype(dtype) for array in numbers(np.float32, *sizes))
        layer.bind(parameters, [np.full_like(array, np.nan) for array in parameters])
        layer.forward(x, True)
        found.append([layer.backward(dy, lambda k: None), *layer.gradients])
    (dx, _, dw), (wanted_dx, _, wanted_dw) = found
    assert dx.dtype == dw.dtype == np.float32
    _, worst_dw, worst_dx = worst_sums(kernel)
    largest_dy, places = abs(dy).max(initial=0), layer.output_shape[1] * n
    tiles = -(-layer.output_shape[0] // (kernel - 1))
    for got, wanted, worst, terms in (
        (dx, wanted_dx, worst_dx * abs(parameters[1]).max(), kernel * outputs),
        (dw, wanted_dw, worst_dw * abs(x).max(initial=0), tiles * places),
    ):
        # tiles overlap: K more terms
        tolerance = roundings(kernel, terms + kernel, np.float32) * worst * terms * largest_dy
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("case", CASES)
def test_gradients(case):
    assert_layer(*build(case, kind=MinimalConvolution))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("case", [(5, *CASES[1][1:]), (5, *CASES[5][1:])])
def test_gradients_in_blocks_and_threads(case, split):
    assert_layer(*build(case, split, kind=MinimalConvolution))


@pytest.mark.parametrize("options", [{"bias": False}, {"input_gradient": False}])
def test_options(options):
    assert_layer(*build(CASES[4], kind=MinimalConvolution, **options))


def test_a_smaller_batch_leaves_nothing_of_a_larger_one():
    layer, x = build(CASES[1], kind=MinimalConvolution)
    bind_random(layer)
    expected = conv(x[:1], layer.parameters[1], layer.parameters[0], 1, 1)
    layer.backward(layer.forward(x, True).copy(), lambda k: None)
    np.testing.assert_allclose(layer.forward(x[:1], True), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "side,kernel,fewer", [(8, 3, 4 / 6), (8, 5, 8 / 20), (27, 5, 7 * 8 / (27 * 5))]
)
def test_fewer_products(monkeypatch, side, kernel, fewer):
    """Multiply-adds of the products with K C; the transforms are not counted."""
    counted, channels, product = [], 6, np.matmul

    def matmul(a, b, out):
        if kernel * channels in (a.shape[-1], a.shape[-2], b.shape[-1]):
            counted.append(a.shape[-2] * a.shape[-1] * b.shape[-1])
        product(a, b, out=out)

    monkeypatch.setattr(np, "matmul", matmul)
    layer, x = build((2, side, side, channels, 7, kernel, 1, kernel // 2), kind=MinimalConvolution)
    bind_random(layer)
    y = layer.forward(x, True)
    forward = sum(counted)
    layer.backward(y.copy(), lambda k: None)
    assert 2 * forward == pytest.approx(fewer * layer.flops(2)[0])
    assert 2 * (sum(counted) - forward) == pytest.approx(fewer * layer.flops(2)[1])


def test_where_it_is_used():
    minimal = []
    for kernel, stride in ((3, 1), (5, 1), (1, 1), (2, 1), (7, 1), (11, 4), (3, 2)):
        layer = minimal_filtering("conv", (12, 12, 2), Filters(3, kernel, stride), workspace())
        minimal += [(kernel, stride)] * isinstance(layer, MinimalConvolution)
    assert minimal == [(3, 1), (5, 1)]
    network, *_ = small("none", convolution=minimal_filtering)
    named = [layer.name for layer in network.layers if isinstance(layer, MinimalConvolution)]
    assert named == ["conv2", "conv3", "conv4", "conv5"]
    assert not any(isinstance(layer, MinimalConvolution) for layer in small("none")[0].layers)


@pytest.mark.parametrize("normalization,threads", [("none", 1), ("batch", 2)])
def test_alexnet(normalization, threads):
    results = []
    for kind in (Convolution, minimal_filtering):
        space = workspace(threads=threads)
        network, _, gradients = small(normalization, space=space, convolution=kind)
        loss = network.loss(*batch(network, 5), 5)
        network.backward(lambda i: None)
        results.append((loss, np.concatenate([gradient.ravel() for gradient in gradients])))
    (plain_loss, plain), (loss, gradient) = results
    assert loss == pytest.approx(plain_loss, rel=1e-12)
    assert 0 < np.linalg.norm(gradient - plain) <= 1e-9 * np.linalg.norm(plain)


def test_resnet50():
    (plain, wanted), (network, got) = (
        small_resnet50(),
        small_resnet50(convolution=minimal_filtering),
    )
    inner = [each for layer in network.layers for each in layer.sublayers()]
    assert sum(isinstance(each, MinimalConvolution) for each in inner) == 13  # 16, 3 of stride 2
    assert resnet50_step(network, 3) == pytest.approx(resnet50_step(plain, 3), rel=1e-12)
    assert 0 < np.linalg.norm(got.flat - wanted.flat) <= 1e-9 * np.linalg.norm(wanted.flat)


@pytest.mark.parametrize("kernel,options", [(4, {}), (7, {"padding": 3}), (3, {"stride": 2})])
def test_what_it_cannot_do(kernel, options):
    with pytest.raises(ValueError, match="conv: got kernel .* next: Convolution"):
        MinimalConvolution("conv", (9, 9, 2), Filters(3, kernel, **options), workspace())


@pytest.mark.parametrize(
    "settings", [{"dtype": np.float16}, {"xp": SimpleNamespace(__name__="cupy")}]
)
def test_where_it_cannot(settings):
    with pytest.raises(ValueError, match="float.* with .*next: leave minimal_filtering out"):
        MinimalConvolution("conv", (9, 9, 2), Filters(3, 3), Workspace(**settings))
