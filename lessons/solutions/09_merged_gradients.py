"""Solutions of lesson 09, each checked by the code below it.

python lessons/solutions/09_merged_gradients.py
"""

import itertools
import random

from refgf.predict.cost import Line
from refgf.papers.mgwfbp.merge import compare, exact_merge, greedy_merge
from refgf.papers.scaling.published import (
    INFINIBAND_EXTENDED,
    K80,
    TEN_GIGABIT,
    TEN_GIGABIT_EXTENDED,
)
from refgf.predict.timeline import eager, one_call, predict
from refgf.papers.scaling.workloads import densenet201, resnet50


def two_gradients() -> None:
    """1. Let r1 <= r2 be the ready times, s = r1 the first call's start, m1 and m2 > 0 the bytes.

        together     r2 + a + b(m1 + m2)
        apart        max(s + a + b m1, r2) + a + b m2

    If the first call has ended by r2, apart is earlier by b m1. Then r2 - s >= a + b m1 >= a, and
    the rule does not merge. If not, apart ends at s + 2a + b(m1 + m2), later than together exactly
    if r2 - s < a: the rule. So each single decision is right as long as what follows stays the
    same, and greedy is never slower than eager."""
    rng = random.Random(1)
    for _ in range(2000):
        first_s, second_s = sorted(rng.uniform(0, 10) for _ in range(2))
        line = Line(rng.choice([0, 1, rng.uniform(0, 5)]), rng.choice([0, rng.uniform(0, 2)]))
        gradients = [(first_s, rng.randint(1, 9)), (second_s, rng.randint(1, 9))]
        assert compare(gradients, line)["excess"] < 1e-12


def chain(gradients: int):
    """Each gradient is ready just before a latency has passed, so greedy waits for all of them.

    The first gradient holds nearly all bytes.
    """
    wait_s = 0.999
    later = [(wait_s * i, 1) for i in range(1, gradients)]
    heavy = round(wait_s * gradients * 1000)
    return [(0.0, heavy), *later], Line(1.0, 1e-3)


def nearly_twice() -> None:
    """2. Less than twice, and arbitrarily near to it. Let every gradient be ready a little less
    than a after the one before. Then greedy waits for each, and sends everything when backward has
    ended: R + a + bM for R seconds of backward and M bytes. If the first gradient holds nearly all
    bytes and bM = R, sending it at once hides nearly all of it: about R.

    Never more: greedy is never slower than one call, R + a + bM after the first gradient. (Between
    two calls of a row that wait for each other at least a has passed for each. So the last group is
    ready no earlier than all latencies but one.) No merge ends before R + a, nor before a + bM, and
    R + a + bM is less than twice the larger of the two."""
    ratios = [1 + compare(*chain(gradients))["excess"] for gradients in (10, 100, 1000)]
    assert greedy_merge(*chain(100)) == one_call(chain(100)[0])
    assert ratios == sorted(ratios) and 1.98 < ratios[-1] < 2
    rng = random.Random(2)
    for _ in range(500):
        ready = sorted(rng.uniform(0, 10) for _ in range(12))
        gradients = [(seconds, rng.randint(1, 1000)) for seconds in ready]
        line = Line(rng.uniform(0, 3), 10 ** rng.uniform(-5, -2))
        greedy_s = predict(gradients, greedy_merge(gradients, line), line).step_s
        exact_s = predict(gradients, exact_merge(gradients, line), line).step_s
        steps = [predict(gradients, groups(gradients), line).step_s for groups in (eager, one_call)]
        assert greedy_s <= min(steps) * (1 + 1e-12) and greedy_s < 2 * exact_s


def another_pace() -> None:
    """3. On the lines below 4 % in the mean, and nearly a fifth at most. The best merge makes its
    groups as large as possible without delay, so at another pace one of them may delay the last. On
    all these lines it remains faster than one call. So groups belong to a pace: profile again when
    the batch, the images or the GPU change."""
    lines = [
        TEN_GIGABIT.lines[16],
        TEN_GIGABIT_EXTENDED.lines[64],
        INFINIBAND_EXTENDED.lines[64],
        K80.lines[8],
    ]
    losses = []
    for network, line, pace in itertools.product((resnet50(), densenet201()), lines, (0.75, 1.25)):
        old, new = network.gradients(0.2), network.gradients(0.2 * pace)
        stale, best = (predict(new, exact_merge(times, line), line).step_s for times in (old, new))
        assert stale < predict(new, one_call(new), line).step_s
        losses.append(stale / best - 1)
    assert sum(losses) / len(losses) < 0.04 and 0.15 < max(losses) < 0.2


if __name__ == "__main__":
    for exercise in (two_gradients, nearly_twice, another_pace):
        exercise()
        print(exercise.__doc__.strip() + "\n")
