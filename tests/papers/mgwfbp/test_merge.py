"""The exact merge against all 2**(L-1) merges, and limits of both rules.

Groups and times of the definitions, and the authors' own form: tests/oracle.
"""

import random
from itertools import product
from math import inf

from refgf.papers.mgwfbp.merge import compare, exact_merge, greedy_merge, theta_bounds
from refgf.predict.cost import Line
from refgf.predict.timeline import eager, lazy, one_call, predict
from tests.support.groups_of import groups_of


def all_merges(count):
    """Every way to cut `count` gradients into groups."""
    for cuts in product([False, True], repeat=count - 1):
        places = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), count]
        yield [range(i, j) for i, j in zip(places, places[1:])]


def random_network(rng, longest):
    """Backward times and sizes over four decades; latencies and slopes that make both matter."""
    ready, gradients = 0.0, []
    for _ in range(rng.randint(1, longest)):
        ready += 10 ** rng.uniform(-4, 0)
        gradients.append((ready, round(10 ** rng.uniform(0, 4))))
    return gradients, Line(10 ** rng.uniform(-4, 0), 10 ** rng.uniform(-7, -3))


def staircase(line, step=64):
    """Not a line: full packets are sent. The exact merge holds for any T."""
    return lambda nbytes: line(step * -(-nbytes // step))


def test_exact_is_the_best_of_all_merges():
    """Not a bit worse, for a line and a staircase; on a line with no more calls than needed."""
    rng = random.Random(1)
    for _ in range(200):
        gradients, line = random_network(rng, 8)
        for allreduce_s in (line, staircase(line)):
            groups = exact_merge(gradients, allreduce_s)
            ends = [
                (predict(gradients, merge, allreduce_s).step_s, len(merge))
                for merge in all_merges(len(gradients))
            ]
            assert predict(gradients, groups, allreduce_s).step_s == min(ends)[0]
            if allreduce_s is line:
                assert len(groups) == min(ends)[1]


def test_empty_gradients_cost_no_call():
    """Half of the gradients are empty. No merge beats the exact one."""
    rng = random.Random(7)
    for _ in range(100):
        gradients, line = random_network(rng, 7)
        gradients = [(t, nbytes if rng.random() < 0.5 else 0) for t, nbytes in gradients]
        best = min(predict(gradients, g, line).step_s for g in all_merges(len(gradients)))
        assert predict(gradients, exact_merge(gradients, line), line).step_s == best


def test_exact_makes_no_call_that_saves_nothing():
    """Backward is far ahead: only the last gradient's call shows.

    Ready at 1, 2, 3, 4; T(n) = 0.1 + 0.1 n.
    """
    gradients = [(1.0, 1), (2.0, 1), (3.0, 1), (4.0, 1)]
    assert exact_merge(gradients, Line(0.1, 0.1)) == [range(0, 3), range(3, 4)]
    assert greedy_merge(gradients, Line(0.1, 0.1)) == eager(gradients)


def test_greedy_misses_by_hand():
    """Ready at 1, 2, 4; T(n) = 2 + n.

    Greedy: 2 + 4 = 6, then 6 + 3 = 9. Better: 1 + 3 = 4, then 4 + 4 = 8.
    """
    gradients = [(1.0, 1), (2.0, 1), (4.0, 1)]
    assert compare(gradients, Line(2, 1)) == {"greedy": 9, "exact": 8, "excess": 0.125}


def test_limits_of_the_start_up():
    gradients = [(float(i), 1000) for i in range(1, 11)]
    free, dear = Line(0, 0.0005), Line(1000, 0.001)
    assert greedy_merge(gradients, free) == eager(gradients)
    assert compare(gradients, free)["excess"] == 0
    assert greedy_merge(gradients, dear) == one_call(gradients) == exact_merge(gradients, dear)


def test_equal_ends_give_larger_groups():
    assert exact_merge([(1.0, 5), (1.0, 5)], Line(0, 1)) == [range(0, 2)]


def test_theta_bounds():
    gradients = [(1.0, 10), (2.0, 20), (3.0, 5), (4.0, 7)]
    assert theta_bounds(gradients, groups_of([2, 2])) == (10, 30)
    for theta, same in [(9, False), (10, True), (29, True), (30, False)]:
        assert (lazy(gradients, theta) == groups_of([2, 2])) is same
    assert theta_bounds(gradients, groups_of([1, 3])) == (25, 10)  # low > high: no theta
    assert theta_bounds(gradients, eager(gradients)) == (0, 5)
    assert theta_bounds(gradients, one_call(gradients)) == (35, inf)
