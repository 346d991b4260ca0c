"""Cases of the network's layers, in float64, each with a bound from the number of roundings."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from refgf.oracle.definitions import (
    alexnet_step,
    batch_norm,
    batch_norm_backward,
    central_differences,
    conv,
    conv_backward,
    fully_connected,
    max_pool,
    max_pool_backward,
)
from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.spec.case import Case

U = 2.0**-53


def gamma(terms: int) -> float:
    """Relative error of a sum of products of this many terms, in any order."""
    return (terms + 1) * U / (1 - (terms + 1) * U)


def conv_cases() -> Iterator[Case]:
    for name, shape, weights, stride, pad, why in (
        ("strided", (2, 9, 8, 3), (3, 3, 3, 2), 2, 0, "stride 2 leaves the last column out"),
        ("padded", (1, 4, 5, 2), (5, 5, 2, 3), 1, 2, "a kernel larger than the image, padded"),
        ("one-by-one", (3, 2, 3, 4), (1, 1, 4, 2), 1, 0, "1 x 1: a product of matrices"),
        ("none", (0, 4, 4, 2), (3, 3, 2, 2), 1, 1, "no images"),
    ):
        rng = random_source(f"conv-{name}")
        x, w, b = (
            rng.standard_normal(shape),
            rng.standard_normal(weights),
            rng.standard_normal(weights[-1]),
        )
        arguments, terms = {"stride": stride, "pad": pad}, math.prod(weights[:3])
        case = make(f"conv-{name}", "conv", "N1", why, arguments, x=x, w=w, b=b)
        case.tensors["bound.y"] = gamma(terms + 1) * conv(abs(x), abs(w), abs(b), stride, pad)
        yield case
        dy = rng.standard_normal(case["out.y"].shape)
        case = make(
            f"conv-backward-{name}", "conv_backward", "N1 N9", why, arguments, x=x, w=w, dy=dy
        )
        sizes = conv_backward(abs(x), abs(w), abs(dy), stride, pad)
        case.tensors |= bounds(("dx", "dw", "db"), gamma(dy.size + w.size), sizes)
        check(
            case,
            lambda x, w=w, b=b, dy=dy, s=stride, p=pad: (conv(x, w, b, s, p) * dy).sum(),
            x,
            "out.dx",
        )
        check(
            case,
            lambda w, x=x, b=b, dy=dy, s=stride, p=pad: (conv(x, w, b, s, p) * dy).sum(),
            w,
            "out.dw",
        )
        yield case


def bounds(names: str | list[str], factor: float, sizes: list) -> dict[str, np.ndarray]:
    return {f"bound.{name}": factor * np.asarray(size) for name, size in zip(names, sizes)}


def check(case: Case, function: Callable, at: np.ndarray, name: str) -> None:
    """N9: central differences agree with the gradient to 1e-6 of its largest element."""
    difference = np.abs(central_differences(function, at) - case[name])
    require(
        (difference <= 1e-6 * max(1.0, np.abs(case[name]).max(initial=0.0))).all(),
        case,
        f"{name} is a gradient",
    )


def pooling_cases() -> Iterator[Case]:
    rng = random_source("pool")
    x = rng.integers(-3, 4, (2, 7, 6, 3)).astype(
        np.float64
    )  # many equal values: the first of them counts
    dy = rng.integers(-8, 9, (2, 3, 2, 3)).astype(np.float64)
    why = (
        "overlapping windows, a row and a column that no window covers whole, ties to "
        "the first; exact"
    )
    yield make("max-pool", "max_pool", "N2", why, {"window": 3, "stride": 2}, x=x, dy=dy)
    x = rng.standard_normal((1, 5, 5, 2))
    dy = rng.integers(-8, 9, (1, 2, 2, 2)).astype(np.float64)
    case = make(
        "max-pool-values", "max_pool", "N2 N9", "no ties", {"window": 3, "stride": 2}, x=x, dy=dy
    )
    require((max_pool_backward(x, max_pool(x)[1], dy) == case["out.dx"]).all(), case, "backward")
    check(case, lambda x: (max_pool(x)[0] * dy).sum(), x, "out.dx")
    yield case
    x = np.array([-1.0, -0.0, 0.0, 2.0**-1074, 3.0, -np.inf, np.inf])
    yield make(
        "relu", "relu", "N3", "zeros of both signs, denormals, infinities", family="special", x=x
    )


def normalization_cases() -> Iterator[Case]:
    rng = random_source("norm")
    x, scale, shift = (
        rng.standard_normal((2, 3, 4, 3)) * 2 + 1,
        rng.standard_normal(3),
        rng.standard_normal(3),
    )
    why, pixels = "statistics over image, row and column; the variance divides by their number", 24
    case = make("batch-norm", "batch_norm", "N4", why, x=x, gamma=scale, beta=shift)
    # mean and variance are sums of `pixels` terms;
    # an error of either moves y by at most its product with the largest |xhat|^2
    mean, deviation = x.mean((0, 1, 2)), x.std((0, 1, 2))
    largest = np.abs((x - mean) / deviation).max() + np.abs(mean / deviation).max()
    spread = gamma(4 * pixels) * (1 + largest) ** 3
    case.tensors["bound.y"] = np.broadcast_to(
        spread * np.abs(scale) + 4 * U * np.abs(shift), x.shape
    ).copy()
    require(
        not np.allclose(batch_norm(x, scale, shift, eps=0), case["out.y"], atol=1e-9),
        case,
        "epsilon counts",
    )
    yield case
    dy = rng.standard_normal(x.shape)
    case = make("batch-norm-backward", "batch_norm_backward", "N4 N9", why, x=x, gamma=scale, dy=dy)
    sizes = batch_norm_backward(x, np.abs(scale), np.abs(dy))
    wide = [np.full(np.shape(size), np.abs(size).max() + np.abs(dy).sum()) for size in sizes]
    case.tensors |= bounds(("dx", "dgamma", "dbeta"), spread, wide)
    check(case, lambda x: (batch_norm(x, scale, shift) * dy).sum(), x, "out.dx")
    check(case, lambda scale: (batch_norm(x, scale, shift) * dy).sum(), scale, "out.dgamma")
    yield case
    x = rng.standard_normal((2, 2, 3, 7)) * 20
    why = "seven channels: windows of five are cut off at both ends"
    case = make("local-response-norm", "local_response_norm", "N5", why, x=x)
    case.tensors["bound.y"] = (
        16 * U * np.abs(case["out.y"])
    )  # at most 5 sums, 2 products, a power, a division
    yield case


def head_cases() -> Iterator[Case]:
    rng = random_source("head")
    x, w, b = rng.standard_normal((3, 11)), rng.standard_normal((11, 5)), rng.standard_normal(5)
    case = make("fully-connected", "fully_connected", "N6", "N, D and O differ", x=x, w=w, b=b)
    case.tensors["bound.y"] = gamma(12) * fully_connected(abs(x), abs(w), abs(b))
    yield case
    kept = (rng.random(9) < 0.5).astype(np.uint8)
    x = rng.standard_normal(9)
    case = make(
        "dropout", "dropout", "N7", "what is kept is scaled up", {"rate": 0.25}, x=x, kept=kept
    )
    case.tensors["bound.y"] = 3 * U * np.abs(case["out.y"])
    yield case
    logits = np.array([[0.0, 1, 2], [200, 201, 202], [-800, 0, 800], [5, 5, 5]])
    why = (
        "large logits do not overflow, and no row makes another underflow; divided by "
        "the global batch of 7"
    )
    case = make(
        "softmax",
        "softmax_cross_entropy",
        "N8",
        why,
        {"global_batch": 7},
        logits=logits,
        labels=[2, 0, 0, 1],
    )
    case.tensors["bound.loss"], case.tensors["bound.dlogits"] = (
        32 * U * case["out.loss"],
        np.full((4, 3), 32 * U),
    )
    yield case
    empty = {"logits": np.zeros((0, 3)), "labels": np.zeros(0, np.int64)}
    yield make(
        "softmax-no-samples",
        "softmax_cross_entropy",
        "N8",
        "no samples: loss 0",
        {"global_batch": 7},
        **empty,
    )


SHAPES = [(5,), (64, 5), (64,), (64, 64), (64,), (4, 64)]  # fc8, fc7, fc6: bias, weight
CHANNELS = [
    (3, 2, 11),
    (2, 4, 5),
    (4, 6, 3),
    (6, 6, 3),
    (6, 4, 3),
]  # inputs, outputs, kernel of conv1 .. conv5


def alexnet_cases() -> Iterator[Case]:
    """A width of 1/64 at 67 x 67: 6,553 parameters in 26 tensors."""
    rng = random_source("alexnet")
    shapes = SHAPES + [
        s for i, o, k in reversed(CHANNELS) for s in ((o,), (o,), (o,), (k, k, i, o))
    ]
    tensors = [
        rng.standard_normal(s) * (2 / math.prod(s[:-1])) ** 0.5 if len(s) > 1 else rng.random(s)
        for s in shapes
    ]
    arrays = {f"tensor{i:02}": tensor for i, tensor in enumerate(tensors)}
    arrays |= {"images": rng.standard_normal((2, 67, 67, 3)), "labels": np.array([3, 0])}
    why = "loss and 26 gradients, last layer first, of two images in a global batch of 5"
    case = make("alexnet-step", "alexnet_step", "N8 N9 N10 N11", why, {"global_batch": 5}, **arrays)
    # within 1e-10 of the gradient, or of the same layer's weight gradient, because biases before a
    # normalisation have gradient zero; about 20 layers at gamma(500) leave a factor of 100
    layers = [[0, 1], [2, 3], [4, 5], *([i, i + 1, i + 2, i + 3] for i in range(6, 26, 4))]
    for layer in layers:
        weight = np.linalg.norm(case[f"out.gradient{layer[-1]:02}"])
        for i in layer:
            gradient = case[f"out.gradient{i:02}"]
            bound = 1e-10 * max(weight, np.linalg.norm(gradient))
            case.tensors[f"bound.gradient{i:02}"] = np.full(gradient.shape, bound)
    case.tensors["bound.loss"] = 1e-10 * case["out.loss"]
    require(moved_loss(case, tensors) < 1e-5, case, "the loss moves along the gradient as it says")
    yield case


def rounding_cases() -> Iterator[Case]:
    """Without normalisation, 16 tensors. Rounding in float64 moves the bounds by about 1e-12."""
    rng = random_source("rounding")
    shapes = SHAPES + [s for i, o, k in reversed(CHANNELS) for s in ((o,), (k, k, i, o))]
    tensors = [
        rng.standard_normal(s) * (2 / math.prod(s[:-1])) ** 0.5 if len(s) > 1 else rng.random(s)
        for s in shapes
    ]
    arrays = {f"tensor{i:02}": tensor for i, tensor in enumerate(tensors)}
    arrays |= {f"spread{i:02}": 1e-13 * abs(tensor) for i, tensor in enumerate(tensors)}
    arrays |= {"images": rng.standard_normal((2, 67, 67, 3)), "labels": np.array([3, 0])}
    arguments = {"global_batch": 5, "unit": U}
    why = (
        "bounds of 16 gradients where parameters may be 1e-13 of themselves off; "
        "rounding can change no choice"
    )
    case = make("alexnet-rounding", "alexnet_rounding", "N12", why, arguments, **arrays)
    for i in range(16):
        case.tensors[f"bound.gradient{i:02}"] = case[f"out.bound{i:02}"]
        case.tensors[f"bound.bound{i:02}"] = 1e-9 * case[f"out.bound{i:02}"]
    yield case
    arrays = {name: rng.standard_normal(7) for name in "wvg"}
    arrays |= {f"{name}_apart": 1e-6 * rng.random(7) for name in "wvg"}
    arguments = {"rate": 0.1, "momentum": 0.9, "decay": 0.01, "unit": 2.0**-24}
    case = make(
        "momentum-rounding", "momentum_rounding", "N13", "one step in float32", arguments, **arrays
    )
    case.tensors |= bounds(("w_apart", "v_apart"), 1e-9, (case["out.w_apart"], case["out.v_apart"]))
    yield case


def moved_loss(case: Case, tensors: list[np.ndarray]) -> float:
    """N9 in one direction: relative error of the slope of the loss along a random direction."""
    rng, h = random_source("direction"), 1e-6
    directions = [rng.standard_normal(t.shape) for t in tensors]
    settings = case["in.images"], case["in.labels"]
    up, down = (
        alexnet_step(*settings, [t + s * h * d for t, d in zip(tensors, directions)], 5)[0]
        for s in (1, -1)
    )
    slope = sum((case[f"out.gradient{i:02}"] * d).sum() for i, d in enumerate(directions))
    return abs((up - down) / (2 * h) - slope) / abs(slope)


def cases() -> Iterator[Case]:
    for group in (
        conv_cases,
        pooling_cases,
        normalization_cases,
        head_cases,
        alexnet_cases,
        rounding_cases,
    ):
        yield from group()
