"""Sign-SGD trains, and keeps every promise that a compressor makes."""

import numpy as np
import pytest

from refgf.comm.slices import slices
from refgf.exchange.precision import LossScale
from refgf.machine import threads
from refgf.machine.checkpoint import Checkpoints
from refgf.machine.digits import digits
from refgf.machine.trace import TracedComm
from refgf.nn.alexnet import AlexNet
from refgf.papers.signsgd.signsgd import SignSGD
from refgf.training.data import batches
from tests.support import stacks
from tests.support.tiny import BATCH, N, Prescribed, samples


def run(comm, steps, bad=None, **parts):
    """The bits of parameters and error after some steps; step `bad` has an infinity on rank 0."""
    initial = np.random.default_rng(1).standard_normal(N).astype(np.float32)
    settings = dict(allreduce=SignSGD, momentum=0.5) | parts
    with stacks.new_flow(comm, Prescribed(initial=initial), **settings) as flow:
        for step in steps:
            g = samples(step)[slices(BATCH, comm.Get_size())[comm.Get_rank()]]
            if step == bad and comm.Get_rank() == 0:
                g = np.where(np.arange(N) == 7, np.inf, g)
            flow.step(g, None, BATCH, rate=0.1)
            assert flow.result.accepted == (step != bad)
        flow.require_same_parameters()
        return flow.model.parameters.flat.tobytes(), flow.compressed.compressor.state[
            "error"
        ].tobytes()


def on(size, steps, bad=None, **parts):
    """`run` on so many ranks."""
    return threads.run(size, lambda comm: run(comm, steps, bad, **parts))


def by_definition(size, steps):
    """One call, all ranks in one process, in plain NumPy. -> (parameters, error of each rank)"""
    w = np.random.default_rng(1).standard_normal(N).astype(np.float32)
    v, errors = np.zeros(N, np.float32), np.zeros((size, N), np.float32)
    for step in steps:
        total = np.zeros(N, np.float32)
        for rank, part in enumerate(slices(BATCH, size)):
            p = (samples(step)[part].sum(axis=0) / BATCH).astype(np.float32) + errors[rank]
            scale = np.float32(np.abs(p).mean(dtype=np.float64))
            sent = np.where(p >= 0, scale, -scale)
            errors[rank] = p - sent
            total += sent
        v = np.float32(0.5) * v + total
        w = w - np.float32(0.1) * v
    return w.tobytes(), [error.tobytes() for error in errors]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bits_are_those_of_the_definition(size):
    got = on(size, range(6))
    w, errors = by_definition(size, range(6))
    assert got == [(w, error) for error in errors]


@pytest.mark.parametrize(
    "parts", [{"theta_bytes": 40}, {"theta_bytes": 0, "overlap": True}, {"overlap": True}]
)
def test_an_infinity_leaves_no_trace(parts):
    """Skipped with an infinity, then as if that step had not been; with theta and with overlap."""
    with np.errstate(invalid="ignore"):
        skipped = on(3, [0, 1, 2, 3, 4], 2, **parts)
    assert skipped == on(3, [0, 1, 3, 4], **parts)


def test_overlap_changes_no_bit_and_theta_does():
    eager = on(3, range(4), theta_bytes=0)
    assert on(3, range(4), theta_bytes=0, overlap=True) == eager
    assert on(3, range(4)) != eager


def test_the_loss_scale_does_not_reach_the_error():
    """A scale that changes from step to step: the residual holds true gradients."""
    plain = on(2, range(5))
    scaled = threads.run(2, lambda comm: run(comm, range(5), loss_scale=LossScale(2.0, True, 1)))
    assert scaled == plain


@pytest.mark.parametrize("parts", [{}, {"theta_bytes": 40, "overlap": True}])
def test_resumed_is_uninterrupted(tmp_path, parts):
    def body(comm, saves):
        settings = dict(allreduce=SignSGD, momentum=0.5) | parts
        with stacks.new_flow(comm, Prescribed(), **settings) as flow:
            checkpoints = Checkpoints(tmp_path, flow, lambda text: None)
            first = 0 if saves else checkpoints.resume()["at"]
            for step in range(first, 6):
                if saves and step == 3:
                    checkpoints.save({"at": 3})
                flow.step(samples(step)[comm.Get_rank() :: comm.Get_size()], None, BATCH, rate=0.1)
            state = flow.compressed.compressor.state["error"]
            return flow.model.parameters.flat.tobytes(), state.tobytes()

    assert threads.run(2, body, True) == threads.run(2, body, False)


def test_bytes_and_messages():
    def body(comm):
        traced = TracedComm(comm)
        with stacks.new_flow(traced, Prescribed(), allreduce=SignSGD) as flow:
            traced.reset()
            flow.step(samples(0)[:1], None, 1, rate=0.1)
            p = comm.Get_size()
            assert (traced.messages, traced.bytes) == (p - 1, (p - 1) * (4 + -(-N // 8)))

    for size in (1, 3, 5):
        threads.run(size, body)


def test_it_learns_digits():
    """Two epochs of a small AlexNet: the loss falls to less than half."""

    def body(comm):
        train, _ = digits(67, channels=1)
        network = AlexNet(10, 67, width=1 / 16, dropout=0.0, channels=1)
        losses = []
        with stacks.new_flow(comm, network, allreduce=SignSGD, theta_bytes=20_000) as flow:
            for epoch in range(2):
                for shard in batches(train, 64, epoch, 1, comm.Get_rank(), comm.Get_size()):
                    losses.append(flow.step(*shard, rate=0.01))
        return losses

    losses = np.sum(threads.run(2, body), axis=0)
    assert losses[-3:].mean() < 0.5 * losses[:3].mean(), losses


def test_what_is_refused():
    with pytest.raises(ValueError, match="SignSGD on rank 0: got wire float16"):
        on(1, [0], wire=np.float16)
    with pytest.raises(ValueError, match="got csc and the compressor SignSGD"):
        on(1, [0], density=10)
