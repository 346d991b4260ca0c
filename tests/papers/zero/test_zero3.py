"""ZeRO-3 has the bits of ring allreduce layer by layer and the same SGD, its cost, 1/p of all."""

from types import SimpleNamespace

import numpy as np
import pytest

from refgf.comm.ring import ring_allreduce
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.result import StepResult
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.nn.alexnet import AlexNet
from refgf.oracle.definitions import zero3_calls, zero_slice
from refgf.papers.resnet50.resnet50 import ResNet50
from refgf.papers.zero.checkpoint import load, saved
from refgf.papers.zero.zero1 import ZeRO1, cut_specs
from refgf.papers.zero.zero3 import ZeRO3
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica, train_step

STEPS, RATE, CLASSES = 3, 0.1, 3
NETWORKS = {
    "AlexNet": lambda: AlexNet(CLASSES, image_size=67, width=1 / 32),
    "ResNet-50": lambda: ResNet50(CLASSES, image_size=32, width=1 / 32),
}


def sgd(specs, parameters, workspace=None):
    return MomentumSGD(specs, parameters, 0.9, 0.01, workspace)


def batch(network, rank, step):
    """Ranks have 0 to 3 images."""
    rng, count = np.random.default_rng([rank, step]), (rank + step) % 4
    images = rng.standard_normal((count, *network.image_shape)).astype(np.float32)
    return images, rng.integers(0, CLASSES, count)


class LayerByLayer:
    """An exchange: a ring allreduce of each layer's gradients, after backward."""

    def __init__(self, comm, model):
        self.allreduce, self.model = ring_allreduce(comm), model

    def ready(self, index):
        pass

    def finish(self):
        pool, first = self.model.gradients, 0
        for layer in reversed(self.model.network.layers):
            last = first + len(layer.tensors)
            self.allreduce(pool.flat[pool.offsets[first] : pool.offsets[last]])
            first = last
        return StepResult()


def unsharded(comm, name):
    model = replica(NETWORKS[name](), sgd, seed=1)
    exchange, losses = LayerByLayer(comm, model), []
    for step in range(STEPS):
        images = batch(model.network, comm.Get_rank(), step)
        losses.append(train_step(model, exchange, *images, 4 * comm.Get_size(), RATE))
    return losses, model.parameters.flat.tobytes()


def sharded_model(comm, name, calls=None):
    model = replica(NETWORKS[name](), sgd, seed=1)
    return ZeRO3(comm, model.network, model.parameters, sgd, calls)


def steps(zero, comm, which):
    found = []
    for step in which:
        images = batch(zero.network, comm.Get_rank(), step)
        found.append(zero.step(*images, 4 * comm.Get_size(), RATE))
    return found


def whole(zero):
    x = np.full(zero.n, np.nan, np.float32)
    zero.gather(x)
    return x.tobytes()


def sharded(comm, name, overlap):
    comm = TracedComm(comm)
    calls = CommunicationThread() if overlap else AtOnce()
    zero = sharded_model(comm, name, calls)
    losses = steps(zero, comm, range(STEPS))
    calls.close()
    sent, lengths = (comm.messages, comm.bytes), [u.part.stop - u.part.start for u in zero.units]
    kept = [x.nbytes for x in (zero.parameters, zero.gradients, *zero.optimizer.state.values())]
    return losses, whole(zero), sent, lengths, kept


CASES = [  # any two choices of 3 and 7 ranks meet
    (1, "ResNet-50", True),
    (3, "AlexNet", False),
    (3, "ResNet-50", True),
    (7, "AlexNet", True),
    (7, "ResNet-50", False),
]


@pytest.mark.parametrize("size, name, overlap", CASES)
def test_the_bits_and_the_cost(size, name, overlap):
    found = threads.run(size, sharded, name, overlap)
    assert [f[:2] for f in found] == threads.run(size, unsharded, name)
    for rank, (_, _, sent, lengths, kept) in enumerate(found):
        *_, messages, elements = np.sum(zero3_calls(lengths, size, rank), axis=0)
        assert sent == (STEPS * messages, STEPS * 4 * elements)
        owned = (stop - start for start, stop in (zero_slice(n, size, rank) for n in lengths))
        assert kept == [4 * sum(owned)] * 3


def test_it_lets_go_of_the_whole_weights():
    """Two layers are whole at one time, of weights and of gradients."""
    (held,) = threads.run(1, lambda comm: memory(sharded_model(comm, "AlexNet")))
    largest, n = held
    assert largest < n


def memory(zero):
    bases = {id(base): base.size for u in zero.units for base in owners(u.layer)}
    return max(bases.values()), zero.n


def owners(layer):
    for inner in layer.sublayers():
        for x in (*inner.parameters, *inner.gradients):
            while x.base is not None:
                x = x.base
            yield x


def zero1(comm):
    model = replica(NETWORKS["AlexNet"](), sgd, seed=1)
    flat, comm = model.parameters.flat, TracedComm(comm)
    whole = [SimpleNamespace(shape=flat.shape, decay=True)]
    return ZeRO1(comm, flat, lambda own: sgd(cut_specs(whole, own), flat[own]))


def trained_zero1(comm):
    zero = zero1(comm)
    for step in range(2):
        rng = np.random.default_rng([comm.Get_rank(), step])
        zero.step(rng.standard_normal(zero.parameters.size).astype(np.float32), RATE)
    return saved(zero), zero.parameters.tobytes()


def trained_zero3(comm):
    zero = sharded_model(comm, "AlexNet")
    steps(zero, comm, range(2))
    return saved(zero), whole(zero)


def loaded(comm, stage, states):
    zero = zero1(comm) if stage == 1 else sharded_model(comm, "AlexNet")
    load(zero, states)
    if stage == 1:
        zero.gather()
    return saved(zero), zero.parameters.tobytes() if stage == 1 else whole(zero)


@pytest.mark.parametrize("stage", [1, 3])
@pytest.mark.parametrize("before, after", [(3, 5), (5, 2), (1, 8), (8, 1), (2, 2)])
def test_a_checkpoint_is_loaded_by_another_number_of_ranks(before, after, stage):
    states, weights = zip(*threads.run(before, {1: trained_zero1, 3: trained_zero3}[stage]))
    again, found = zip(*threads.run(after, loaded, stage, states[::-1]))
    assert set(found) == set(weights) and len(set(found)) == 1
    assert everything(again) == everything(states)


def everything(states):
    """{array: its elements in the pool's order}"""
    names, n = states[0]["arrays"], sum(b - a for s in states for a, b in s["pieces"])
    found = {name: np.full(n, np.nan, np.float32) for name in names}
    for state in states:
        at = 0
        for start, stop in state["pieces"]:
            for name, x in found.items():
                x[start:stop] = state["arrays"][name][at : at + stop - start]
            at += stop - start
    return {name: x.tobytes() for name, x in found.items()}


@pytest.mark.parametrize("which", [(0, 1), (0, 0, 2), (0, 1, 2, 2), ()])
def test_a_checkpoint_that_lacks_or_repeats_a_rank_changes_nothing(which):
    """Slices of (0, 0, 2) have as many elements as those of (0, 1, 2)."""
    states = threads.run(3, lambda comm: saved(zero1(comm)))

    def loads(comm):
        zero = zero1(comm)
        zero.parameters[:] = 7
        with pytest.raises(ValueError, match="elements never or twice; wanted each once; next"):
            load(zero, [states[i] for i in which])
        assert (zero.parameters == 7).all()

    threads.run(1, loads)
