"""LARS: blocks, whole against slices, and what is refused."""

import numpy as np
import pytest

from refgf.oracle.definitions import same_bits
from refgf.papers.jia import lars
from refgf.papers.jia.lars import LARS
from tests.support.conforms import conforms
from tests.support.project import Project
from tests.support.tiny import SPECS, N

SIZES, DECAYED = [spec.size for spec in SPECS], [spec.decay for spec in SPECS]


def dyadic(seed):
    return np.random.default_rng(seed).integers(-64, 65, N).astype(np.float32) / 16


def test_blocks_change_no_bit(monkeypatch):
    monkeypatch.setattr(lars, "BLOCK_ELEMENTS", 5)
    conforms(Project(), "lars_step lars_partial_squares")


def test_parts_leave_the_rest_alone():
    optimizer = LARS(SPECS, dyadic(1), trust=0.01)
    before = optimizer.parameters.copy()
    optimizer.step(dyadic(2), 0.3, [slice(10, 20), slice(40, 41)], [1, 3])
    changed = np.flatnonzero(optimizer.parameters != before)
    assert set(changed) <= {*range(10, 20), 40} and len(changed) > 5


def test_whole_chunks_are_the_whole():
    whole, parts = (LARS(SPECS, dyadic(1), trust=0.01) for _ in range(2))
    whole.step(dyadic(2), 0.3)
    parts.step(dyadic(2), 0.3, [slice(i, min(i + 8, N)) for i in range(0, N, 8)], [1] * 11)
    assert same_bits(whole.parameters, parts.parameters)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"trust": 0}, {"trust": -1}, {"trust": np.inf}, {"trust": "x"}, {"momentum": 1}),
        *({"weight_decay": -1}, {"weight_decay": np.inf}, {"weight_decay": np.nan}),
    ],
)
def test_bad_settings(wrong):
    with pytest.raises(ValueError, match="LARS: got"):
        LARS(SPECS, dyadic(1), **wrong)


HALVES = [slice(0, 3), slice(3, 5)]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"rate": np.nan}, {"rate": -1}, {"rate": np.inf}, {"sent": [slice(0, 10**9)]}),
        *({"sent": HALVES[::-1]}, {"sent": [slice(0, 3), slice(2, 5)]}, {"sent": [slice(-2, 1)]}),
        {"sent": HALVES, "waited": [1]},
    ],
)
def test_bad_steps_change_nothing(wrong):
    optimizer = LARS(SPECS, dyadic(1))
    with pytest.raises(ValueError, match="LARS.step.*: got .*; wanted .*; next: "):
        optimizer.step(dyadic(2), **({"rate": 0.1} | wrong))
    assert same_bits(optimizer.parameters, dyadic(1))
