"""Lesson 13's idea against the definition of DASO, batch by batch."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.oracle.definitions import DASOSettings, daso_start, daso_step

LESSON = gains.module_of(gains.ROOT / "lessons" / "13_daso.py")
RATE = 0.1


def defined(w, points, global_skip: int, wait: int) -> list:
    """The parameters of each rank after an epoch. Its loss is divided by the global batch."""
    batches, nodes, ranks, n = points.shape
    settings = DASOSettings(nodes, batches, RATE, momentum=0.0)
    state = daso_start(w, nodes * ranks)
    for batch in points.reshape(batches, nodes * ranks, n):
        gradients = [(w - x) / len(batch) for w, x in zip(state["w"], batch)]
        state = daso_step(state, gradients, (global_skip, 1, wait), settings)
    return state["w"]


@pytest.mark.parametrize("nodes, ranks", [(1, 1), (1, 3), (2, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("global_skip, wait", [(1, 0), (1, 1), (3, 1), (4, 4), (4, 0), (20, 2)])
@pytest.mark.parametrize("batches, n", [(1, 5), (2, 1), (11, 5), (12, 0)])
def test_the_epoch_is_as_defined(nodes, ranks, global_skip, wait, batches, n):
    """Bound: float64, some hundred roundings of numbers below 10."""
    rng = np.random.default_rng(batches)
    w, points = rng.standard_normal(n), rng.standard_normal((batches, nodes, ranks, n))
    got = LESSON.daso_epoch(w, points, global_skip, wait, RATE)
    wanted = np.reshape(defined(w, points, global_skip, wait), (nodes, ranks, n))
    assert got.shape == (nodes, n)
    assert np.abs(got[:, None] - wanted).max(initial=0) < 1e-12


def test_nodes_agree_after_an_epoch():
    points = np.random.default_rng(0).standard_normal((12, 3, 2, 4))
    ws = LESSON.daso_epoch(np.zeros(4), points, 4, 1, RATE)
    assert np.ptp(ws, axis=0).max() < 1e-12
