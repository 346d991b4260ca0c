"""Lesson 07's idea against the definition of a step with CSC, float16 and theta, in rank order."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.oracle.definitions import (
    CSCRunSettings,
    chunk_bounds,
    csc_start,
    csc_step,
    direct_allreduce,
    lazy_allreduce,
    sent_elements,
)

LESSON = gains.module_of(gains.ROOT / "lessons" / "07_gradientflow.py")
SIZES = [(5, 1, 8, 3), (3,), (0,), (0, 2, 0, 0), (1, 0, 1)]
CHUNK = 3


def gradients(p, n, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(n).astype(np.float32) for _ in range(p)]


@pytest.mark.parametrize("p", [1, 3, 4])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("theta", [0, 4, 10, np.inf])
def test_dense(p, sizes, theta):
    """Each technique by itself, and both."""
    xs = gradients(p, sum(sizes))
    half = LESSON.half(LESSON.total)
    assert np.array_equal(LESSON.total(xs), direct_allreduce(xs)[0])
    assert np.array_equal(half(xs), direct_allreduce(xs, "float16")[0])
    both = LESSON.lazy(half, list(sizes), theta)
    wanted = lazy_allreduce(xs, list(sizes), theta, "float16", order="direct")[0]
    assert np.array_equal(both(xs), wanted)


def test_lazy_calls():
    """More than theta bytes fire, exactly theta bytes wait."""
    seen = []

    def counted(xs):
        seen.append(xs[0].size)
        return LESSON.total(xs)

    LESSON.lazy(counted, [1, 1, 4, 2, 1], theta=4)(gradients(2, 9))
    assert seen == [6, 3]


@pytest.mark.parametrize("p", [1, 3, 4])
@pytest.mark.parametrize("sizes", SIZES[:2] + SIZES[3:])
@pytest.mark.parametrize("theta", [0, 7, np.inf])
def test_sparse_steps(p, sizes, theta):
    """Four steps of the whole stack: sums and residuals, without momentum (form `none`)."""
    n = sum(sizes)
    settings = CSCRunSettings(sizes, CHUNK, "none", wire="float16", theta_bytes=theta)
    state = csc_start(np.zeros(n, np.float32), p, settings)
    residuals = [np.zeros(n, np.float32) for _ in range(p)]
    lengths = [j - i for i, j in chunk_bounds(n, CHUNK)]
    for step in range(4):
        xs, listed = gradients(p, n, step), state["chosen"]
        chosen = sent_elements(listed, n, CHUNK)
        packed = list(sizes) if listed is None else [lengths[c] for c in listed]
        exchange = LESSON.lazy(LESSON.half(LESSON.total), packed, theta)
        sums = LESSON.sparse(exchange, chosen, residuals)(xs)
        state, report = csc_step(state, xs, settings, percent_next=40)
        assert np.array_equal(sums[chosen], report["total"]) and not sums[~chosen].any()
        for kept, wanted in zip(residuals, state["kept"], strict=True):
            assert np.array_equal(kept, wanted["h"])
