"""Step and call times on ranks that start one after another, from the first rank's start."""

from argparse import Namespace

import numpy as np
import pytest

import kit
from kit import call_times, calls, flow, images, step_times
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.machine import threads
from refgf.machine.digits import digits
from refgf.nn.alexnet import AlexNet
from refgf.training.step import replica

# Rank 0 starts at 0: gradients at 1 and 2, end at 2.5. Rank 1 gets a core at 2: 3, 4, 4.5.
# Both leave the barrier at 5. (ranks, steps, events), each on its own clock:
OWN_S = np.array([[[1.0, 2.0, 2.5, 5.0]], [[1.0, 2.0, 2.5, 3.0]]])


def test_ranks_one_after_another():
    assert step_times.on_one_clock(OWN_S).tolist() == [[3.0, 4.0, 4.5]]


@pytest.mark.parametrize("ranks, steps", [(1, 1), (3, 5), (7, 2)])
def test_any_ranks_and_steps(ranks, steps):
    """Compare with a common clock that the function does not see. Quarters make sums exact."""
    rng = np.random.default_rng([ranks, steps])
    start_s = rng.integers(0, 40, (ranks, steps, 1)) / 4
    events_s = start_s + np.cumsum(rng.integers(0, 9, (ranks, steps, 4)), axis=-1) / 4
    closed_s = np.broadcast_to(events_s.max(axis=(0, 2)) + 1, (ranks, steps))[..., None]
    own_s = np.concatenate([events_s, closed_s], axis=-1) - start_s
    wanted = events_s.max(axis=0) - start_s.min(axis=0)
    assert step_times.on_one_clock(own_s).tolist() == wanted.tolist()
    assert (np.diff(wanted) >= 0).all()  # in order of time, as `predict` requires


@pytest.mark.parametrize("size", [1, 3])
def test_what_a_step_and_its_calls_take(size):
    """Gradients in order of time, steps counted, calls with a latency, the same on every rank."""

    def body(comm):
        run = kit.Run(comm, Namespace(link=None, threads=size, quick=True, full=False))
        allreduce = collective(run.comm.Dup(), ring.allreduce)
        model = replica(AlexNet(10, 67, 1 / 16), seed=1)
        ones = np.ones((2, *model.network.image_shape), np.float32)
        batches = [(ones, np.array([1, 2]), 2 * size)] * 4
        timing, ready_s = step_times.without_exchange(run, model, batches, skip=2)
        queued = call_times.queued(run, [0, 7, 5000], allreduce, repeats=2)
        line = call_times.line_of(run, queued)
        curve, curved_s = call_times.in_steps(run, model, batches, queued, allreduce)
        with_thread_s = call_times.compute_with_thread(run, model, batches, queued, allreduce)
        share = call_times.kept_share(run, 100, allreduce)
        compute_s = curved_s, with_thread_s
        return timing, ready_s, line, compute_s, share, queued, curve

    results = threads.run(size, body)
    assert all(other == results[0] for other in results)
    timing, ready_s, line, compute_s, share, queued, curve = results[0]
    assert timing.repeats == 2 and len(ready_s) == 26
    assert ready_s == sorted(ready_s) and ready_s[0] > 0 and ready_s[-1] <= timing.high_s
    assert line.a_s >= 0 and line.b_s_per_byte >= 0
    assert 0 <= share <= 1
    assert [m for m, _ in curve.points] == [m for m, _ in queued.points] == [4, 28, 20000]
    assert all(t >= 0 for _, t in curve.points)
    assert min(compute_s) >= 0
    assert step_times.rescaled([1.0, 3.0], timing, timing.median_s / 2) == [0.5, 1.5]


@pytest.mark.parametrize("size", [1, 3])
def test_calls_by_kind(size):
    """Each kind with its own transport: bytes of its wire type, a kept share only with overlap.

    CSC's own time is that of steps in which no gradient is sent. All is the same on every rank.
    """

    def body(comm):
        options = Namespace(
            link=None,
            threads=size,
            quick=True,
            full=False,
            network="alexnet",
            width=1 / 16,
            batch=2,
        )
        run, data = kit.Run(comm, options), digits(67)[0]
        found = calls.measure(
            run, data, {"float32": calls.Kind(), "later": calls.Kind(wire=np.float16, overlap=True)}
        )
        with flow.new(run, data, wire=np.float16, csc=flow.csc(run, data, 10.0)) as stack:
            run.comm.reset()
            selection_s = calls.selection_s(
                run, stack, images.steps(run, data, 4), 0.0, norms=False
            )
            return found, selection_s, run.comm.messages

    results = threads.run(size, body)
    assert all(other == results[0] for other in results)
    found, selection_s, messages = results[0]
    n = found["float32"].queued.points[-1][0] // 4
    assert [m for m, _ in found["later"].queued.points] == [
        2 * k for k in call_times.sizes_up_to(n)
    ]
    assert found["later"].seconds == found["later"].queued and found["float32"].kept_share == 0
    assert selection_s > 0 and messages == 0


def test_calls_in_steps_are_later_than_in_a_row(monkeypatch):
    """By hand: in a row calls take 1, 3 and 5 s.

    In steps 3 s for 256 elements and 5 s for 5000, where the row has 1 and 4 s: 2 and 1 s later.
    Other sizes are interpolated. A step of 13 s with one short call computes for 10 s.
    """
    found = [3.0, 5.0], 13.0
    monkeypatch.setattr(call_times, "added_to_steps", lambda *arguments: found)
    model = Namespace(gradients=Namespace(flat=np.zeros(32 * 5000)))
    # 10512 is half way from 256 to 5000 elements of 4 bytes
    row = call_times.Curve(((1024, 1.0), (10512, 3.0), (29488, 5.0)))
    curve, compute_s = call_times.in_steps(Namespace(size=3), model, [], row, None)
    assert row(20000) == 4.0 and compute_s == 10.0
    assert curve.points == ((1024, 3.0), (10512, 4.5), (29488, 6.0))


def test_calls_sum_the_same_gradients_each_time():
    """Seeded mistake next to it: a sum in place is summed again, and grows."""
    gradients, x, y = np.arange(5.0), np.zeros(3), np.ones(3)

    def double(z):
        z *= 2

    fresh = call_times.of_gradients(double, gradients)
    for _ in range(2):
        fresh(x)
        double(y)
    assert x.tolist() == [0, 2, 4] and gradients.tolist() == [0, 1, 2, 3, 4]
    assert y.tolist() == [4, 4, 4]


@pytest.mark.parametrize("n", [1, 2, 63, 65, 347_538])
def test_sizes_rise_to_the_whole(n):
    sizes = call_times.sizes_up_to(n)
    assert sizes == sorted(set(sizes)) and len(sizes) <= 8
    assert sizes[0] == min(n, 64) and sizes[-1] == n


def test_prediction_errors_by_hand():
    assert kit.errors_in_words([(1.1, 1.0), (1.0, 2.0)]).startswith(
        "predicted against measured: mean error 30%, largest error 50%"
    )
