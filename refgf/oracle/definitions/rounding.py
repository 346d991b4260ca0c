"""N12 and N13: how far rounding may move a gradient, and the parameters, whatever the order of summation.

For AlexNet without normalisation and dropout (16 tensors in the order of generation). A layer is a matrix product
y = A x + b, and ReLU with the pooling after it, if any, picks from each window its largest pixel, or 0. Call that its
choice: for given choices everything is linear, so a rounding error d in layer l adds exactly (dy_m/dy_l) d to layer m
above it, and likewise on the way back. What is left is to bound each layer's own errors: a sum of n products in any
order (blocks, threads, ranks), fused multiply-adds or not, errs by at most gamma_n = n u / (1 - n u) times the sum of
the products' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, ch. 3 and 4).

Assumed: no overflow or underflow, exp within 8 u, and the rounding of the bound itself (about 1e-12 of it) is left out.
"""

from dataclasses import dataclass

import numpy as np

from refgf.oracle.definitions.alexnet import CONVOLUTIONS


@dataclass(frozen=True)
class Rounding:
    """gradients, bounds: 16 arrays each, float64
    choices: an array (N, windows) for each layer but the last: 0 where ReLU gives 0, else 1 + pixel of the window
    doubtful: how many choices rounding could change"""

    gradients: list
    bounds: list
    choices: list
    doubtful: int


def alexnet_rounding(images, labels, tensors, global_batch, unit, spread=None):
    """N12: an evaluation with unit roundoff `unit` that makes these choices is within `bounds` of the exact gradient.

    So two of them, on 1 rank and on p, differ by at most 2 bounds. An evaluation may use parameters that are up to
    `spread` (16 arrays, None for 0) away from `tensors`. If doubtful is 0, every evaluation makes these choices.
    """
    spread = [np.zeros(t.shape) for t in tensors] if spread is None else spread
    layers = matrix_layers([t.astype(np.float64) for t in tensors], spread, images.shape[1:])
    sums = [[0.0, 0.0, 0.0, 0.0] for _ in layers]  # bias gradient, weight gradient, their bounds
    choices, doubtful = [[] for _ in layers[:-1]], 0
    for image, label in zip(images.astype(np.float64), labels):
        rows = forward(image.reshape(-1), layers, unit)
        for total, layer, row, (dy, dy_error) in zip(sums, layers, rows, backward(rows, label, global_batch, unit)):
            dy, dy_error = dy.reshape(len(layer.places), -1), dy_error.reshape(len(layer.places), -1)  # (places, O)
            x, largest_x, largest_dy = patches(row.x, layer), patches(row.largest, layer), abs(dy) + 2 * dy_error
            order = gamma(len(images) * len(dy), unit)
            terms = dy.sum(0), x.T @ dy, (dy_error + order * largest_dy).sum(0)
            weight_bound = largest_x.T @ (dy_error + order * largest_dy) + patches(row.x_error, layer).T @ largest_dy
            for i, term in enumerate((*terms, weight_bound)):
                total[i] += term
        for found, row in zip(choices, rows):
            found.append(row.choice)
            doubtful += row.doubtful
    arrays = [pair for total in sums[::-1] for pair in (total[:2], total[2:])]  # the order of generation
    gradients, bounds = ([a for pair in arrays[start::2] for a in pair] for start in (0, 1))
    shaped = [[a.reshape(t.shape) for a, t in zip(parts, tensors)] for parts in (gradients, bounds)]
    return Rounding(*shaped, [np.array(found) for found in choices], doubtful)


def momentum_rounding(w, v, g, apart, rate, momentum, decay, unit):
    """N13: how far apart two evaluations of M1 may end. -> (w_apart, v_apart)

    w, v, g: of one of them; apart: how far apart their w, v and g may be. A product of M1 is rounded at most 5 times.
    Steps follow each other: w_apart is the next step's spread in N12, and g_apart is 2 bounds. It grows fast.
    """
    w_apart, v_apart, g_apart = apart
    v_size = momentum * (abs(v) + v_apart) + abs(g) + g_apart + decay * (abs(w) + w_apart)
    v_apart = momentum * v_apart + g_apart + decay * w_apart
    order = 2 * gamma(5, unit)
    return w_apart + rate * v_apart + order * (abs(w) + w_apart + rate * v_size), v_apart + order * v_size


def gamma(n, unit):
    return n * unit / (1 - n * unit)


@dataclass(frozen=True)
class MatrixLayer:
    """y[place, o] = sum over q of x[places[place, q]] weight[q, o] + bias[o]; x has a 0 after its end, for padding."""

    places: np.ndarray  # (places, Q) into x
    weight: np.ndarray  # (Q, O)
    bias: np.ndarray  # (O,)
    weight_spread: np.ndarray
    bias_spread: np.ndarray
    windows: np.ndarray  # (windows, pixels) into y: what ReLU and pooling choose from


def matrix_layers(tensors, spread, shape):
    """The eight layers, first one first; shape (H, W, C) of the images."""
    layers, pairs = [], [(a[-2::-2], a[-1::-2]) for a in (tensors, spread)]  # biases, weights: first layer first
    for i, (b, w, b_spread, w_spread) in enumerate(zip(*pairs[0], *pairs[1])):
        if w.ndim == 4:
            stride, pad, pooled = CONVOLUTIONS[i]
            under = windows(shape, len(w), stride, pad).transpose(0, 1, 3, 4, 2)  # (OH, OW, K, K, C)
        else:
            under, pooled = np.arange(len(w)).reshape(1, 1, -1), False
        places, w = under.reshape(under.shape[0] * under.shape[1], -1), w.reshape(-1, len(b))
        chosen = windows((*under.shape[:2], len(b)), *((3, 2) if pooled else (1, 1)))
        shape = chosen.shape[:3]
        chosen, w_spread = chosen.reshape(np.prod(shape), -1), w_spread.reshape(w.shape)
        layers.append(MatrixLayer(places, w, b, w_spread, b_spread, chosen))
    return layers


def windows(shape, k, stride, pad=0):
    """Where the pixels of each window lie in the flattened image; padding lies at its end. -> (OH, OW, C, K, K)"""
    where = np.arange(np.prod(shape)).reshape(shape)
    where = np.pad(where, ((pad, pad), (pad, pad), (0, 0)), constant_values=where.size)
    return np.lib.stride_tricks.sliding_window_view(where, (k, k), axis=(0, 1))[::stride, ::stride]


def patches(x, layer):
    return np.append(x, 0)[layer.places]


def matrix(layer, weight, inputs):
    """A, with y = A x + b: one row for each place and output. -> (places * O, inputs)"""
    a = np.zeros((len(layer.places), weight.shape[1], inputs + 1))
    a[np.arange(len(a))[:, None], :, layer.places] = weight
    return a.reshape(-1, inputs + 1)[:, :-1]


@dataclass(frozen=True)
class Row:
    """One layer's part in the forward pass of one image."""

    layer: MatrixLayer
    x: np.ndarray
    x_error: np.ndarray  # of any evaluation
    y: np.ndarray
    y_error: np.ndarray
    choice: np.ndarray  # number of the candidate: 0, or 1 + number in the window
    chosen: np.ndarray  # the same as a place in y; behind its end where 0 was chosen
    doubtful: int
    slopes: list  # dy/dy of each layer below

    @property
    def largest(self):
        """No evaluation's |x| is larger: x itself may be an error off the exact one, and the evaluation another."""
        return abs(self.x) + 2 * self.x_error


def forward(x, layers, unit):
    rows, own, x_error = [], [], np.zeros_like(x)
    for layer in layers:
        slopes = []
        if rows:
            slope = collect(matrix(layer, layer.weight, len(x)).T, rows[-1]).T  # this y by the y of the layer below
            slopes = [slope @ below for below in rows[-1].slopes] + [slope]
        y = (patches(x, layer) @ layer.weight + layer.bias).reshape(-1)
        order = gamma(len(layer.weight) + 1, unit)
        weight, bias = off(layer.weight, layer.weight_spread, order), off(layer.bias, layer.bias_spread, order)
        own.append((patches(abs(x) + 2 * x_error, layer) @ weight + bias).reshape(-1))
        y_error = own[-1] + sum(abs(slope) @ error for slope, error in zip(slopes, own))
        choice, chosen, doubtful = choose_largest(y, y_error, layer.windows)
        rows.append(Row(layer, x, x_error, y, y_error, choice, chosen, doubtful, slopes))
        x, x_error = np.append(y, 0)[chosen], np.append(y_error, 0)[chosen]
    return rows


def off(weight, spread, order):
    """How far an evaluation's weight, roundings of the products with it included, may be from the given weight."""
    return order * abs(weight) + (1 + order) * spread


def choose_largest(y, y_error, windows):
    """The largest of 0 and the window's pixels, the first of equal ones. -> (number, place in y, how many doubtful)"""
    candidates = np.insert(windows, 0, len(y), axis=1)  # behind the end of y lies the 0
    value, error = np.append(y, 0)[candidates], np.append(y_error, 0)[candidates]
    best = value.argmax(axis=1)[:, None]
    lead = np.take_along_axis(value - 2 * error, best, 1) - (value + 2 * error)
    np.put_along_axis(lead, best, 1, 1)
    return best[:, 0], np.take_along_axis(candidates, best, 1)[:, 0], int((lead <= 0).any(axis=1).sum())


def collect(dx, row):
    """Back through the choices of `row`: each pixel of y gets the sum over the windows that chose it. (x,) -> (y,)"""
    dy = np.zeros((len(row.y) + 1, *dx.shape[1:]))
    np.add.at(dy, row.chosen, dx)
    return dy[:-1]


def backward(rows, label, global_batch, unit):
    """[(dy, error of dy)] of each layer, first one first."""
    found = [softmax_rounding(rows[-1], label, global_batch, unit)]
    own = [found[0][1]]
    for number in reversed(range(len(rows) - 1)):
        here, above, (dy, dy_error) = rows[number], rows[number + 1], found[0]
        a = matrix(above.layer, above.layer.weight, len(above.x))
        order = gamma(np.count_nonzero(a, axis=0).max() + here.layer.windows.shape[1], unit)
        blurred = matrix(above.layer, off(above.layer.weight, above.layer.weight_spread, order), len(above.x))
        own.insert(0, collect(blurred.T @ (abs(dy) + 2 * dy_error), here))
        passed_on = [abs(row.slopes[number]).T @ error for row, error in zip(rows[number + 1 :], own[1:])]
        found.insert(0, (collect(a.T @ dy, here), own[0] + sum(passed_on)))
    return found


def softmax_rounding(row, label, global_batch, unit):
    """N8's gradient for one sample's logits, and its error: a share of exp(z) is off by at most a factor exp(r)."""
    shifted = row.y - row.y.max()
    p = np.exp(shifted) / np.exp(shifted).sum()
    dy = (p - (np.arange(len(p)) == label)) / global_batch
    r = 2 * (row.y_error + unit * (abs(shifted) + 2 * row.y_error)).max() + gamma(len(p) + 17, unit)
    if not r < 100:
        raise ValueError(
            f"alexnet_rounding: a logit may be off by {r / 2:.3g}, so nothing can be promised; wanted below 50; "
            "next: float64, fewer steps, a smaller spread"
        )
    order = gamma(2, unit)
    return dy, (1 + order) * np.exp(r) * np.expm1(r) * p / global_batch + order * abs(dy)
