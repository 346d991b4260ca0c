"""The networks of lesson 09: the guarantees of their kinds, and how misses are counted."""

import random

import pytest

from lab.merge import greedy_misses
from refgf.machine import threads
from refgf.predict.cost import Line


class OneRank:
    """A lesson's run on one rank."""

    rank, size = 0, 1

    class plain:  # noqa: N801  the name in kit.Run
        @staticmethod
        def allgather(x):
            return [x]


@pytest.mark.parametrize("kind", greedy_misses.BEST_FOR)
def test_kinds_for_which_greedy_is_best(kind):
    assert greedy_misses.misses(OneRank, 300, kind)["missed"] == 0


def test_greedy_misses_among_any():
    found = greedy_misses.misses(OneRank, 300, "any")
    # less than twice as long: solution 2
    assert 0 < found["mean"] <= found["worst"] == max(found["excesses"]) < 1
    assert found["missed"] == len(found["excesses"]) / 300


def test_networks_are_what_their_kind_says():
    for seed in range(100):
        gradients, line = greedy_misses.within_one_latency(random.Random(seed))
        assert gradients[-1][0] - gradients[0][0] < line.a_s or len(gradients) == 1
        gradients, line = greedy_misses.sent_before_the_next(random.Random(seed))
        assert all(
            later >= ready_s + line(nbytes)
            for (ready_s, nbytes), (later, _) in zip(gradients, gradients[1:])
        )
        assert greedy_misses.without(latency=True)(random.Random(seed))[1].a_s == 0
        assert greedy_misses.without(latency=False)(random.Random(seed))[1].b_s_per_byte == 0


def test_counts_do_not_depend_on_the_number_of_ranks():
    def body(comm):
        run = type("Run", (), {"rank": comm.rank, "size": comm.size, "plain": comm})
        real = greedy_misses.real_misses(run, Line(2e-3, 1e-8), ["AlexNet"], [0.2], [4])
        return greedy_misses.misses(run, 50, "any"), real

    one_rank = threads.run(1, body)[0]
    assert threads.run(3, body) == [one_rank] * 3
    assert (
        one_rank[1]["networks"] == 1 * 10 and one_rank[1]["kind"] == "1 real networks, 10 clusters"
    )


def test_a_kind_with_a_false_guarantee_is_caught(monkeypatch):
    """Seeded mistake: waits of up to two latencies count as waits within one."""

    def too_long(rng):
        gradients, line = greedy_misses.random_network(rng)
        return gradients, Line(0.5 * (gradients[-1][0] - gradients[0][0]), line.b_s_per_byte)

    monkeypatch.setitem(greedy_misses.KINDS, "all ready within one latency", too_long)
    assert greedy_misses.misses(OneRank, 300, "all ready within one latency")["missed"] > 0
