"""What the definitions judge with: the exact sum, its bound, and NaN on the wire."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from refgf.oracle import definitions as d
from refgf.oracle.spec.floats import UNIT_ROUNDOFF

F32 = np.float32


def ranks(*rows, dtype=F32):
    return [np.array(row, dtype) for row in rows]


def test_exact_sum_is_exact():
    rng = np.random.default_rng(3)
    xs = list(rng.standard_normal((9, 50)) * 2.0 ** rng.integers(-60, 60, (9, 50)))
    for got, column in zip(d.exact_sum(xs), np.transpose(xs).tolist()):
        assert got == float(sum(map(Fraction, column)))
    special = ranks(
        [1e308, math.inf, math.inf, -0.0],
        [1e308, 1, -math.inf, -0.0],
        [-1e308, 1, 1, -0.0],
        dtype=np.float64,
    )
    got = d.exact_sum(special)
    assert got[0] == 1e308 and got[1] == math.inf and math.isnan(got[2])
    assert d.exact_sum(ranks([1e308], [1e308], dtype=np.float64))[0] == math.inf


@pytest.mark.parametrize("wire", [None, "float16", "bfloat16"])
def test_no_order_leaves_the_bound_and_the_bound_is_not_wide(wire):
    """All 24 orders of four numbers: the largest error is within a factor of 20 of the bound."""
    rng = np.random.default_rng(4)
    xs = list((rng.standard_normal((4, 2000)) * 2.0 ** rng.integers(-12, 8, (4, 2000))).astype(F32))
    exact, bound, worst = d.exact_sum(xs), d.summation_bound(xs, wire), 0.0
    for order in itertools.permutations(range(4)):
        got = d.rounded_fold([xs[r] for r in order], wire).astype(np.float64)
        assert (np.abs(got - exact) <= bound).all()
        worst = max(worst, (np.abs(got - exact) / bound).max())
    assert worst > 0.05


def test_bound_by_hand():
    got = d.summation_bound(ranks([1.0], [-1.0], [1.0]))[0]
    k = 2 * UNIT_ROUNDOFF["float32"]
    assert got == k / (1 - k) * 3 + 2.0**-53


@pytest.mark.parametrize("value", [2**16 - 1, 0x7F800001, 0xFFFFFFFF])
def test_a_nan_with_any_payload_stays_one(value):
    x = np.array([0x7F800000 | value], np.uint32).view(F32)
    assert np.isnan(x).all() == np.isnan(d.on_wire(x, "bfloat16")).all()
