"""Merged gradients: a call for each group, the sums of lazy allreduce, and an agreed profile."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refgf.comm import direct, ring
from refgf.comm.schedule import collective
from refgf.exchange.lazy import LazyAllreduce
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.oracle.definitions import direct_allreduce
from refgf.papers.mgwfbp.merge import exact_merge
from refgf.papers.mgwfbp.merged import Groups, Profile, slowest
from refgf.predict.fit import fit_line
from tests.exchange.test_lazy import SIZES, pool_of, step
from tests.support.groups_of import groups_of


def wanted_calls(sizes, groups):
    """From the definition: the elements of each group, if it has some."""
    ends = [0, *np.cumsum(sizes).tolist()]
    calls = [(ends[group[0]], ends[group[-1] + 1]) for group in groups]
    return [(start, stop) for start, stop in calls if stop > start]


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=12))
@settings(derandomize=True, database=None, deadline=None)
def test_calls_are_the_groups(tensors):
    sizes, cuts = zip(*tensors)
    ends = [i + 1 for i, cut in enumerate(cuts) if cut and i + 1 < len(sizes)] + [len(sizes)]
    groups = [range(start, stop) for start, stop in zip([0, *ends], ends)]
    merged = LazyAllreduce(pool_of(sizes), lambda x: None, Groups(tuple(groups)))
    assert step(merged, sizes) == wanted_calls(sizes, groups)
    assert step(merged, sizes) == wanted_calls(sizes, groups)  # the second step starts afresh


def test_a_group_is_sent_when_its_last_gradient_is_ready():
    groups, ready, sent_after = Groups(tuple(groups_of([2, 3, 2]))), [], []
    merged = LazyAllreduce(pool_of(SIZES), lambda x: sent_after.append(ready[-1]), groups)
    for index in range(len(SIZES)):
        ready.append(index)
        merged.ready(index)
    merged.finish()
    assert sent_after == [1, 4, 6]


def total(comm, algorithm, groups, mine, overlapped):
    pool = pool_of(SIZES)
    pool.flat[:] = mine
    allreduce = collective(comm.Dup() if overlapped else comm, algorithm)
    worker = CommunicationThread() if overlapped else AtOnce()
    merged = LazyAllreduce(pool, lambda x: worker.run(allreduce, x), Groups(tuple(groups)))
    step(merged, SIZES)
    worker.wait()
    worker.close()
    return pool.flat


@pytest.mark.parametrize(
    "groups",
    [
        [],
        [range(2)],
        [range(1, 3)],
        [range(2), range(1, 3)],
        [range(2), range(0), range(2, 3)],
        [range(2), range(2, 4)],
        [range(2, 3), range(2)],
    ],
)
def test_groups_must_hold_each_gradient_once(groups):
    with pytest.raises(ValueError, match="Groups: got groups .* of 3 gradients once"):
        LazyAllreduce(pool_of([1, 1, 1]), None, Groups(tuple(groups)))


def test_lists_are_refused_for_what_they_are():
    with pytest.raises(ValueError, match=r"got \[0, 1, 2\]; wanted ranges"):
        Groups(([0, 1, 2], [3, 4])).check(5)


# ---- the profile ----


def profiled(waits, steps=3):
    """A profile of steps with a pause before each gradient."""
    profile = Profile(pool_of([1] * len(waits)))
    for _ in range(steps):
        profile.start()
        for i, wait_s in enumerate(waits):
            time.sleep(wait_s)
            profile.ready(i)
        assert profile.finish().accepted is False  # no step of a profile is accepted
    return profile


def test_a_profile_notes_when_gradients_are_ready():
    ready_s = profiled([0.02, 0.0, 0.01]).ready_s()
    assert 0.02 <= ready_s[0] <= ready_s[1] and ready_s[1] + 0.01 <= ready_s[2]


def test_without_a_start_times_count_from_the_first_gradient():
    profile = Profile(pool_of([1, 1]))
    for _ in range(2):
        step(SimpleCalls(profile), [1, 1])
    assert profile.ready_s()[0] < 0.01


class SimpleCalls:
    """A profile with the list of calls that `step` reads."""

    def __init__(self, profile):
        self.ready, self.finish, self.calls = profile.ready, profile.finish, []


def test_a_profile_too_short_or_out_of_order_is_refused():
    with pytest.raises(ValueError, match="Profile.ready_s: got 1 steps; wanted more than the 1"):
        profiled([0.0], steps=1).ready_s()
    with pytest.raises(ValueError, match="profile: gradient 1 is ready; wanted 0"):
        Profile(pool_of([1, 1])).ready(1)


def test_the_slowest_rank_counts_and_all_ranks_know(on_ranks):
    def body(comm):
        p, rank = comm.Get_size(), comm.Get_rank()
        mine = [1 / 3 + rank, 0.1 * (p - rank), 7.0]
        got = slowest(mine, collective(comm, ring.allreduce), rank, p)
        assert got == [1 / 3 + (p - 1), 0.1 * p, 7.0]

    on_ranks(body)


def test_profile_fit_merge_run(on_ranks):
    """The four steps: for any times all ranks form the same groups, and the sums are right."""

    def body(comm):
        p, rank = comm.Get_size(), comm.Get_rank()
        allreduce = collective(comm, direct.allreduce)
        ready_s = slowest(profiled([0.001 * rank] * len(SIZES)).ready_s(), allreduce, rank, p)
        sizes = [1, 1000, 100_000]
        mine = np.random.default_rng(rank).uniform(1e-4, 1e-3, 3).tolist()  # of calls, measured
        times_s = slowest(sorted(mine), allreduce, rank, p)
        line = fit_line([(4 * n, seconds) for n, seconds in zip(sizes, times_s)]).line
        groups = exact_merge([(ready, 4 * n) for ready, n in zip(ready_s, SIZES)], line)
        assert len(set(map(str, comm.allgather(groups)))) == 1
        everybody = [
            np.random.default_rng(r).standard_normal(sum(SIZES)).astype(np.float32)
            for r in range(p)
        ]
        got = total(comm, direct.allreduce, groups, everybody[rank], False)
        assert got.tobytes() == direct_allreduce(everybody)[rank].tobytes()

    on_ranks(body)
