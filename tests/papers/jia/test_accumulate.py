"""K micro-batches on one rank give the bits of K ranks with one each."""

import functools

import numpy as np
import pytest

from refgf.comm.direct import direct_allreduce
from refgf.comm.slices import slices
from refgf.exchange.precision import LossScale
from refgf.machine import threads
from refgf.machine.digits import digits
from refgf.nn.alexnet import AlexNet
from refgf.papers.jia.accumulate import accumulated_step
from tests.support.stacks import new_flow, new_model
from tests.support.tiny import N, Prescribed

BATCH, STEPS = 13, 3


@functools.cache
def data():
    return digits(67, channels=1)[0]


def shards(size, step):
    order = np.arange(BATCH * step, BATCH * (step + 1))
    return [data().load(order[part]) for part in slices(BATCH, size)]


def train(comm, take, seed=3, **parts):
    """-> (bits of the parameters, running statistics averaged over ranks, losses)"""
    network, losses = AlexNet(10, 67, width=1 / 32, dropout=0.0, channels=1), []
    with new_flow(
        comm, network, allreduce=direct_allreduce, seed=seed, weight_decay=5e-4, **parts
    ) as flow:
        for step in range(STEPS):
            losses.append(sum(comm.allgather(take(flow, step))))
        running = np.mean(comm.allgather(np.concatenate(network.running)), axis=0, dtype=np.float64)
        return flow.model.parameters.flat.tobytes(), running, losses


SAME_BITS = [(1, {}), (2, {"trust": 0.01}), (5, {}), (16, {"trust": 0.01})]
# p ranks round p times, a sum of parts once
SAME_BITS += [(1, {"wire": np.float16, "loss_scale": LossScale(2.0**12)})]


@pytest.mark.parametrize("size, parts", SAME_BITS)
def test_parts_of_one_rank_are_ranks_with_one_part(size, parts):
    def shard(flow, step):
        return flow.step(*shards(size, step)[flow.comm.Get_rank()], BATCH, 0.02)

    def all_parts(flow, step):
        return accumulated_step(flow.model, flow, iter(shards(size, step)), BATCH, 0.02)

    many = threads.run(size, lambda comm: train(comm, shard, **parts))[0]
    one = threads.run(1, lambda comm: train(comm, all_parts, **parts))[0]
    assert many[0] == one[0]
    assert np.allclose(many[2], one[2], rtol=1e-12)
    # a rank without images keeps its statistics; an empty micro-batch does not count
    if size <= BATCH:
        assert np.allclose(many[1], one[1], rtol=1e-5, atol=1e-7)


def test_ranks_that_accumulate(on_ranks):
    """p ranks with several micro-batches, overlapped and lazily, hold the same; none is lost."""

    def body(comm):
        p, rank = comm.Get_size(), comm.Get_rank()

        def parts(step):
            return shards(3 * p, step)[3 * rank : 3 * rank + 3]

        def all_of_them(flow, step):
            return accumulated_step(flow.model, flow, parts(step), BATCH, 0.02)

        got = {
            train(comm, all_of_them, **how)[0]
            for how in ({}, {"overlap": True}, {"theta_bytes": 0})
        }
        last = train(comm, lambda flow, step: flow.step(*parts(step)[-1], BATCH, 0.02))[0]
        assert len(got) == 1 and last not in got
        assert len(set(comm.allgather(next(iter(got))))) == 1

    on_ranks(body)


def test_exact_gradients_add_up_under_csc(on_ranks):
    def body(comm):
        g = np.arange(3 * N, dtype=np.float32).reshape(3, N) / 8
        with new_flow(comm, Prescribed(), density=30, chunk=8, momentum=0.0) as flow:
            accumulated_step(flow.model, flow, [(image[None], None) for image in g], 1, 1.0)
            assert np.array_equal(flow.model.parameters.flat, -comm.Get_size() * g.sum(axis=0))

    on_ranks(body)


def test_a_step_that_is_not_accepted_changes_nothing(on_ranks):
    """The infinity is in the first part, of the last rank."""

    def body(comm):
        g = np.ones((2, N), np.float32)
        g[0, 5] = np.inf if comm.Get_rank() == comm.Get_size() - 1 else 1
        with new_flow(comm, Prescribed(), loss_scale=LossScale(4.0, dynamic=True)) as flow:
            accumulated_step(flow.model, flow, [(image[None], None) for image in g], 1, 1.0)
            assert not flow.result.accepted and flow.model.loss_scale.scale == 2
            assert (flow.model.parameters.flat == 0).all() and (
                flow.model.network.running[0] == 0
            ).all()
            g[0, 5] = 1
            accumulated_step(flow.model, flow, [(image[None], None) for image in g], 1, 1.0)
            # the mean of the micro-batches' 1, not 2
            assert flow.result.accepted and (flow.model.network.running[0] == 1).all()

    on_ranks(body)


def test_no_parts_are_refused():
    with pytest.raises(
        ValueError, match="accumulated_step: got no micro-batches; wanted at least one"
    ):
        accumulated_step(new_model(Prescribed()), None, [], 1, 1.0)
