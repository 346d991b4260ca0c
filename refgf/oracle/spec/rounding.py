"""N12 and N13: how far rounding may move gradients and parameters, for any order of summation.

This holds for AlexNet without normalisation and dropout (16 tensors in the order of generation). A
layer is a matrix product y = A x + b. ReLU, with the pooling after it if there is any, picks from
each window its largest pixel, or 0: call that its choice. For given choices everything is linear,
so a rounding error d in layer l adds exactly (dy_m/dy_l) d to layer m above it, and likewise in
backward. What remains is to bound each layer's own errors. A sum of n products errs by at most
gamma_n = n u / (1 - n u) times the sum of the products' magnitudes, in any order (blocks, threads,
ranks), with fused multiply-adds or without (Higham, Accuracy and Stability of Numerical Algorithms,
ch. 3 and 4).

Assumed: no overflow, no underflow, and exp within 8 u. The rounding of the bound itself, about
1e-12 of it, is neglected.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import random_source
from refgf.oracle.spec.network.alexnet import CHANNELS, CONVOLUTIONS, SHAPES, weights
from refgf.oracle.spec.network.gradients import U, bounds, gamma
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class RoundingBound:
    """gradients, bounds: 16 arrays each, float64
    choices: an array (N, windows) per layer but the last: 0 where ReLU gives 0, else 1 + pixel
    doubtful: how many choices rounding could change"""

    gradients: Arrays
    bounds: Arrays
    choices: Arrays
    doubtful: int


def alexnet_rounding(
    images: np.ndarray,
    labels: np.ndarray,
    tensors: Arrays,
    global_batch: int,
    unit: float,
    spread: Arrays | None = None,
) -> RoundingBound:
    """N12: without normalisation and dropout, an evaluation that makes the exact gradient's choices
    (ReLU, pooling) is within a bound of it, in any order of summation: 1 rank and p differ by at
    most twice the bound.

    Source: derived in `spec/rounding.py` from Higham, ch. 3 and 4.

    unit: unit roundoff of the evaluation. Parameters of two evaluations may differ from `tensors`
    by up to `spread` (16 arrays, None for 0). If doubtful is 0, every evaluation makes these
    choices.
    """
    spread = [np.zeros(t.shape) for t in tensors] if spread is None else spread
    layers = matrix_layers([t.astype(np.float64) for t in tensors], spread, images.shape[1:])
    sums: list[list[Any]] = [
        [0.0, 0.0, 0.0, 0.0] for _ in layers
    ]  # bias gradient, weight gradient, their bounds
    choices: list[list[np.ndarray]] = [[] for _ in layers[:-1]]
    doubtful = 0
    for image, label in zip(images.astype(np.float64), labels):
        states = forward(image.reshape(-1), layers, unit)
        gradients = backward(states, label, global_batch, unit)
        for total, state, (dy, dy_error) in zip(sums, states, gradients):
            for i, term in enumerate(parameter_terms(state, dy, dy_error, len(images), unit)):
                total[i] += term
        for found, state in zip(choices, states):
            found.append(state.choice)
            doubtful += state.doubtful
    pairs = [pair for total in sums[::-1] for pair in (total[:2], total[2:])]  # as generated
    flats = ([a for pair in pairs[start::2] for a in pair] for start in (0, 1))
    shaped, bounds = ([a.reshape(t.shape) for a, t in zip(flat, tensors)] for flat in flats)
    return RoundingBound(shaped, bounds, [np.array(found) for found in choices], doubtful)


def momentum_rounding(
    w: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    apart: tuple[Any, ...],
    rate: float,
    momentum: float,
    decay: float,
    unit: float,
) -> tuple[np.ndarray, np.ndarray]:
    """N13: the same for the parameters after a step of M1, and step after step.

    Source: as N12.

    w, v, g: of one evaluation; apart: by how much the other's may differ. A product of M1 is
    rounded at most 5 times. In a run of steps w_apart is the next step's spread in N12, and g_apart
    is 2 bounds. The distance grows fast. -> (w_apart, v_apart)
    """
    w_apart, v_apart, g_apart = apart
    v_size = momentum * (abs(v) + v_apart) + abs(g) + g_apart + decay * (abs(w) + w_apart)
    v_apart = momentum * v_apart + g_apart + decay * w_apart
    order = 2 * gamma(5, unit)
    w_apart = w_apart + rate * v_apart + order * (abs(w) + w_apart + rate * v_size)
    return w_apart, v_apart + order * v_size


@dataclass(frozen=True)
class MatrixLayer:
    """y[place, o] = sum over q of x[places[place, q]] weight[q, o] + bias[o].

    x has a 0 after its end, for padding.
    """

    places: np.ndarray  # (places, Q) into x
    weight: np.ndarray  # (Q, O)
    bias: np.ndarray  # (O,)
    weight_spread: np.ndarray
    bias_spread: np.ndarray
    windows: np.ndarray  # (windows, pixels) into y: what ReLU and pooling choose from


def matrix_layers(tensors: Arrays, spread: Arrays, shape: tuple[Any, ...]) -> list[MatrixLayer]:
    """The eight layers, first one first; shape (H, W, C) of the images."""
    layers = []
    (biases, weights), spreads = ((a[-2::-2], a[-1::-2]) for a in (tensors, spread))
    for i, (b, w, b_spread, w_spread) in enumerate(zip(biases, weights, *spreads)):
        if w.ndim == 4:
            stride, pad, pooled = CONVOLUTIONS[i]
            pixels = windows(shape, len(w), stride, pad)
            pixels = pixels.transpose(0, 1, 3, 4, 2)  # -> (OH, OW, K, K, C)
        else:
            pixels, pooled = np.arange(len(w)).reshape(1, 1, -1), False
        places = pixels.reshape(pixels.shape[0] * pixels.shape[1], -1)
        w = w.reshape(-1, len(b))
        chosen = windows((*pixels.shape[:2], len(b)), *((3, 2) if pooled else (1, 1)))
        shape = chosen.shape[:3]
        chosen, w_spread = chosen.reshape(np.prod(shape), -1), w_spread.reshape(w.shape)
        layers.append(MatrixLayer(places, w, b, w_spread, b_spread, chosen))
    return layers


def windows(shape: tuple[Any, ...], k: int, stride: int, pad: int = 0) -> np.ndarray:
    """Indices of each window's pixels in the flattened image. -> (OH, OW, C, K, K)

    Padding has the index behind the image's end.
    """
    where = np.arange(np.prod(shape)).reshape(shape)
    where = np.pad(where, ((pad, pad), (pad, pad), (0, 0)), constant_values=where.size)
    return np.lib.stride_tricks.sliding_window_view(where, (k, k), axis=(0, 1))[::stride, ::stride]


def patches(x: np.ndarray, layer: MatrixLayer) -> np.ndarray:
    """The inputs of each place. (x,) -> (places, Q)"""
    return np.append(x, 0)[layer.places]


def matrix(layer: MatrixLayer, weight: np.ndarray, inputs: int) -> np.ndarray:
    """A, with y = A x + b: one row for each place and output. -> (places * O, inputs)"""
    a = np.zeros((len(layer.places), weight.shape[1], inputs + 1))
    a[np.arange(len(a))[:, None], :, layer.places] = weight
    return a.reshape(-1, inputs + 1)[:, :-1]


@dataclass(frozen=True)
class LayerState:
    """One layer in the forward pass of one image."""

    layer: MatrixLayer
    x: np.ndarray
    x_error: np.ndarray  # of any evaluation
    y: np.ndarray
    y_error: np.ndarray
    choice: np.ndarray  # number of the candidate: 0, or 1 + number in the window
    chosen: np.ndarray  # the same as an index of y; behind its end where 0 was chosen
    doubtful: int
    slopes: Arrays  # dy/dy of each layer below

    @property
    def largest(self) -> np.ndarray:
        """A bound for every evaluation's |x|: both x itself and that evaluation may be inexact."""
        return abs(self.x) + 2 * self.x_error


def forward(x: np.ndarray, layers: list[MatrixLayer], unit: float) -> list[LayerState]:
    """The states of all layers, first one first."""
    states: list[LayerState] = []
    own, x_error = [], np.zeros_like(x)
    for layer in layers:
        slopes = []
        if states:  # this y by the y of the layer below
            slope = collect(matrix(layer, layer.weight, len(x)).T, states[-1]).T
            slopes = [slope @ below for below in states[-1].slopes] + [slope]
        y = (patches(x, layer) @ layer.weight + layer.bias).reshape(-1)
        order = gamma(len(layer.weight) + 1, unit)
        weight = deviation(layer.weight, layer.weight_spread, order)
        bias = deviation(layer.bias, layer.bias_spread, order)
        own.append((patches(abs(x) + 2 * x_error, layer) @ weight + bias).reshape(-1))
        y_error = own[-1] + sum(abs(slope) @ error for slope, error in zip(slopes, own))
        choice, chosen, doubtful = choose_largest(y, y_error, layer.windows)
        states.append(LayerState(layer, x, x_error, y, y_error, choice, chosen, doubtful, slopes))
        x, x_error = np.append(y, 0)[chosen], np.append(y_error, 0)[chosen]
    return states


def deviation(weight: np.ndarray, spread: np.ndarray, order: float) -> np.ndarray:
    """How far an evaluation's weight may be from the given one, roundings of products included."""
    return order * abs(weight) + (1 + order) * spread


def choose_largest(
    y: np.ndarray, y_error: np.ndarray, windows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """The largest of 0 and the window's pixels, the first of equal ones.

    -> (number, index of y, how many are doubtful)
    """
    candidates = np.insert(windows, 0, len(y), axis=1)  # the 0 lies behind the end of y
    value, error = np.append(y, 0)[candidates], np.append(y_error, 0)[candidates]
    best = value.argmax(axis=1)[:, None]
    lead = np.take_along_axis(value - 2 * error, best, 1) - (value + 2 * error)
    np.put_along_axis(lead, best, 1, 1)
    chosen = np.take_along_axis(candidates, best, 1)[:, 0]
    return best[:, 0], chosen, int((lead <= 0).any(axis=1).sum())


def collect(dx: np.ndarray, state: LayerState) -> np.ndarray:
    """Backward through choices: a pixel of y gets the sum over windows that chose it."""
    dy = np.zeros((len(state.y) + 1, *dx.shape[1:]))
    np.add.at(dy, state.chosen, dx)
    return dy[:-1]


def backward(
    states: list[LayerState], label: int, global_batch: int, unit: float
) -> list[tuple[np.ndarray, np.ndarray]]:
    """[(dy, error of dy)] of each layer, first one first."""
    found = [softmax_rounding(states[-1], label, global_batch, unit)]
    own = [found[0][1]]
    for number in reversed(range(len(states) - 1)):
        state, above, (dy, dy_error) = states[number], states[number + 1], found[0]
        layer, inputs = above.layer, len(above.x)
        a = matrix(layer, layer.weight, inputs)
        order = gamma(np.count_nonzero(a, axis=0).max() + state.layer.windows.shape[1], unit)
        blurred = matrix(layer, deviation(layer.weight, layer.weight_spread, order), inputs)
        own.insert(0, collect(blurred.T @ (abs(dy) + 2 * dy_error), state))
        later = zip(states[number + 1 :], own[1:])
        inherited = [abs(other.slopes[number]).T @ error for other, error in later]
        found.insert(0, (collect(a.T @ dy, state), own[0] + sum(inherited)))
    return found


def parameter_terms(
    state: LayerState, dy: np.ndarray, dy_error: np.ndarray, batch: int, unit: float
) -> tuple[np.ndarray, ...]:
    """One image's gradients of bias and weight, and their bounds, in a batch of `batch` images."""
    layer, places = state.layer, len(state.layer.places)
    dy, dy_error = dy.reshape(places, -1), dy_error.reshape(places, -1)  # -> (places, O)
    x, largest_x = patches(state.x, layer), patches(state.largest, layer)
    largest_dy = abs(dy) + 2 * dy_error
    blurred = dy_error + gamma(batch * len(dy), unit) * largest_dy
    weight_bound = largest_x.T @ blurred + patches(state.x_error, layer).T @ largest_dy
    return dy.sum(0), x.T @ dy, blurred.sum(0), weight_bound


def softmax_rounding(
    state: LayerState, label: int, global_batch: int, unit: float
) -> tuple[np.ndarray, np.ndarray]:
    """N8's gradient for one sample's logits, and its error.

    A share of exp(z) is off by at most a factor exp(r).
    """
    shifted = state.y - state.y.max()
    p = np.exp(shifted) / np.exp(shifted).sum()
    dy = (p - (np.arange(len(p)) == label)) / global_batch
    largest = (state.y_error + unit * (abs(shifted) + 2 * state.y_error)).max()
    r = 2 * largest + gamma(len(p) + 17, unit)
    if not r < 100:
        raise ValueError(
            f"alexnet_rounding: got logits that may be off by {r / 2:.3g}; wanted below 50; "
            "next: float64, fewer steps, a smaller spread"
        )
    order = gamma(2, unit)
    return dy, (1 + order) * np.exp(r) * np.expm1(r) * p / global_batch + order * abs(dy)


# ---- records ----


def run_rounding(module: Any, case: Case) -> Outputs:
    tensors, spread = (
        [case[f"in.{kind}{i:02}"] for i in range(16)] for kind in ("tensor", "spread")
    )
    settings = select(case, "global_batch", "unit").values()
    images = case["in.images"], case["in.labels"]
    result = module.alexnet_rounding(*images, tensors, *settings, spread)
    gradients = {f"out.gradient{i:02}": g for i, g in enumerate(result.gradients)}
    return gradients | {f"out.bound{i:02}": b for i, b in enumerate(result.bounds)}


def run_momentum(module: Any, case: Case) -> Outputs:
    apart = tuple(case[f"in.{name}_apart"] for name in "wvg")
    settings = select(case, "rate", "momentum", "decay", "unit").values()
    w, v = module.momentum_rounding(case["in.w"], case["in.v"], case["in.g"], apart, *settings)
    return {"out.w_apart": w, "out.v_apart": v}


N12 = Statement("N12", alexnet_rounding)
N12.given("machine epsilon in place of the unit roundoff", unit=lambda unit: 2 * unit)
N12.given("parameters are treated as exact", spread=lambda spread: None)
N13 = Statement("N13", momentum_rounding)
N13.given("the decay is left out", decay=lambda decay: 0.0)
NUMBERED = [f"{kind}{i:02}" for kind in ("tensor", "spread") for i in range(16)]
ROUNDING = JudgedFunction(
    alexnet_rounding, "N12", {}, " ".join([*NUMBERED, "images", "labels"]), run_rounding
)
MOMENTUM = JudgedFunction(
    momentum_rounding,
    "N13",
    {"w_apart": ("element",), "v_apart": ("element",)},
    "w v g w_apart v_apart g_apart",
    run_momentum,
)


@ROUNDING.golden
def rounding_cases() -> Cases:
    """Without normalisation, 16 tensors. Rounding in float64 moves the bounds by about 1e-12."""
    rng = random_source("rounding")
    shapes = SHAPES + [s for i, o, k in reversed(CHANNELS) for s in ((o,), (k, k, i, o))]
    tensors = weights(rng, shapes)
    arrays: Given = {f"tensor{i:02}": tensor for i, tensor in enumerate(tensors)}
    arrays |= {f"spread{i:02}": 1e-13 * abs(tensor) for i, tensor in enumerate(tensors)}
    arrays |= {"images": rng.standard_normal((2, 67, 67, 3)), "labels": np.array([3, 0])}
    why = (
        "bounds of 16 gradients where parameters may be 1e-13 of themselves off; "
        "rounding can change no choice"
    )
    case = ROUNDING.case("alexnet-rounding", why, global_batch=5, unit=U, **arrays)
    for i in range(16):
        case.tensors[f"bound.gradient{i:02}"] = case[f"out.bound{i:02}"]
        case.tensors[f"bound.bound{i:02}"] = 1e-9 * case[f"out.bound{i:02}"]
    yield case
    arrays = {name: rng.standard_normal(7) for name in "wvg"}
    arrays |= {f"{name}_apart": 1e-6 * rng.random(7) for name in "wvg"}
    given: Given = {"rate": 0.1, "momentum": 0.9, "decay": 0.01, "unit": 2.0**-24}
    case = MOMENTUM.case("momentum-rounding", "one step in float32", **given, **arrays)
    sizes = case["out.w_apart"], case["out.v_apart"]
    case.tensors |= bounds(("w_apart", "v_apart"), 1e-9, sizes)
    yield case
