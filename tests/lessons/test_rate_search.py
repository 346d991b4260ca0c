"""The rate search finds the known maximum of a curve for any number of ranks; the 95 % interval."""

import math
import statistics

import pytest

from kit import trials
from lab.large_batch import rate_search
from refgf.machine import threads


class Run:
    """The attributes of kit.Run that `trials.deal` uses."""

    def __init__(self, comm):
        self.plain, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()
        self.met = 0

    def meet(self):
        self.met += 1


def curve(top):
    """The loss grows by 0.2 for each factor of 2 away from the best rate."""
    return lambda cell, e, fold, seed: {
        "accuracy": 90.0,
        "loss": 1.0 + 0.2 * abs(e - top),
        "by": (fold, seed),
    }


@pytest.mark.parametrize("top", [-7, -4, -1, 0, 1, 3, 6])
def test_the_maximum_is_found_with_any_number_of_ranks(top):
    found = []
    for p in (1, 3, 5):
        tried = threads.run(
            p, lambda comm: rate_search.search(Run(comm), ["cell", "other"], curve(top), rounds=6)
        )
        assert all(t == tried[0] for t in tried) and tried[0]["cell"] == tried[0]["other"]
        assert rate_search.best(tried[0]["cell"]) == top
        found.append(sorted(tried[0]["cell"]))
    assert found[0] == found[1] == found[2]


def test_a_search_tries_the_neighbours_of_the_best_rate():
    assert rate_search.proposals({}) == [-2, 0]
    tried = {e: curve(-3)("cell", e, 0, 1) for e in (-2, 0)}
    assert rate_search.proposals(tried) == [-3, -1]
    tried |= {e: curve(-3)("cell", e, 0, 1) for e in (-3, -1)}
    assert rate_search.proposals(tried) == [-4]  # so the best one is not at the edge
    tried[-4] = curve(-3)("cell", -4, 0, 1)
    assert rate_search.proposals(tried) == []


def test_the_lowest_loss_wins():
    """Held-out accuracies of one training are noise; one that diverged has an infinite loss."""
    tried = {
        0: {"accuracy": 97.0, "loss": 0.5},
        1: {"accuracy": 96.7, "loss": 0.4},
        2: {"accuracy": 0.0, "loss": math.inf},
    }
    assert rate_search.best(tried) == 1


@pytest.mark.parametrize("p", [1, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 10])
def test_each_job_runs_once_and_results_keep_their_order(p, count):
    done = []

    def job(number):
        done.append(number)
        return number**2

    def body(comm):
        run = Run(comm)
        results = trials.deal(run, [(i,) for i in range(count)], job)
        assert run.met == 1, "a rank that is done keeps its core busy"
        return results

    assert threads.run(p, body) == [[i**2 for i in range(count)]] * p
    assert sorted(done) == list(range(count))


def test_the_interval_uses_students_t():
    values = [90.0, 92.0, 91.0, 95.0]
    found = rate_search.interval(values)
    assert found["mean"] == 92 and found["half"] == pytest.approx(
        3.1824 * statistics.stdev(values) / 2, rel=1e-4
    )
    assert (
        rate_search.interval([90.0])["half"] is None
        and rate_search.in_words(found) == "92.0 +- 3.4"
    )
