"""The virtual accelerator: its clock, what it writes, and the communicator without a network."""

import time

import numpy as np
import pytest

from refgf.comm.ring import ring_allreduce
from refgf.exchange.lazy import Theta
from refgf.exchange.precision import LossScale
from refgf.machine.accelerator import InstantComm, Pace, VirtualNetwork, relative
from refgf.machine.threads import run
from refgf.nn.layers import TensorSpec
from refgf.training.gradientflow import GradientFlow
from refgf.training.step import replica

SPECS = [TensorSpec(f"t{i}.weight", (n,), True) for i, n in enumerate((3, 70_000, 0, 1))]
PACE = Pace(0.02, (0.03, 0.05, 0.05, 0.06), 0.07)
NOTHING = np.empty((0, 1), np.float32), np.empty(0, np.int64), 1


@pytest.fixture
def clock(monkeypatch):
    """time.sleep and time.perf_counter without waiting."""

    class Clock:
        now_s = 100.0

        def sleep(self, seconds):
            assert seconds > 0
            self.now_s += seconds

    clock = Clock()
    monkeypatch.setattr(time, "sleep", clock.sleep)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now_s)
    return clock


def network(norms=None, pace=PACE, seed=0):
    return replica(VirtualNetwork(SPECS, pace, norms, seed)).network


def test_gradients_are_ready_at_their_times(clock):
    net, ready_s = network(), []
    start_s = clock.now_s
    assert net.loss(*NOTHING) == 0.0
    assert clock.now_s - start_s == pytest.approx(0.02)
    net.backward(lambda i: ready_s.append((i, round(clock.now_s - start_s, 9))))
    assert ready_s == [(0, 0.03), (1, 0.05), (2, 0.05), (3, 0.06)]
    assert clock.now_s - start_s == pytest.approx(0.07)


def test_the_time_of_a_call_is_added_and_being_late_is_not(clock):
    net = network()
    start_s = clock.now_s
    net.loss(*NOTHING)

    def ready(i):
        clock.now_s += 0.5  # a call that blocks

    net.backward(ready)
    assert clock.now_s - start_s == pytest.approx(0.07 + 4 * 0.5)
    start_s = clock.now_s
    net.loss(*NOTHING)
    clock.now_s += 0.015  # forward was noticed too late: backward catches up
    net.backward(lambda i: None)
    assert clock.now_s - start_s == pytest.approx(0.07)


@pytest.mark.parametrize("factor", [1, 56.0])
def test_dilation_multiplies_every_time(factor):
    slow = PACE.dilated(factor)
    assert slow.end_s == factor * PACE.end_s and slow.forward_s == factor * PACE.forward_s
    assert slow.ready_s == tuple(factor * t for t in PACE.ready_s)


def test_gradients_are_written_before_they_are_ready(clock):
    model = replica(VirtualNetwork(SPECS, PACE))
    seen = []
    for _ in range(2):
        model.gradients.flat[:] = np.nan  # the last step's sums
        model.network.loss(*NOTHING)
        model.network.backward(lambda i: seen.append(np.isfinite(model.gradients.views[i]).all()))
    assert seen == 8 * [True]


@pytest.mark.parametrize("norms", [[1, 7], [1, 7, 1, 7, 1, 7, 1, 7]])
def test_chunk_norms_are_as_uneven_as_asked(clock, norms):
    model = replica(VirtualNetwork([TensorSpec("w", (1 << 18,), True)], Pace(0, (1,), 1), norms))
    model.network.loss(*NOTHING)
    model.network.backward(lambda i: None)
    means = np.abs(model.gradients.flat.reshape(len(norms), -1)).mean(axis=1)
    # each mean of n normal magnitudes has a relative error of 0.75 / sqrt(n) (one sigma)
    assert means / means[0] == pytest.approx(np.array(norms), rel=0.03)


@pytest.mark.parametrize("overlap", [False, True])
def test_a_loss_scale_multiplies_the_gradients_and_leaves_the_sums(overlap):
    """Backward is linear: what is sent is scaled, what arrives is not, in every step."""
    quick = Pace(0.0, (0.0,) * 4, 1e-3)

    def sums(scale):
        model = replica(VirtualNetwork(SPECS, quick), loss_scale=LossScale(scale))
        with GradientFlow(InstantComm(0, 1), model, overlap=overlap) as flow:
            for _ in range(20):  # the scale must not pile up from step to step
                flow.step(*NOTHING, rate=0.0)
        return model.gradients.flat.copy()

    assert np.array_equal(sums(1.0), sums(1024.0))  # a power of two: exact


def test_ranks_and_steps_have_other_gradients(clock):
    def first(seed, steps=1):
        model = replica(VirtualNetwork(SPECS, PACE, seed=seed))
        for _ in range(steps):
            model.network.loss(*NOTHING)
            model.network.backward(lambda i: None)
        return model.gradients.views[1].copy()

    assert not np.array_equal(first(0), first(1))
    assert not np.array_equal(first(0), first(0, steps=2))
    assert np.array_equal(first(3), first(3))


@pytest.mark.parametrize(
    "make, wanted",
    [
        (lambda: Pace(0.1, (0.05,), 0.2), "times that rise"),
        (lambda: Pace(0.1, (0.2,), 0.15), "times that rise"),
        (lambda: Pace(0.0, (), 0.0), "times that rise"),
        (lambda: VirtualNetwork(SPECS, Pace(0, (1,), 1)), "one time per tensor"),
        (lambda: relative([]), "finite number >= 0 per chunk"),
        (lambda: relative([1, np.nan]), "finite number >= 0 per chunk"),
        (lambda: relative([1, -1]), "finite number >= 0 per chunk"),
    ],
)
def test_refused(make, wanted):
    with pytest.raises(ValueError, match=f"got .*wanted .*{wanted}.*next: "):
        make()


def test_all_norms_zero_stay_zero():
    assert relative([0, 0]).tolist() == [0, 0]


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("arguments", [{}, {"overlap": True}, {"wire": np.float16}])
def test_the_stack_sums_what_accelerators_write(size, arguments):
    """With theta and overlap, on threads: the mean over ranks, as for any network."""
    quick = Pace(0.0, (0.0, 0.0, 0.001, 0.001), 0.001)

    def rank(comm):
        model = replica(VirtualNetwork(SPECS, quick, seed=comm.Get_rank()))
        alone = replica(VirtualNetwork(SPECS, quick, seed=comm.Get_rank()))
        alone.network.loss(*NOTHING)
        alone.network.backward(lambda i: None)
        with GradientFlow(comm, model, grouping=Theta(100), **arguments) as flow:
            flow.step(*NOTHING, rate=0.0)
        return alone.gradients.flat.copy(), model.gradients.flat.copy()

    owns, sums = zip(*run(size, rank))
    wanted = np.sum(owns, axis=0, dtype=np.float64)
    # p - 1 additions, each rounded to the wire type: |error| <= p u (|x_0| + ... + |x_p-1|)
    unit = np.finfo(arguments.get("wire", np.float32)).eps
    tiny = np.finfo(np.float16).smallest_subnormal if "wire" in arguments else 0.0
    bound = size * (unit * np.sum(np.abs(owns), axis=0) + tiny)
    for got in sums:
        assert (np.abs(got - wanted) <= bound).all() and np.array_equal(got, sums[0])


def test_instant_comm_needs_no_other_rank():
    comm = InstantComm(1, 4)
    x = np.arange(10, dtype=np.float32)
    ring_allreduce(comm)(x)
    assert np.isfinite(x).all() and comm.Dup().Get_size() == 4
    assert comm.allgather(7) == [7] * 4 and comm.bcast(3) == 3
    with GradientFlow(comm, replica(VirtualNetwork(SPECS, PACE.dilated(1e-6)))) as flow:
        flow.step(*NOTHING, rate=0.0)
