"""Lesson 03's idea against the definition of lazy allreduce: calls and bits."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.oracle.definitions import lazy_allreduce, lazy_calls, same_bits

LESSON = gains.module_of(gains.ROOT / "lessons" / "03_lazy_allreduce.py")


@pytest.mark.parametrize("p", [1, 3, 4])
@pytest.mark.parametrize("sizes", [[1, 2, 2, 3, 1, 1], [5], [0], [0, 3, 0, 0], [7, 0, 7, 1, 0]])
@pytest.mark.parametrize("theta", [0, 4, 16, 20, np.inf])
def test_calls_and_bits_are_as_defined(p, sizes, theta):
    rng = np.random.default_rng(p)
    gradients = [[rng.standard_normal(n).astype(np.float32) for n in sizes] for _ in range(p)]
    pools, calls = LESSON.lazy_sums(gradients, theta)
    assert calls == lazy_calls(sizes, 4, theta)
    xs = [np.concatenate(mine) for mine in gradients]
    wanted = lazy_allreduce(xs, sizes, theta, order="direct")
    assert all(same_bits(got, defined) for got, defined in zip(pools, wanted))


def test_the_calls_of_the_drawing():
    gradients = [[np.ones(n, np.float32) for n in (1, 2, 2, 8, 1, 1)]]
    _, calls = LESSON.lazy_sums(gradients, theta=16)
    assert calls == [(0, 5), (5, 13), (13, 15)]
