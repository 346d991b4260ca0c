"""A float16 network has float32 master weights and sums: it trains as a rounded float32 one."""

import numpy as np
import pytest
from tests.support.tiny import BATCH, SPECS, N, Prescribed, samples

from tests.support.stacks import new_flow

from refgf.machine import threads
from refgf.comm.slices import slices
from refgf.exchange.result import StepResult
from refgf.exchange.precision import LossScale
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.daso.daso import DASO
from refgf.papers.jia.accumulate import accumulated_step
from refgf.papers.daso.phases import BLOCKING, Constant, Phase
from refgf.machine.digits import digits
from refgf.comm.direct import direct_allreduce
from refgf.training.evaluation import averaged_statistics
from refgf.training.step import replica, train_step

# below half of float16's last bit at 1: a float16 weight would never move
RATE = 2.0**-14


def train(comm, dtype, parts):
    """Master and working weights after five steps. Samples have few bits, so sums are exact."""
    network = Prescribed(dtype, initial=np.ones(N, dtype))
    accumulates = parts.get("accumulates", False)
    parts = {name: value for name, value in parts.items() if name != "accumulates"}
    parts |= {"allreduce": direct_allreduce, "half_weights": True, "loss_scale": LossScale(2.0**4)}
    with new_flow(comm, network, **parts) as flow:
        for step in range(5):
            images, labels = samples(step)[slices(BATCH, comm.size)[comm.rank]], None
            if accumulates:
                parts_of_batch = iter([(images[:1], labels), (images[1:], labels)])
                accumulated_step(flow.model, flow, parts_of_batch, BATCH, RATE)
            else:
                flow.step(images, labels, BATCH, RATE)
        return flow.model.parameters.flat.copy(), flow.model.working.working.astype(np.float32)


WAYS = [
    {},
    {"overlap": True, "theta_bytes": 40},
    {"wire": np.float16},
    {"density": 30, "chunk": 4, "form": "history"},
    {"accumulates": True},
]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("parts", WAYS, ids=str)
def test_masters_are_those_of_a_float32_network(size, parts):
    for half, single in zip(
        threads.run(size, train, np.float16, parts), threads.run(size, train, np.float32, parts)
    ):
        for got, wanted in zip(half, single):
            assert got.dtype == np.float32 and got.tobytes() == wanted.tobytes()
        masters, working = half
        assert (working == masters.astype(np.float16)).all()
        assert (masters != 1).mean() > 0.5, "a step that float16 would have lost"


class Looks:
    """An exchange that notes what the pool holds when a gradient is announced."""

    def __init__(self, pool):
        self.pool, self.seen = pool, []

    def ready(self, index):
        self.seen.append(self.pool.views[index].copy())

    def finish(self):
        return StepResult(False)


def announced(announcing):
    network = Prescribed(np.float16)
    model = replica(network)
    if not announcing:
        model.announcing = lambda ready: ready
    looks = Looks(model.gradients)
    train_step(model, looks, samples(0), None, BATCH, RATE)
    return all(
        (seen == produced).all()
        for seen, produced in zip(looks.seen, model.half_gradients.views, strict=True)
    )


def test_what_is_announced_is_in_the_pool():
    assert announced(announcing=True)
    assert not announced(announcing=False), "wrong variant: announced before it was widened"


def test_a_float16_network_learns_what_a_float32_one_does():
    """Three steps on digits. A gradient has gone through at most 2 x 8 products and as many ReLUs:
    some 50 roundings of 2^-11 if they all agree; 8 % are left to what a ReLU or a maximum lets
    through on one side only."""
    images, labels = digits(67, channels=1)[0].load(np.arange(8))

    def learn(comm, dtype):
        space, losses = Workspace(dtype=dtype), []
        network = AlexNet(10, 67, 1 / 32, "none", dropout=0.0, channels=1, workspace=space)
        with new_flow(comm, network, loss_scale=LossScale(2.0**8), half_weights=True) as flow:
            before = flow.model.parameters.flat.copy()
            for _ in range(3):
                losses.append(flow.step(images, labels, 8, 0.002))
            return losses, flow.model.parameters.flat - before

    (half, half_moved), (single, moved) = (
        threads.run(1, learn, dtype)[0] for dtype in (np.float16, np.float32)
    )
    assert np.allclose(half, single, rtol=50 * 2.0**-11)
    assert np.linalg.norm(half_moved - moved) <= (50 * 2.0**-11 + 0.08) * np.linalg.norm(moved)


def test_daso_computes_with_what_it_has_received():
    """Working weights are the rounded master weights after every batch, on all ranks."""

    def body(comm, phase):
        model = replica(Prescribed(np.float16, initial=np.ones(N, np.float16)))
        stack = DASO(comm, model, [[0, 1], [2, 3]], Constant(phase), 4)
        with stack:
            for step in range(4):
                stack.step(samples(step)[slices(BATCH, comm.size)[comm.rank]], None, BATCH, RATE)
                masters, working = stack.model.parameters.flat, stack.model.working.working
                assert working.tobytes() == masters.astype(np.float16).tobytes()
                assert not stack.synchronised or len(set(comm.allgather(working.tobytes()))) == 1
            return stack.synchronised

    for phase in (BLOCKING, Phase(2, 1, 1)):
        assert all(threads.run(4, body, phase))


def test_ranks_with_networks_of_different_types_say_so():
    def body(comm):
        network = Prescribed(np.float16 if comm.rank == 0 else np.float32)
        with pytest.raises(ValueError, match="float16 network"):
            new_flow(comm, network, half_weights=True)
        with pytest.raises(ValueError, match="float16 network"):
            DASO(comm, replica(network), [[0], [1]], Constant(BLOCKING), 4)

    threads.run(2, body)


def test_running_statistics_are_averaged_in_float32():
    """A sum of variances over a few ranks does not fit into float16."""

    def body(comm):
        network = AlexNet(10, 67, width=1 / 32, channels=1, workspace=Workspace(dtype=np.float16))
        replica(network)
        for array in network.running:
            array[...] = 40000 + comm.rank
        with averaged_statistics(network, direct_allreduce(comm), comm.size):
            assert all(
                (array == 40001).all() and array.dtype == np.float32 for array in network.running
            )

    threads.run(3, body)


def test_pools_of_a_float16_network():
    model = replica(Prescribed(np.float16))
    pools = model.parameters, model.gradients, model.half_gradients
    assert [pool.flat.dtype.name for pool in pools] == ["float32", "float32", "float16"]
    assert [view.shape for view in model.half_gradients.views] == [spec.shape for spec in SPECS]
    assert replica(Prescribed(np.float32)).half_gradients is None
