"""Lesson 00's idea: p ranks that take the mean step like one rank with all samples."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.oracle.definitions import exact_sum

LESSON = gains.module_of(gains.ROOT / "lessons" / "00_two_ranks.py")


@pytest.mark.parametrize("p", [1, 2, 3, 7])
def test_the_mean_of_gradients_is_the_gradient_of_all_samples(p):
    """Bound: each of the steps adds p samples and features numbers, rounded once each."""
    random, steps, samples, features = np.random.default_rng(p), 20, 5, 4
    xs = [random.standard_normal((steps, samples, features)) for _ in range(p)]
    ys = [random.standard_normal((steps, samples)) for _ in range(p)]
    every = LESSON.sgd_on_ranks(xs, ys, 0.05)
    wanted = LESSON.sgd(np.concatenate(xs, axis=1), np.concatenate(ys, axis=1), 0.05)
    bound = steps * (p * samples + features) * np.finfo(float).eps * np.abs(xs).max()
    assert all(np.abs(w - wanted).max() <= bound for w in every) and len(every) == p
    assert all(np.array_equal(w, every[0]) for w in every)


def test_the_gradient_is_that_of_the_loss():
    """Against central differences: the loss is quadratic, so these are exact but for rounding."""
    random = np.random.default_rng(0)
    w, x, y = random.standard_normal(4), random.standard_normal((5, 4)), random.standard_normal(5)

    def loss(w):
        return exact_sum(list((x @ w - y)[:, None] ** 2))[0] / 10

    found = [(loss(w + step) - loss(w - step)) / 2e-3 for step in 1e-3 * np.eye(4)]
    assert np.abs(found - LESSON.gradient(w, x, y)).max() < 1e-10
