"""Momentum SGD against its definition, bit for bit."""

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.sgd_cases import RATES, SPECS, N, data, same_bits

from refgf.engine.threaded import ThreadedWorkspace
from refgf.oracle.definitions import momentum_step
from refgf.training import sgd
from refgf.training.sgd import MomentumSGD


def by_definition(w, gradients, rates, momentum, weight_decay, chosen=slice(None)):
    decayed = np.concatenate([np.full(math.prod(s.shape), s.decay) for s in SPECS])[chosen]
    w, v = w.copy(), np.zeros_like(w)
    for g, rate in zip(gradients, rates):
        part = momentum_step(w[chosen], v[chosen], g[chosen], rate, momentum, weight_decay, decayed)
        w[chosen], v[chosen] = part
    return w, v


def run(optimiser_class, w, gradients, rates, block=None, slices=None, **options):
    optimiser = optimiser_class(SPECS, w.copy(), **{"weight_decay": 5e-4} | options)
    with mock.patch.object(sgd, "BLOCK_ELEMENTS", block or sgd.BLOCK_ELEMENTS):
        for g, rate in zip(gradients, rates):
            optimiser.step(g, rate, slices)
    return optimiser.parameters, optimiser.velocity


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("block", [1, 2, 7, 10, N - 1, N, None])
@pytest.mark.parametrize("momentum, weight_decay", [(0.9, 5e-4), (0.0, 0.1), (0.9, 0.0)])
def test_bits_are_those_of_the_definition(dtype, block, momentum, weight_decay):
    w, gradients = data(1, dtype)
    got = run(MomentumSGD, w, gradients, RATES, block, momentum=momentum, weight_decay=weight_decay)
    assert same_bits(got, by_definition(w, gradients, RATES, momentum, weight_decay))


@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize("block", [1, 10, None])
def test_threads_change_no_bit(threads, block):
    w, gradients = data(1, np.float32)
    slices = [slice(2, 3), slice(3, N // 2), slice(N - 5, N)]
    for chosen in (None, slices):
        got = run(
            MomentumSGD, w, gradients, RATES, block, chosen, workspace=ThreadedWorkspace(threads)
        )
        assert same_bits(got, run(MomentumSGD, w, gradients, RATES, block, chosen))


@pytest.mark.parametrize("number", [np.float64, np.float32, float])
def test_the_type_of_the_rate_does_not_matter(number):
    w, gradients = data(2, np.float32)
    rates = [number(0.125), number(0.25), number(0.5)]  # the same in all three types
    options = dict(momentum=number(0.5), weight_decay=number(0.25))
    got = run(MomentumSGD, w, gradients, rates, **options)
    assert same_bits(got, by_definition(w, gradients, rates, 0.5, 0.25))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, N), max_size=8), st.sampled_from([1, 7, 1000]))
def test_slices_touch_nothing_else(cuts, block):
    cuts = sorted(cuts)
    chosen = [slice(a, b) for a, b in zip(cuts[::2], cuts[1::2])]
    indices = [i for s in chosen for i in range(s.start, s.stop)]
    w, gradients = data(3, np.float32)
    got = run(MomentumSGD, w, gradients, RATES, block, slices=chosen)
    assert same_bits(got, by_definition(w, gradients, RATES, 0.9, 5e-4, indices))
    untouched = np.setdiff1d(np.arange(N), indices)
    assert np.array_equal(got[0][untouched], w[untouched]) and not got[1][untouched].any()


def test_gradients_are_not_changed_and_parameters_are_updated_in_place():
    w, (g, *_) = data(4, np.float32)
    before = g.copy()
    optimiser = MomentumSGD(SPECS, w)
    optimiser.step(g, 0.1)
    assert np.array_equal(g, before) and optimiser.parameters is w


def test_an_empty_pool():
    MomentumSGD([], np.zeros(0, np.float32)).step(np.zeros(0, np.float32), 0.1)


def test_infinity_in_a_tensor_without_decay_stays_there():
    """0 * inf would be NaN: without decay the parameter is not looked at."""
    w, gradients = data(5, np.float32, steps=1)
    w[0] = np.inf
    got, velocity = run(MomentumSGD, w, gradients, [0.1])
    assert got[0] == np.inf and np.isfinite(velocity).all()


def test_pytorch_follows_the_same_convention():
    torch = pytest.importorskip("torch")
    w, gradients = data(6, np.float64)
    parameters = [torch.nn.Parameter(torch.tensor(w[i : i + 1])) for i in range(N)]
    decays = [spec.decay for spec in SPECS for _ in range(math.prod(spec.shape))]
    groups = [{"params": [p], "weight_decay": 5e-4 * decay} for p, decay in zip(parameters, decays)]
    peer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    for g, rate in zip(gradients, RATES):
        for group, p, one in zip(peer.param_groups, parameters, g):
            group["lr"], p.grad = rate, torch.tensor([one])
        peer.step()
    got, _ = run(MomentumSGD, w, gradients, RATES)
    theirs = np.array([p.item() for p in parameters])
    # PyTorch may fuse a product with its sum. Two programs, 3 steps, 6 roundings a step of values
    # that are at most the sum of all magnitudes; an error in v is added to w up to 3 times
    bound = 2 * 3 * 6 * 3 * 2.0**-53 * (np.abs(w) + sum(np.abs(g) for g in gradients))
    assert np.all(np.abs(got - theirs) <= bound)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda w: MomentumSGD(SPECS, w[:-1]), r"wanted contiguous \(\d+,\)"),
        (lambda w: MomentumSGD(SPECS, np.zeros(2 * N, np.float32)[::2]), "contiguous"),
        (lambda w: MomentumSGD(SPECS, w.astype(np.float16)), "float32 master weights"),
        (lambda w: MomentumSGD(SPECS, w, momentum=1.0), "momentum=1.0"),
        (lambda w: MomentumSGD(SPECS, w, weight_decay=math.nan), "weight_decay=nan"),
        (
            lambda w: MomentumSGD(SPECS, w).step(w.astype(np.float64), 0.1),
            "got gradients .* float64",
        ),
        (lambda w: MomentumSGD(SPECS, w).step(w[1:], 0.1), "got gradients"),
        (lambda w: MomentumSGD(SPECS, w).step(w, math.nan), "rate: got nan"),
        (lambda w: MomentumSGD(SPECS, w).step(w, -0.1), "rate: got -0.1"),
        (lambda w: MomentumSGD(SPECS, w).step(w, "fast"), "rate: got 'fast'; .*; next: 0.01"),
        (lambda w: MomentumSGD(SPECS, w).step(w, 0.1, [slice(0, N + 1)]), "disjoint"),
        (lambda w: MomentumSGD(SPECS, w).step(w, 0.1, [slice(3, 5), slice(4, 6)]), "disjoint"),
        (lambda w: MomentumSGD(SPECS, w).step(w, 0.1, [slice(0, 6, 2)]), "disjoint"),
    ],
)
def test_callers_mistakes(call, message):
    with pytest.raises(ValueError, match=f"(MomentumSGD|optimiser).*{message}"):
        call(np.ones(N, np.float32))


def test_a_wrong_list_of_slices_changes_nothing():
    w = np.ones(N, np.float32)
    with pytest.raises(ValueError):
        MomentumSGD(SPECS, w).step(w.copy(), 0.1, [slice(0, 4), slice(2, 6)])
    assert np.all(w == 1)
