"""The rounding bound against evaluations that round as badly as they can."""

import dataclasses
import functools

import numpy as np
import pytest

from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.oracle.spec import rounding
from refgf.oracle.spec.momentum.sgd import momentum_step

IMAGES = 4
UNIT = 2.0**-36  # far above float64's, so that what float64 itself rounds does not matter


def network():
    net = AlexNet(10, 67, 1 / 16, "none", 0.0, workspace=Workspace(dtype=np.float64))
    parameters, gradients = ([np.zeros(spec.shape) for spec in net.tensors] for _ in range(2))
    net.bind(parameters, gradients)
    net.initialize(2)
    return net, parameters, gradients


@functools.cache
def batch():
    random = np.random.default_rng(1)
    return random.standard_normal((IMAGES, 67, 67, 3)), random.integers(0, 10, IMAGES)


def gradients_at(change):
    """AlexNet's gradients and weights when each weight w has become change(w, its gradient)."""
    net, parameters, gradients = network()
    images, labels = batch()
    for repeat in range(2):
        net.loss(images, labels, IMAGES)
        net.backward(lambda i: None)
        if repeat == 0:
            for w, g in zip(parameters, gradients):
                w[...] = change(w, g)
    return [g.copy() for g in gradients], parameters


def worst(differences, bounds):
    return max(np.max(np.abs(d) / np.maximum(b, 1e-300)) for d, b in zip(differences, bounds))


def test_the_gradients_are_those_of_the_network():
    gradients, parameters = gradients_at(lambda w, g: w)
    result = rounding.alexnet_rounding(*batch(), parameters, IMAGES, 2.0**-53)
    assert result.doubtful == 0
    assert worst([a - b for a, b in zip(gradients, result.gradients)], result.bounds) <= 2


def hostile(factor):
    """Each product rounded by `factor`, a layer's number of terms, so that the loss grows."""
    return lambda w, g: w * (1 + UNIT * factor(w) * np.sign(w * g)) if w.ndim > 1 else w


def terms(w):
    """Roundings of a product with w, forward and backward: the length of the shorter sum."""
    return min(w[..., 0].size, w.shape[-1] * (w[..., 0, 0].size if w.ndim == 4 else 1))


def used_by_hostile_rounding(spread=False):
    exact, parameters = gradients_at(lambda w, g: w)
    room = [UNIT * terms(w) * np.abs(w) if w.ndim > 1 else np.zeros(w.shape) for w in parameters]
    result = rounding.alexnet_rounding(
        *batch(), parameters, IMAGES, *((2.0**-53, room) if spread else (UNIT,))
    )
    got, _ = gradients_at(hostile(terms))
    return worst([a - b for a, b in zip(got, exact)], result.bounds)


@pytest.mark.parametrize("spread", [False, True])
def test_hostile_rounding_stays_within_the_bound_and_comes_near_it(spread):
    """A relative change of a weight rounds all its products, or is a spread of the parameters."""
    assert 0.1 < used_by_hostile_rounding(spread) <= 1


def one_rounding_a_sum(monkeypatch):
    monkeypatch.setattr(rounding, "gamma", lambda n, unit: unit)


def errors_that_stay_in_their_layer(monkeypatch):
    right = rounding.forward

    def forward(*args):
        return [
            dataclasses.replace(row, slopes=[0 * slope for slope in row.slopes])
            for row in right(*args)
        ]

    monkeypatch.setattr(rounding, "forward", forward)


@pytest.mark.parametrize("mistake", [one_rounding_a_sum, errors_that_stay_in_their_layer])
def test_bounds_that_forget_something_are_violated(monkeypatch, mistake):
    mistake(monkeypatch)
    assert used_by_hostile_rounding() > 1


def test_no_promise_where_the_bound_is_useless():
    _, parameters = gradients_at(lambda w, g: w)
    with pytest.raises(ValueError, match="wanted below 50"):
        rounding.alexnet_rounding(*batch(), parameters, IMAGES, 2.0**-11)


def test_momentum_rounding_holds_and_is_needed():
    random = np.random.default_rng(0)
    w, v, g = random.standard_normal((3, 1000)) * 10.0 ** random.integers(-3, 3, 1000)
    rate, momentum, decay = 0.02, 0.9, 5e-4
    args = [np.float32(x).astype(np.float64) for x in (rate, momentum, decay)]  # as M1 rounds them
    apart = [random.random(1000) * 1e-7 * np.abs(x) for x in (w, v, g)]
    one = [x.astype(np.float32) for x in (w, v, g)]
    w32, v32, g32 = (x.astype(np.float64) for x in one)
    other = momentum_step(w32 + apart[0], v32 - apart[1], g32 + apart[2], *args)
    got = momentum_step(*one, *args)
    bounds = rounding.momentum_rounding(w32, v32, g32, apart, *args, 2.0**-24)
    assert all((np.abs(a - b) <= bound).all() for a, b, bound in zip(got, other, bounds))
    idle = rounding.momentum_rounding(w32, v32, g32, apart, *args, 0.0)
    assert not all((np.abs(a - b) <= bound).all() for a, b, bound in zip(got, other, idle))
