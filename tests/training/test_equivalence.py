"""p ranks compute what 1 rank computes, within rounding. Bit for bit: test_ladder.py.

The bound is derived in refgf/oracle/spec/rounding.py. `pytest -s` prints how much of it is
used up.
"""

import functools
from dataclasses import dataclass, field

import numpy as np
import pytest

from refgf.comm import direct, ring
from refgf.machine import threads
from refgf.comm.schedule import collective
from refgf.comm.slices import slices
from refgf.exchange.dense import DenseExchange, Transport
from refgf.exchange.lazy import Theta
from refgf.nn.alexnet import AlexNet
from refgf.nn.conv import Convolution
from refgf.nn.layers import FullyConnected
from refgf.nn.pooling import MaxPool
from refgf.nn.workspace import Workspace
from refgf.oracle.spec.rounding import alexnet_rounding, momentum_rounding
from refgf.oracle.spec.floats import UNIT_ROUNDOFF
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica, train_step

RATE, MOMENTUM, DECAY = 1e-3, 0.9, 5e-4
SGD = functools.partial(MomentumSGD, momentum=MOMENTUM, weight_decay=DECAY)
# the bound grows about a hundredfold a step: float32 has room for one; momentum acts in the second
STEPS = {
    np.float64: 2,
    np.float32: 1,
}
# of 0 to 11: no choice (ReLU, pooling) is closer than 5e-5 of a typical value, far above float32's
# rounding
SEED = 10


def batch(ranks, dtype, step):
    """B = 2p + 1 samples, which no p > 1 divides."""
    random = np.random.default_rng([SEED, ranks, step])
    images = random.standard_normal((2 * ranks + 1, 67, 67, 3)).astype(dtype)
    return images, random.integers(0, 10, 2 * ranks + 1)


def shares(kind, size, samples):
    """Which samples each rank gets."""
    if kind == "one rank has none" and size > 1:
        return [slice(0, 0), *slices(samples, size - 1)]
    return slices(samples, size)


@dataclass
class Recorded:
    """What one rank saw: per step parameters and velocity before it, summed gradients, choices."""

    size: int
    rank: int
    gradients: list = field(default_factory=list)
    parameters: list = field(default_factory=list)
    velocities: list = field(default_factory=list)
    choices: list = field(default_factory=list)


def train(comm, dtype, algorithm=direct.allreduce, kind="uneven", ranks=None):
    """Train on the batches for `ranks` ranks (default: as many as there are)."""
    network = AlexNet(10, 67, 1 / 16, "none", 0.0, workspace=Workspace(dtype=dtype))
    model = replica(network, SGD, seed=SEED)
    allreduce = collective(comm, algorithm)
    exchange = DenseExchange(model.gradients, Transport(allreduce, Theta(0)), model.loss_scale)
    seen = Recorded(comm.size, comm.rank)
    for step in range(STEPS[dtype]):
        images, labels = batch(ranks or comm.size, dtype, step)
        mine = shares(kind, comm.size, len(images))[comm.rank]
        seen.parameters.append(model.parameters.flat.copy())
        seen.velocities.append(model.optimizer.velocity.copy())
        train_step(model, exchange, images[mine], labels[mine], len(labels), RATE)
        seen.gradients.append(model.gradients.flat.copy())
        seen.choices.append(choices(model.network))
    seen.parameters.append(model.parameters.flat.copy())
    return seen


def choices(network):
    """What ReLU and pooling chose in the last forward pass, as in alexnet_rounding."""
    found, pixel = [], 0
    for layer in network.layers:
        if isinstance(layer, MaxPool):
            pixel = layer.winner
        elif isinstance(layer, Convolution | FullyConnected):
            x = layer.x.reshape(-1, *layer.input_shape)
            found.append(np.where(x > 0, 1 + np.broadcast_to(pixel, x.shape), 0))
            pixel = 0
    return found[1:]  # the first layer's input was not chosen


@dataclass
class Wanted:
    """One rank's run on the same batches, and per step how far from it p ranks may be."""

    one: Recorded
    bounds: list  # Rounding of each step
    gradients_apart: list
    parameters_apart: list


@functools.cache
def wanted(ranks, dtype):
    one = threads.run(1, functools.partial(train, dtype=dtype, ranks=ranks))[0]
    tensors = AlexNet(10, 67, 1 / 16, "none").tensors
    decay = np.concatenate([np.full(spec.size, DECAY * spec.decay) for spec in tensors])
    result = Wanted(one, [], [], [])
    w_apart, v_apart, unit = (
        np.zeros(decay.size),
        np.zeros(decay.size),
        UNIT_ROUNDOFF[np.dtype(dtype).name],
    )
    for step in range(STEPS[dtype]):
        images, labels = batch(ranks, dtype, step)
        w, v = (flat[step].astype(np.float64) for flat in (one.parameters, one.velocities))
        rounding = alexnet_rounding(
            images, labels, split(w, tensors), len(images), unit, split(w_apart, tensors)
        )
        g, bound = joined(rounding.gradients), joined(rounding.bounds)
        w_apart, v_apart = momentum_rounding(
            w, v, g, (w_apart, v_apart, 2 * bound), RATE, MOMENTUM, decay, unit
        )
        result.bounds.append(rounding)
        result.gradients_apart.append(2 * bound)
        result.parameters_apart.append(w_apart)
    return result


def split(flat, tensors):
    stops = np.cumsum([spec.size for spec in tensors])[:-1]
    return [part.reshape(spec.shape) for part, spec in zip(np.split(flat, stops), tensors)]


def joined(arrays):
    return np.concatenate([array.reshape(-1) for array in arrays])


def distance(got, expected):
    """(step, difference / allowed) with the largest quotient of gradients and parameters."""
    worst = []
    for step in range(len(got.gradients)):
        for values, reference, allowed in (
            (got.gradients[step], expected.one.gradients[step], expected.gradients_apart[step]),
            (
                got.parameters[step + 1],
                expected.one.parameters[step + 1],
                expected.parameters_apart[step],
            ),
        ):
            difference = np.abs(values.astype(np.float64) - reference)
            worst.append(np.max(difference / np.maximum(allowed, 1e-300)))
    return worst


@pytest.fixture(params=[np.float64, np.float32])
def dtype(request):
    if request.param is np.float64 and request.config.getoption("--with-mpi", default=False):
        pytest.skip("each rank would compute the bound; threads do, and MPI sums to the same bits")
    return request.param


@pytest.mark.parametrize(
    "algorithm, kind",
    [(ring.allreduce, "uneven"), (direct.allreduce, "one rank has none")],
    ids=["ring", "direct"],
)
def test_p_ranks_give_the_parameters_of_one(on_ranks, dtype, algorithm, kind):
    for results in on_ranks(train, dtype, algorithm, kind):
        for got in results:
            expected = wanted(got.size, dtype)
            require_same_choices(got, expected, kind)
            worst = max(distance(got, expected))
            assert worst <= 1
            if got.size > 1 and got.rank == 0:
                print(
                    f"{got.size} ranks, {np.dtype(dtype)}, {kind}: difference / bound = {worst:.1e}"
                )


def require_same_choices(got, expected, kind):
    """The bound holds for the exact gradient's choices; in float64 no other choice is possible."""
    for step, rounding in enumerate(expected.bounds):
        samples = len(rounding.choices[0])
        mine = shares(kind, got.size, samples)[got.rank]
        for number, exact in enumerate(rounding.choices):
            for chosen, part in (
                (got.choices[step][number], mine),
                (expected.one.choices[step][number], slice(None)),
            ):
                assert (chosen.reshape(exact[part].shape) == exact[part]).all()
        assert rounding.doubtful == 0 or got.gradients[0].dtype == np.float32


def test_the_bound_says_something():
    """Relative to each tensor's largest gradient: in float64 far below 1e-6, in float32 below 1."""
    for dtype, limit in ((np.float64, 1e-8), (np.float32, 0.5)):
        first = wanted(3, dtype).bounds[0]
        assert (
            max(bound.max() / np.abs(g).max() for g, bound in zip(first.gradients, first.bounds))
            < limit
        )
