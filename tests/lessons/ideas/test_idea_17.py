"""Lesson 17's idea, its vote and its oracle against definitions."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from docs.tools import gains
from kit import flow
from lab.low_rank import oracle, sent
from lab.low_rank.methods import CSC, DENSE, RANK_1, RANK_4, SIGNS, TOPK, VOTE
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.oracle import definitions
from refgf.papers.powersgd.powersgd import PowerSGD

LESSON = gains.module_of(gains.ROOT / "lessons" / "17_low_rank.py")
SHAPES = [(9, 8), (5,), (40, 30)]
N = sum(int(np.prod(shape)) for shape in SHAPES)


@pytest.mark.parametrize("r", [1, 2, 3])
@pytest.mark.parametrize("p", [1, 2, 3, 7])
def test_a_sum_is_as_defined(p, r):
    random = np.random.default_rng([p, r])
    q, errors = random.standard_normal((8, r)), np.zeros((p, 9, 8))
    for scale in (0.1, 0.0, 1000.0):
        ms = list(scale * random.standard_normal((p, 9, 8)) + errors)
        found, wanted = LESSON.low_rank_sum(ms, q), definitions.low_rank_sum(ms, q)
        for mine, theirs in zip(found, wanted):
            assert np.allclose(mine, theirs, rtol=0, atol=2.0**-32 * np.abs(ms).sum())
        q, errors = wanted[1], np.array(wanted[2])


@pytest.mark.parametrize("p", [1, 2, 3, 7])
def test_a_vote_is_as_defined(p):
    xs = np.random.default_rng(p).standard_normal((p, 29)).astype(np.float32)
    xs[0, 3] = 0

    def body(comm, bad=None):
        vote, x = LESSON.Vote(comm), xs[comm.Get_rank()].copy()
        vote.start(x)
        x[5] = np.inf if bad == comm.Get_rank() else x[5]
        with np.errstate(invalid="ignore"):
            vote.sum(x, slice(0, 29))
        return x

    for x in threads.run(p, body):
        wanted = definitions.majority(list(xs))
        assert np.array_equal(np.sign(x), np.sign(wanted))
        assert np.allclose(x, wanted, rtol=1e-6)
    assert all(not np.isfinite(x).all() for x in threads.run(p, body, 0))


def checked(comm, made=PowerSGD, vote=LESSON.Vote):
    """The lesson's oracle on one rank."""
    traced = TracedComm(comm)
    run = SimpleNamespace(comm=traced, rank=comm.Get_rank(), size=comm.Get_size())
    for r in (1, 2):
        oracle.one(run, r, made)
    oracle.ballot(run, vote)


def test_the_table_of_the_page_has_the_bytes_of_the_committed_run():
    """Each row's numbers, in n, in the page's two digits."""
    sent = json.loads((gains.ROOT / "figures" / "17_low_rank.json").read_text())["sent"]
    names = {"dense": DENSE, "CSC 10 %": CSC, "votes": VOTE, "signs": SIGNS, "top-k 1 %": TOPK}
    names |= {"PowerSGD r=1": RANK_1, "PowerSGD r=4": RANK_4}
    for row, name in names.items():
        (line,) = re.findall(rf"^ +{row}  .*\(p-1\).*$", LESSON.__doc__, re.M)
        said = [float(number) for number in re.findall(r"([\d.]+) n(?=  |$)", line)[-3:]]
        wanted = [sent["bytes"][name][sent["ranks"].index(p)] for p in (2, 8, 64)]
        for number, nbytes in zip(said, wanted, strict=True):
            assert abs(number * sent["elements"] / nbytes - 1) < 0.05, line


def test_the_chunks_and_the_factors_of_the_page():
    sent = json.loads((gains.ROOT / "figures" / "17_low_rank.json").read_text())["sent"]
    n = sent["elements"]
    assert f"here n / {flow.chunk_elements(n)}." in LESSON.__doc__
    one, four = (sent["bytes"][name][0] / (4 * n) for name in (RANK_1, RANK_4))  # 2 ranks: 4 k
    assert f"k is {one:.2g} n here with r = 1, and {four:.2g} n with r = 4" in LESSON.__doc__


@pytest.mark.parametrize("p", [1, 2, 5])
def test_a_step_on_ranks_is_as_defined(p):
    threads.run(p, checked)


def test_a_vote_of_sums_is_noticed():
    class OfSums(LESSON.Vote):
        def sum(self, x, elements):
            self.allreduce(x)

    with pytest.raises(AssertionError, match="the vote on rank"):
        threads.run(3, checked, PowerSGD, OfSums)


def test_an_error_that_is_dropped_is_noticed():
    def dropped(comm, **settings):
        return PowerSGD(comm, **settings, feedback=False)

    with pytest.raises(AssertionError, match="kept"):
        threads.run(2, checked, dropped)


@pytest.mark.parametrize("name", sorted({*sent.NAMES} - {sent.CSC}))
def test_counted_bytes_are_those_of_the_formulas(name):
    for p in (2, 3, 5):
        counted = sent.count(name, SHAPES, N, p, LESSON.Vote)
        predicted = sent.predicted_bytes(name, SHAPES, N, p)
        assert abs(counted - predicted) <= 8 * p  # the scale of signs and votes, a started byte
