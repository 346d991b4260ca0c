"""What every compressor is given, and what each of ours promises."""

from collections import namedtuple

import numpy as np
import pytest

from refgf.exchange.compressor import Compressed, Compressor
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale
from refgf.machine import threads
from refgf.machine.checkpoint import Checkpoints
from refgf.machine.digits import digits
from refgf.nn.alexnet import AlexNet
from refgf.papers.signsgd.signsgd import SignSGD
from refgf.training.data import batches
from tests.support.compressor_cases import on, power_sgd
from tests.support.sizes import long_but
from tests.support.stacks import new_flow
from tests.support.tiny import BATCH, N, Prescribed, samples

Spec = namedtuple("Spec", "name shape")
SIZES = [3, 0, 20, 1]


class Notes(Compressor):
    """Sums nothing and writes down what it is told."""

    def __init__(self):
        self.told = []

    def start(self, gradients):
        self.told.append(("start", gradients.size))

    def sum(self, x, elements):
        self.told.append((elements, x.copy()))

    def end(self, accepted):
        self.told.append(accepted)

    @property
    def state(self):
        return {}


@pytest.mark.parametrize("theta", [0, 20, np.inf])
def test_ranges_follow_the_pool_and_gradients_are_unscaled(theta):
    pool, scale, notes = (
        Pool([Spec(f"t{i}", (n,)) for i, n in enumerate(SIZES)]),
        LossScale(8.0),
        Notes(),
    )
    compressed = Compressed(notes, pool.flat, scale)
    lazy = LazyAllreduce(pool, compressed, Theta(theta))
    true = np.arange(24, dtype=np.float32)
    for accepted in (True, False):
        pool.flat[...] = 8 * true
        for index in range(len(SIZES)):
            lazy.ready(index)
        lazy.finish()
        compressed.end(accepted)
        assert (pool.flat == 8 * true).all()
    assert notes.told[0] == ("start", 24)
    steps = notes.told[1:]
    half = len(steps) // 2
    for part, accepted in ((steps[:half], True), (steps[half:], False)):
        *calls, end = part
        assert end is accepted
        assert [elements.start for elements, _ in calls] == [call.start for call in lazy.calls]
        assert all((x == true[elements]).all() for elements, x in calls)


def test_a_compressor_must_say_what_it_remembers():
    class Forgets(Compressor):
        def start(self, gradients): ...
        def sum(self, x, elements): ...
        def end(self, accepted): ...

    with pytest.raises(TypeError, match="state"):
        Forgets()


# ---- what each of ours promises ----

OURS = {"SignSGD": SignSGD, "rank 1": power_sgd(rank=1), "rank 2": power_sgd(rank=2)}
each = pytest.mark.parametrize("compressor", OURS.values(), ids=OURS)


@each
@pytest.mark.parametrize(
    "parts", [{}, {"theta_bytes": 40}, {"theta_bytes": 0, "overlap": True}, {"overlap": True}]
)
def test_an_infinity_leaves_no_trace(compressor, parts):
    """Skipped with an infinity, then as if that step had not been; with theta and with overlap."""
    with np.errstate(all="ignore"):
        skipped = on(3, compressor, [0, 1, 2, 3, 4], 2, **parts)
    assert skipped == on(3, compressor, [0, 1, 3, 4], **parts)


@each
def test_every_rank_sees_an_infinity_of_one(compressor):
    def body(comm, place):
        made, x = compressor(comm), np.ones(N, np.float32)
        made.start(x)
        if comm.Get_rank() == 1:
            x[place] = np.inf
        with np.errstate(all="ignore"):
            made.sum(x, slice(0, N))
        return bool(np.isfinite(x).all())

    assert not any(any(threads.run(3, body, place)) for place in range(N))


@each
def test_overlap_changes_no_bit_and_theta_does(compressor):
    eager = on(3, compressor, range(4), theta_bytes=0)
    assert on(3, compressor, range(4), theta_bytes=0, overlap=True) == eager
    assert on(3, compressor, range(4)) != eager


@each
def test_the_loss_scale_does_not_reach_the_error(compressor):
    """A scale that changes from step to step: the residual holds true gradients."""
    scaled = on(2, compressor, range(5), loss_scale=lambda: LossScale(2.0, True, 1))
    assert scaled == on(2, compressor, range(5))


@each
@pytest.mark.parametrize("parts", [{}, {"theta_bytes": 40, "overlap": True}])
def test_resumed_is_uninterrupted(tmp_path, compressor, parts):
    def body(comm, saves):
        settings = dict(allreduce=compressor, momentum=0.5) | parts
        with new_flow(comm, Prescribed(), **settings) as flow:
            checkpoints = Checkpoints(tmp_path, flow, lambda text: None)
            first = 0 if saves else checkpoints.resume()["at"]
            for step in range(first, 6):
                if saves and step == 3:
                    checkpoints.save({"at": 3})
                flow.step(samples(step)[comm.Get_rank() :: comm.Get_size()], None, BATCH, rate=0.1)
            state = flow.compressed.compressor.state
            return flow.model.parameters.flat.tobytes(), state["error"].tobytes()

    assert threads.run(2, body, True) == threads.run(2, body, False)


@pytest.mark.parametrize("name", long_but(["SignSGD", "PowerSGD"], "SignSGD"))
def test_it_learns_digits(name):
    """Two epochs of a small AlexNet: the loss falls to less than half."""

    def body(comm):
        train, _ = digits(67, channels=1)
        network, losses = AlexNet(10, 67, width=1 / 16, dropout=0.0, channels=1), []
        shapes = [spec.shape for spec in network.tensors]
        compressor = SignSGD if name == "SignSGD" else power_sgd(shapes)
        with new_flow(comm, network, allreduce=compressor, theta_bytes=20_000) as flow:
            for epoch in range(2):
                for shard in batches(train, 64, epoch, 1, comm.Get_rank(), comm.Get_size()):
                    losses.append(flow.step(*shard, rate=0.01))
        return losses

    losses = np.sum(threads.run(2, body), axis=0)
    assert losses[-3:].mean() < 0.5 * losses[:3].mean(), losses
