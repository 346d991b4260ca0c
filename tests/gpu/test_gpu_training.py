"""Training on a GPU: the optimisers' bits; GradientFlow near the CPU's run, alike on all ranks."""

import numpy as np
import pytest

from refgf import device
from refgf.exchange.precision import LossScale
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.jia.lars import LARS
from refgf.training.sgd import MomentumSGD
from tests.support.gpu_cases import SETTINGS, train
from tests.support.sgd_cases import RATES, data, run, same_bits
from tests.support.stacks import new_flow


def on_both(cupy, optimizer, dtype, **options):
    """(parameters, velocity) after three steps on the CPU, and on the device."""
    w, gradients = data(1, dtype)
    got = run(optimizer, cupy.asarray(w), [cupy.asarray(g) for g in gradients], RATES, **options)
    return run(optimizer, w, gradients, RATES, **options), [device.to_host(x) for x in got]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "slices", [None, [slice(2, 3), slice(5, 30), slice(50, 61)]], ids=["all", "slices"]
)
@pytest.mark.parametrize("momentum, weight_decay", [(0.9, 5e-4), (0.0, 0.1), (0.9, 0.0)])
def test_momentum_sgd_has_the_bits_of_the_cpu(cupy, dtype, slices, momentum, weight_decay):
    options = dict(slices=slices, momentum=momentum, weight_decay=weight_decay)
    wanted, got = on_both(cupy, MomentumSGD, dtype, **options)
    assert same_bits(got, wanted)
    options["momentum"] += 0.01
    other, _ = on_both(cupy, MomentumSGD, dtype, **options)
    assert not same_bits(got, other)


def test_lars_in_float64_agrees_with_the_cpu(cupy):
    """Only norms are sums whose order differs: a few roundings of 2^-53 each."""
    for a, b in zip(*on_both(cupy, LARS, np.float64, trust=0.01, weight_decay=1e-3)):
        assert np.linalg.norm(a - b) <= 1e-14 * np.linalg.norm(b)


PRODUCTS = 16  # that a number passes: AlexNet's eight layers with weights, forward and backward


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(settings))
def test_training_goes_as_on_the_cpu(cupy, on_ranks, settings):
    """The losses of three steps; `train` raises where ranks end with different parameters.

    On a device each of PRODUCTS sums may round differently. What one rounding does to a loss and to
    the steps after it is measured on the CPU: the largest change, of four seeds, that an error of
    one unit in the last place of the images has made so far, and at least one unit of the loss.
    """

    def body(comm):
        device.select(comm.Get_rank())
        (wanted, _), (got, _) = train(comm, np, settings), train(comm, cupy, settings)
        others = [train(comm, np, settings, rounded=seed)[0] for seed in (1, 2, 3, 4)]
        one = np.maximum.accumulate(np.abs(np.subtract(others, wanted)).max(axis=0))
        one = np.maximum(one, np.spacing(settings.get("dtype", np.float32)(wanted)))
        assert np.all(np.abs(np.subtract(got, wanted)) <= PRODUCTS * one)
        assert np.all(PRODUCTS * one < 0.5 * np.ptp(wanted))  # or the bound could not fail

    on_ranks(body, sizes=(3,))


def trained(comm, xp, dtype, seed=0, overlap=True):
    """(how the parameters moved in five steps, the choices), with every part of the stack."""
    network = AlexNet(5, 67, width=1 / 32, dropout=0.0, workspace=Workspace(xp, dtype))
    rng, chosen = np.random.default_rng([seed, comm.Get_rank()]), []
    with new_flow(
        comm,
        network,
        wire=np.float16,
        half_weights=True,
        loss_scale=LossScale(2.0**8),
        density=20,
        chunk=256,
        theta_bytes=2000,
        overlap=overlap,
        weight_decay=1e-3,
    ) as flow:
        before = device.to_host(flow.model.parameters.flat).copy()
        for _ in range(5):
            images = rng.standard_normal((4, *network.image_shape)).astype(dtype)
            flow.step(images, rng.integers(0, 5, 4), 4 * comm.Get_size(), 0.01)
            chosen.append(flow.csc.chosen)
            assert flow.result.accepted
        flow.require_same_parameters()
        return device.to_host(flow.model.parameters.flat).astype(np.float64) - before, chosen


@pytest.mark.parametrize("overlap", [False, True])
def test_gradientflow_ends_where_the_cpu_does(cupy, on_ranks, overlap):
    """float32 and float64 part where a rounding to float16 falls on the other side. On the CPU the
    ways that the parameters went differ by 6e-5 of their length; 1e-3 is left to it and to the
    device. Other data differ by more than 0.1."""

    def body(comm):
        device.select(comm.Get_rank())
        wanted, chosen = trained(comm, np, np.float64)
        other, _ = trained(comm, np, np.float64, seed=1)
        for xp in (np, cupy):
            got, got_chosen = trained(comm, xp, np.float32, overlap=overlap)
            assert got_chosen == chosen
            assert np.linalg.norm(got - wanted) <= 1e-3 * np.linalg.norm(wanted)
        assert np.linalg.norm(other - wanted) > 0.1 * np.linalg.norm(wanted)

    on_ranks(body, sizes=(2, 3))
