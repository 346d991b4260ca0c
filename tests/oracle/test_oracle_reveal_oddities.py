"""Sums that `reveal` calls right though they are rounded: means, and types on the wire.

What is odd about other sums, and what is said of it: tests/approval, of the boxes in tests/support.
"""

import numpy as np
import pytest

from refgf.oracle.definitions import on_wire, ring_allreduce
from tests.support.reveal_boxes import SINGLE, in_rank_order, one, printed, summed, typed


@pytest.mark.parametrize("p", [3, 7, 12])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_mean_is_named_where_p_does_not_divide_exactly(p, dtype):
    def short(x):
        return on_wire(typed(SINGLE)(x).astype(SINGLE), dtype).astype(np.float64)

    to = short if dtype == "bfloat16" else typed(dtype)
    for when in ("before", "after"):

        def reduce(xs, when=when):
            total = summed(
                in_rank_order(p), [to(x / p) for x in xs] if when == "before" else xs, to
            )
            return [to(total / p) if when == "after" else total]

        found = one(reduce, p, 9, dtype)
        assert found.right and f"a mean: divided by {p} {when} the sum" in printed(found)
        assert found.arithmetic.random == 0


def test_a_random_order_is_no_pair_of_equal_texts():
    found = one(lambda xs: [xs[0]] * 3, 3, n=1)
    found.repeats = [(1, 0, None, None)]
    (line,) = [line for line in printed(found).splitlines() if "repeat 2" in line]
    assert "look for a random order" in line and "contradict" not in line


@pytest.mark.parametrize("p", [2, 5, 9])
@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_sums_with_a_wire_type_are_within_its_rounding(p, wire):
    """A ring rounds p+1 times, as often as any number of the bound of S2."""

    def ring(xs):
        return [x.astype(np.float64) for x in ring_allreduce([x.astype(SINGLE) for x in xs], wire)]

    found = one(ring, p, 1000)
    assert found.right and f"within what rounding to {wire}" in printed(found), printed(found)


@pytest.mark.parametrize("p", [2, 3, 4, 7])
@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_a_mean_in_a_narrow_type_is_one_where_that_rounds_a_pth_too(p, wire):
    """As DDP's hooks that compress, on any number of ranks. 1/p off by 2 % is none."""

    def narrow(x):
        return on_wire(x.astype(SINGLE), wire).astype(np.float64)

    def mean(xs, factor=1.0):
        total = narrow(xs[0])
        for x in xs[1:]:
            total = narrow(total + narrow(x))
        return [narrow(total * (factor / p))]

    with np.errstate(over="ignore"):
        found, off = one(mean, p, 1000), one(lambda xs: mean(xs, 1.02), p, 1000)
    out = printed(found)
    assert found.right and f"a mean: divided by {p}" in out and "not compared bit" in out, out
    assert not off.right and "not a sum" in printed(off), printed(off)
