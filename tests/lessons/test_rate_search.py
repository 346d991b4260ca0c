"""The rate search finds the known maximum of a curve for any number of ranks; the 95 % interval."""

import statistics

import pytest

from kit import trials
from lab.large_batch import rate_search
from refgf.machine import threads


class Run:
    """The attributes of kit.Run that `trials.deal` uses."""

    def __init__(self, comm):
        self.plain, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()


def curve(top):
    """Accuracy falls by 2 for each factor of 2 away from the best rate."""
    return lambda cell, e, fold, seed: {
        "accuracy": 100 - 2 * abs(e - top),
        "loss": 1.0,
        "by": (fold, seed),
    }


@pytest.mark.parametrize("top", [-9, -4, -1, 0, 1, 3, 6])
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


def test_a_search_continues_beyond_its_edge_and_then_between():
    assert rate_search.proposals({}) == [-4, -2, 0, 2]
    tried = {e: curve(9)("cell", e, 0, 1) for e in (-4, -2, 0, 2)}
    assert rate_search.proposals(tried) == [4]
    tried = {e: curve(-2)("cell", e, 0, 1) for e in (-4, -2, 0, 2)}
    assert rate_search.proposals(tried) == [-3, -1]
    tried |= {e: curve(-2)("cell", e, 0, 1) for e in (-3, -1)}
    assert rate_search.proposals(tried) == []


def test_among_equal_accuracies_the_lower_loss_wins():
    tried = {
        0: {"accuracy": 90.0, "loss": 0.5},
        1: {"accuracy": 90.0, "loss": 0.4},
        2: {"accuracy": 80.0, "loss": 0.1},
    }
    assert rate_search.best(tried) == 1


@pytest.mark.parametrize("p", [1, 3, 7])
@pytest.mark.parametrize("count", [0, 1, 10])
def test_each_job_runs_once_and_results_keep_their_order(p, count):
    done = []

    def job(number):
        done.append(number)
        return number**2

    results = threads.run(p, lambda comm: trials.deal(Run(comm), [(i,) for i in range(count)], job))
    assert results == [[i**2 for i in range(count)]] * p and sorted(done) == list(range(count))


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
