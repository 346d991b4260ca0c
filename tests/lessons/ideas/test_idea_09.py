"""Lesson 09's idea against MG-WFBP's rule in refgf, its timeline and the definition of the sums."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.oracle.definitions import merged_allreduce, same_bits
from refgf.papers.mgwfbp.merge import greedy_merge
from refgf.predict.cost import Line
from refgf.predict.timeline import one_call, predict

LESSON = gains.module_of(gains.ROOT / "lessons" / "09_merged_gradients.py")


@pytest.mark.parametrize("seed", range(100))
def test_groups_are_those_of_the_rule(seed):
    """Times are multiples of 1/8 and sizes of 4 bytes, so that no sum is rounded. No size is 0."""
    rng = np.random.default_rng(seed)
    count, a_s, b_s = rng.integers(1, 30), rng.integers(0, 9) / 4, rng.choice([0, 1 / 64])
    ready_s = np.cumsum(rng.integers(0, 12, count) / 8).tolist()
    nbytes = (4 * rng.integers(1, 30, count)).tolist()
    gradients, line = list(zip(ready_s, nbytes)), Line(a_s, b_s)
    groups, end_s = LESSON.greedy_groups(ready_s, nbytes, a_s, b_s)
    assert groups == greedy_merge(gradients, line)
    assert end_s == predict(gradients, groups, line).step_s


@pytest.mark.parametrize("p", [1, 3, 4])
@pytest.mark.parametrize("sizes", [[5], [0], [1, 2, 2, 3, 1, 1], [7, 0, 7, 1, 0]])
@pytest.mark.parametrize("a_s", [0.0, 1.5, 100.0])
def test_sums_are_as_defined(p, sizes, a_s):
    rng = np.random.default_rng(p)
    gradients = [[rng.standard_normal(n).astype(np.float32) for n in sizes] for _ in range(p)]
    groups, _ = LESSON.greedy_groups(list(range(len(sizes))), [4 * n for n in sizes], a_s, 0.1)
    xs = [np.concatenate(mine) for mine in gradients]
    wanted = merged_allreduce(xs, sizes, [len(group) for group in groups], order="direct")
    got = LESSON.merged_sums(gradients, groups)
    assert all(same_bits(mine, defined) for mine, defined in zip(got, wanted, strict=True))


def test_the_drawing():
    """Latency 6, two bytes each, one unit of time a byte: ends at 40, 35 and 42."""
    ready_s, nbytes = [0, 4, 12, 17, 26], [2] * 5
    groups, end_s = LESSON.greedy_groups(ready_s, nbytes, 6, 1)
    assert (groups, end_s) == ([range(0, 2), range(2, 4), range(4, 5)], 35)
    gradients, line = list(zip(ready_s, nbytes)), Line(6, 1)
    assert predict(gradients, [range(i, i + 1) for i in range(5)], line).step_s == 40
    assert predict(gradients, one_call(gradients), line).step_s == 42
