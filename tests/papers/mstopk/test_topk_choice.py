"""The choice of top-k: exactly k, as defined, as published; what bisection loses."""

import numpy as np
import pytest

from refgf.papers.mstopk.topk import mstopk
from tests.support.topk_cases import data


def published_mstopk(x, k, start, rounds):
    """Bisection as public code has it, looking at everything in every round.

    start: 0 to 1, both drawn there; it is in place of a random number.
    """
    a = np.abs(x)
    mean, high = float(a.mean(dtype=np.float64)), float(a.max())
    left, right, k1, k2, above, below = 0.0, 1.0, 0, x.size, 0.0, 0.0
    for _ in range(rounds):
        ratio = left + (right - left) / 2
        threshold = mean + ratio * (high - mean)
        count = int((a >= threshold).sum())
        if count <= k:
            right = ratio
            if count > k1:
                k1, above = count, threshold
        else:
            left = ratio
            if count < k2:
                k2, below = count, threshold
    chosen, between = np.flatnonzero(a >= above), np.flatnonzero((a >= below) & (a < above))
    first = int(start * (between.size - (k - k1) + 1))
    return sorted([*chosen.tolist(), *between[first : first + k - k1].tolist()])


@pytest.mark.parametrize("family", ["normal", "heavy tail", "many zeros", "one giant"])
@pytest.mark.parametrize("rounds", [1, 5, 30])
def test_mstopk_is_the_published_bisection(family, rounds):
    """Wherever k elements reach the mean, and 1 to k of them one of the thresholds."""
    x = data(family, 5000, seed=3)
    reach = int((np.abs(x) >= np.abs(x).mean(dtype=np.float64)).sum())
    for k in {1, 5, min(50, reach), min(500, reach), reach}:
        for start in (0.0, 0.37, 0.9999):
            published = published_mstopk(x, k, start, rounds)
            if len(published) <= k:
                assert mstopk(x, k, start, rounds).tolist() == published, (k, start)
            else:
                assert published == list(range(x.size)) and rounds < 30


TIED = np.array([1, 0, 3, 0, 3, 0, 3, 1], np.float32)  # three share the maximum


@pytest.mark.parametrize(
    "x, k, start, published, ours",
    [
        # only 3 elements reach the mean, but k is 5: the published search cannot go below it, and
        # the neighbours may be any
        ([9, 8, 7, 0, 0, 1, 1, 1], 5, 0.0, [0, 1, 2, 3, 4], [0, 1, 2, 5, 6]),
        # every threshold is reached by 3 or more, but k is 2: the published threshold stays 0
        (TIED, 2, 0.0, list(range(8)), [2, 4]),
        # the last place that the published code draws leaves room for k - 1 only
        ([5, 4, 4, 4, 1, 1, 1, 1], 2, 1.0, [0], [0, 3]),
    ],
    ids=["few reach the mean", "no threshold reached by 1 to k", "one place too far"],
)
def test_where_the_result_is_not_that_of_public_code(x, k, start, published, ours):
    """Three of the five changes. The other two change no result."""
    x = np.array(x, np.float32)
    assert published_mstopk(x, k, start, 30) == published
    assert mstopk(x, k, min(start, np.nextafter(1.0, 0))).tolist() == ours
