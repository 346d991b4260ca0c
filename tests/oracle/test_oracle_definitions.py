"""The definitions against sums by hand, and against each other where two must agree."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from refgf.oracle import definitions as d
from refgf.oracle.spec.floats import UNIT_ROUNDOFF

F32 = np.float32
BIG = float(2**24)


def ranks(*rows, dtype=F32):
    return [np.array(row, dtype) for row in rows]


def test_ring_by_hand():
    """Three ranks, three slices of one element: 2^24 + 1 is lost, 1 + 1 is not."""
    xs = ranks([BIG, BIG, BIG], [1, 1, 1], [1, 1, 1])
    #           (B+1)+1 = B   (1+1)+B = B+2   (1+B)+1 = B
    assert d.ring_allreduce(xs)[0].tolist() == [BIG, BIG + 2, BIG]
    assert d.direct_allreduce(xs)[0].tolist() == [BIG, BIG, BIG]


def test_slices_by_hand():
    assert d.slice_bounds(7, 3) == [(0, 3), (3, 5), (5, 7)]
    assert d.slice_bounds(2, 4) == [(0, 1), (1, 2), (2, 2), (2, 2)]


@pytest.mark.parametrize("p", range(1, 9))
@pytest.mark.parametrize("wire", [None, "float16", "bfloat16"])
def test_the_fold_and_the_steps_of_the_ring_agree(p, wire):
    for n in (0, 1, p - 1, p, p + 1, 4 * p + 3):
        xs = list(np.random.default_rng([p, n]).standard_normal((p, n)).astype(F32) * 1000)
        states = d.ring_states(xs, wire)
        assert len(states) == 2 * (p - 1) + 1
        assert all(d.same_bits(a, b) for a, b in zip(states[-1], d.ring_allreduce(xs, wire)))
        assert d.agree(states[-1])


@pytest.mark.parametrize(("traffic", "total"), [("ring_traffic", 2), ("direct_traffic", 2)])
def test_all_ranks_together_send_2_n_elements_for_each_other_rank(traffic, total):
    for n, p in itertools.product((0, 1, 5, 17), range(2, 8)):
        assert sum(getattr(d, traffic)(n, p, r)[1] for r in range(p)) == total * n * (p - 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_hop_rounding_of_16_bit_values_is_16_bit_addition(dtype):
    rng = np.random.default_rng(5)
    xs = [d.on_wire(x, dtype) for x in rng.standard_normal((5, 301)).astype(F32) * 100]
    got = d.ring_allreduce(xs, dtype)[0]
    for s, (i, j) in enumerate(d.slice_bounds(301, 5)):
        total = xs[s][i:j].astype(np.float64)
        for k in range(
            1, 5
        ):  # the exact sum of two 16-bit numbers fits in float64, so this rounds once
            total = np.float64(d.on_wire((total + xs[(s + k) % 5][i:j]).astype(F32), dtype))
        assert (got[i:j] == total).all()


def test_direct_does_not_depend_on_the_cut_and_ring_does():
    xs = list(np.random.default_rng(2).standard_normal((5, 40)).astype(F32))
    for wire, cuts in itertools.product((None, "float16"), ([7], [0, 20], [3, 4, 39])):
        assert d.same_bits(d.direct_in_calls(xs, cuts, wire)[0], d.direct_allreduce(xs, wire)[0])
    edges = [0, 7, 40]
    pieces = [d.ring_allreduce([x[i:j] for x in xs])[0] for i, j in zip(edges, edges[1:])]
    assert not d.same_bits(np.concatenate(pieces), d.ring_allreduce(xs)[0])


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


def test_bfloat16_by_hand():
    values = [1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.4e38, -0.0]
    wanted = [0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x8000]
    assert d.bfloat16_bits(np.array(values, F32)).tolist() == wanted
    assert np.isnan(d.bfloat16_values(d.bfloat16_bits(np.array([np.nan, -np.nan], F32)))).all()


@pytest.mark.parametrize("value", [2**16 - 1, 0x7F800001, 0xFFFFFFFF])
def test_a_nan_with_any_payload_stays_one(value):
    x = np.array([0x7F800000 | value], np.uint32).view(F32)
    assert np.isnan(x).all() == np.isnan(d.on_wire(x, "bfloat16")).all()


def test_lazy_calls_by_hand():
    assert d.lazy_calls([4, 1, 3], 4, 16) == [(0, 5), (5, 8)]
    assert d.lazy_calls([4, 1, 3], 4, 0) == [(0, 4), (4, 5), (5, 8)]
    assert d.lazy_calls([4, 1, 3], 4, math.inf) == [(0, 8)]
    assert d.lazy_calls([4, 1, 3], 2, 16) == [(0, 8)]
    assert d.lazy_calls([], 4, 0) == d.lazy_calls([0], 4, 0) == []


def test_merged_calls_by_hand():
    assert d.merged_calls([4, 1, 3, 0], [2, 1, 1]) == [(0, 5), (5, 8)]
    assert d.merged_calls([4, 1, 3], [3]) == [(0, 8)]
    assert d.merged_calls([0, 0], [1, 1]) == []


def test_momentum_by_hand():
    w, v = d.momentum_step(
        np.array([1.0], F32), np.array([2.0], F32), np.array([4.0], F32), 0.25, 0.5, decay=1.0
    )
    assert (w.tolist(), v.tolist()) == ([-0.5], [6.0])


def test_lars_ratio_by_hand():
    assert d.lars_ratio([3.0, 4.0], [6.0, 8.0], 1.0, 0.5) == 5 / 12.5


def test_choose_by_hand():
    assert d.choose([1.0, 3.0, 3.0, 2.0], 50) == [1, 2]
    assert d.choose([1.0, 3.0, 3.0, 2.0], 25) == [1]
    assert d.choose([1.0, 3.0, 3.0, 2.0], 26) == [1, 2]


@pytest.mark.parametrize("form", d.FORMS)
def test_all_chunks_always_is_dense_training(form):
    """All chunks: history and none bit for bit; dgc on exact data, by linearity.

    dgc_masked is SGD without momentum after step 0.
    """
    rng, n, p, steps = np.random.default_rng(6), 20, 3, 6
    w, gs = rng.integers(-4, 5, n).astype(F32), rng.integers(-4, 5, (steps, p, n)).astype(F32)
    settings = d.CSCRunSettings((n,), 8, form, rate=0.5, momentum=0.5)
    got = d.csc_run(w, gs, settings, [(100, False)] * (steps + 1))[-1]["w"][0]
    dense, v = w, np.zeros_like(w)
    for t, step_gs in enumerate(gs):
        v = np.zeros_like(v) if form == "dgc_masked" and t > 1 else v
        dense, v = d.momentum_step(dense, v, d.direct_allreduce(list(step_gs))[0], 0.5, 0.5)
    assert d.same_bits(got, dense)


def test_csc_step_by_hand():
    """Two chunks of one element, one rank, m = 1/2: g = 1 and 3 each step; 50 % is one chunk."""
    settings = d.CSCRunSettings((2,), 1, "dgc", rate=1.0, momentum=0.5)
    gs = [[np.array([1.0, 3.0], F32)]] * 3
    steps = d.csc_run(np.zeros(2, F32), gs, settings, [(50, False)] * 4)
    # step 0 is dense: both travel, u = g. Then chunk 1 (3 > 1): u = m u + g = 1.5 and 4.5
    assert [step["chosen"][0] for step in steps] == [None, [1], [1]]
    assert [step["w"][0].tolist() for step in steps] == [[-1, -3], [-1, -7.5], [-1, -12.75]]
    assert steps[1]["kept"][0]["v"].tolist() == [1.5, 0]
    assert steps[2]["kept"][0]["v"].tolist() == [1.5 + 1.75, 0]


def test_the_rounding_of_a_fused_multiply_add_differs():
    """M1 rounds twice; on this product a fused one gives other bits."""
    a = F32(1 + 2.0**-12)
    twice = a * a + F32(-1)
    once = F32(np.float64(a) * np.float64(a) - 1)
    assert twice != once
