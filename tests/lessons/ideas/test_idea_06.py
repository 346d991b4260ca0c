"""Lesson 06's idea against the definition of CSC: sums, residuals and chosen chunks."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.oracle.definitions import CSCRunSettings, chunk_bounds, csc_start, csc_step

LESSON = gains.module_of(gains.ROOT / "lessons" / "06_csc.py")


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("n, chunk", [(100, 10), (103, 10), (5, 8), (1, 1), (7, 1), (0, 4)])
@pytest.mark.parametrize("percent", [0.1, 25, 100])
def test_sums_residuals_and_choices_are_as_defined(p, n, chunk, percent):
    random, steps = np.random.default_rng(n), 5
    settings = CSCRunSettings((n,), chunk, "none")
    state = csc_start(np.zeros(n, np.float32), p, settings)
    chosen = range(len(chunk_bounds(n, chunk)))  # the first step is dense
    residuals = np.zeros((p, n), np.float32)
    for _ in range(steps):
        gradients = random.standard_normal((p, n)).astype(np.float32)
        sums, residuals, chosen = LESSON.csc_sums(gradients, residuals, chosen, chunk, percent)
        state, report = csc_step(state, list(gradients), settings, percent)
        assert np.array_equal(sums[report["sent"]], report["total"])
        assert not sums[~report["sent"]].any()
        assert np.array_equal(residuals, [kept["h"] for kept in state["kept"]])
        assert chosen.tolist() == state["chosen"]


def test_equal_norms_go_to_the_first_chunks():
    ones = np.ones((2, 10), np.float32)
    _, _, chosen = LESSON.csc_sums(ones, 0 * ones, [], chunk=4, percent=50)
    assert chosen.tolist() == [0, 1]  # of 3; the last one has 2 elements, and as high a mean
