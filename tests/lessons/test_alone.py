"""A step without exchange, on ranks that start one after another: times are counted from the first rank's start."""

from argparse import Namespace

import numpy as np
import pytest

import kit
from kit import alone
from refgf.comm import ring, threads
from refgf.comm.schedule import collective
from refgf.nn.alexnet import AlexNet
from refgf.training.step import replica

# rank 0 starts at 0: gradients after 1 and 2, end at 2.5; rank 1 gets a core at 2: 3, 4, 4.5. Both leave the barrier at 5.
OWN_S = np.array([[[1.0, 2.0, 2.5, 5.0]], [[1.0, 2.0, 2.5, 3.0]]])  # (ranks, steps, events), each on its own clock


def test_ranks_one_after_another():
    assert alone.since_first(OWN_S).tolist() == [[3.0, 4.0, 4.5]]


def test_clocks_of_their_own_would_be_seen():
    """Seeded mistake: the slowest rank by its own clock, as if all had started together. Half of the step is lost."""
    assert OWN_S[..., :-1].max(axis=0).tolist() == [[1.0, 2.0, 2.5]] != alone.since_first(OWN_S).tolist()


@pytest.mark.parametrize("ranks, steps", [(1, 1), (3, 5), (7, 2)])
def test_any_ranks_and_steps(ranks, steps):
    """Against a common clock that the function does not see. Quarters, so that sums are exact."""
    rng = np.random.default_rng([ranks, steps])
    start_s = rng.integers(0, 40, (ranks, steps, 1)) / 4
    events_s = start_s + np.cumsum(rng.integers(0, 9, (ranks, steps, 4)), axis=-1) / 4
    closed_s = np.broadcast_to(events_s.max(axis=(0, 2)) + 1, (ranks, steps))[..., None]
    own_s = np.concatenate([events_s, closed_s], axis=-1) - start_s
    wanted = events_s.max(axis=0) - start_s.min(axis=0)
    assert alone.since_first(own_s).tolist() == wanted.tolist()
    assert (np.diff(wanted) >= 0).all()  # gradients in order of time, as `predict` asks


@pytest.mark.parametrize("size", [1, 3])
def test_what_a_step_and_its_calls_take(size):
    """On ranks that are threads: gradients in order of time, steps counted, sums that start up, the same on every rank."""

    def body(comm):
        run = kit.Run(comm, Namespace(link=None, threads=size, quick=True, full=False))
        allreduce, model = collective(run.comm.Dup(), ring.allreduce), replica(AlexNet(10, 67, 1 / 16), 1)
        batches = [(np.ones((2, *model.network.image_shape), np.float32), np.array([1, 2]), 2 * size)] * 4
        timing, ready_s = alone.step_alone(run, model, batches, skip=2)
        line = alone.queued(run, [0, 7, 5000], allreduce, repeats=2).line
        among, plain_s = alone.among(run, model, batches, line, allreduce)
        beside_s = alone.beside(run, model, batches, line, allreduce)
        return timing, ready_s, line, among, (plain_s, beside_s), alone.kept_share_of(run, 100, allreduce)

    heard = threads.run(size, body)
    assert all(other == heard[0] for other in heard)
    timing, ready_s, line, among, compute_s, share = heard[0]
    assert timing.repeats == 2 and len(ready_s) == 26
    assert ready_s == sorted(ready_s) and ready_s[0] > 0 and ready_s[-1] <= timing.high_s
    assert among.a_s >= line.a_s >= 0 and among.b_s_per_byte == line.b_s_per_byte and 0 <= share <= 1
    assert min(compute_s) >= 0 and alone.at_pace([1.0, 3.0], timing, timing.median_s / 2) == [0.5, 1.5]


def test_apart_by_hand():
    assert kit.apart([(1.1, 1.0), (1.0, 2.0)]).startswith("predicted against measured: 30% apart in the mean, 50% at worst")
