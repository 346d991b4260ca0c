"""Lesson 11's idea against the definition of LARS: the bits of weights and velocity."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.oracle.definitions import LARSSettings, lars_step, same_bits

LESSON = gains.module_of(gains.ROOT / "lessons" / "11_large_batch.py")
SIZES = [[7], [1, 2, 3], [0], [0, 5, 0], [64, 64, 1000, 10]]


def layers(sizes, rng):
    """Small multiples of 1/16: squares and their sums are exact in any order."""
    return [(rng.integers(-64, 65, n) / 16).astype(np.float32) for n in sizes]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("decay", [0.0, 5e-4])
def test_three_steps_have_the_bits_of_the_definition(sizes, decay):
    rng = np.random.default_rng(len(sizes))
    ws, vs = layers(sizes, rng), layers(sizes, rng)
    adapted = [i % 3 != 1 for i in range(len(sizes))]
    settings = LARSSettings(tuple(sizes), 0.3, 0.9, 0.01, decay, tuple(adapted))
    w, v = np.concatenate(ws), np.concatenate(vs)
    for _ in range(3):
        gs = layers(sizes, rng)
        ws = [np.round(16 * x) / 16 for x in ws]  # sums of squares stay exact
        w, v = lars_step(np.round(16 * w) / 16, v, np.concatenate(gs), settings)
        ws, vs = LESSON.lars_step(ws, vs, gs, adapted, 0.3, 0.01, 0.9, decay)
        assert same_bits(np.concatenate(ws), w) and same_bits(np.concatenate(vs), v)


@pytest.mark.parametrize("zero", ["weights", "gradient", "both"])
def test_without_weights_or_gradient(zero):
    w, g = (np.arange(1, 6, dtype=np.float32) for _ in range(2))
    w, g = w * (zero == "gradient"), g * (zero == "weights")
    v, settings = np.ones(5, np.float32), LARSSettings((5,), 0.1, 0.9, 0.01, 5e-4)
    (got_w,), (got_v,) = LESSON.lars_step([w], [v], [g], [True], 0.1, 0.01)
    wanted_w, wanted_v = lars_step(w, v, g, settings)
    assert same_bits(got_w, wanted_w) and same_bits(got_v, wanted_v)
