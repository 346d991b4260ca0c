"""Lesson 12's idea against the definitions of MSTopK and of top-k."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.oracle.definitions import keep_count, mstopk, topk_run

LESSON = gains.module_of(gains.ROOT / "lessons" / "12_topk.py")


def vectors(n: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(n)
    normal = random.standard_normal(n).astype(np.float32)
    return {
        "normal": normal,
        "few are large": normal**3,
        "ties": random.integers(-2, 3, n).astype(np.float32),
        "zeros": np.zeros(n, np.float32),
        "one is not zero": (np.arange(n) == n // 2).astype(np.float32),
    }


@pytest.mark.parametrize("kind", vectors(1))
@pytest.mark.parametrize("n", [0, 1, 2, 10, 333])
def test_indices_are_as_defined(n, kind):
    x = vectors(n)[kind]
    for k in {0, 1, n // 100, n // 3, n // 2, n - 1, n} & set(range(n + 1)):
        assert LESSON.mstopk(x, k).tolist() == mstopk(x, k).tolist(), k


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 333])
@pytest.mark.parametrize("percent", [0.1, 10, 100])
def test_sums_and_residuals_are_as_defined(p, n, percent):
    random = np.random.default_rng(p)
    gs = random.standard_normal((4, p, n)).astype(np.float32)
    residuals = np.zeros((p, n), np.float32)
    for gradients, wanted in zip(gs, topk_run([list(step) for step in gs], percent)):
        sums, residuals = LESSON.topk_sums(gradients, residuals, keep_count(n, percent))
        assert np.array_equal(sums, wanted["x"][0])
        assert np.array_equal(residuals, wanted["kept"])
