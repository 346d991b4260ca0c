"""`reveal` names what is odd about a sum: types, means, ranks that differ, lost contributions."""

import re

import numpy as np
import pytest

from refgf.oracle.definitions import on_wire, ring_allreduce
from refgf.oracle.reveal.orders import down
from refgf.oracle.reveal.search import reveal
from refgf.oracle.spec.page import SPEC
from tests.support.reveal_boxes import (
    BACK,
    FOLD,
    SINGLE,
    N,
    P,
    by_ranks,
    exactly,
    in_rank_order,
    one,
    printed,
    ring_runs,
    summed,
    sums,
    truncating,
    typed,
)


def calls_in_turn(*boxes):
    """Another box in each call."""
    count = iter(range(10**9))
    return lambda xs: boxes[next(count) % len(boxes)](xs)


def first_then(first, other, calls):
    count = iter(range(10**9))
    return lambda xs: (first if next(count) < calls else other)(xs)


def mean_first(xs):
    return sums(FOLD)([typed(SINGLE)(x / P) for x in xs])


def mean_after(xs):
    return [typed(SINGLE)(sums(FOLD)(xs)[0] / P)]


def mean_at_each_level(xs):
    low, high = (typed(SINGLE)(typed(SINGLE)(a + b) / 2) for a, b in (xs[:2], xs[2:]))
    return [typed(SINGLE)(typed(SINGLE)(low + high) / 2)]


def wide_mean_first(xs):
    return sums(FOLD, accumulator="float64")([typed(SINGLE)(x / P) for x in xs])


def float16_hops(xs):
    return [ring_allreduce([x.astype(SINGLE) for x in xs], "float16")[0].astype(np.float64)]


def rounded_inputs(xs):
    return sums(FOLD)([on_wire(x.astype(SINGLE), "bfloat16").astype(np.float64) for x in xs])


def rank_lost(xs):
    return sums(FOLD)([*xs[:2], xs[2] * (np.arange(N) < 10), *xs[3:]])


def rank_twice(xs):
    return sums(FOLD)([xs[0], 2 * xs[1], *xs[2:]])


def tail_not_summed(xs):
    return [np.concatenate([sums(FOLD)(xs)[0][:30], x[30:]]) for x in xs]


ODD = {  # name: (black box, what the report says, is it one order of all ranks?)
    "two orders in one vector": (
        sums([(0, 7, in_rank_order(P)), (7, N, down(P - 1, P))]),
        "2 orders in one vector.*\n  elements 0..6: .*rank order.*\n  elements 7..39: .*backwards",
        True,
    ),
    "order changes with repeats": (
        first_then(sums(FOLD), sums(BACK), 30),
        "repeat 2 differs from the first, first in element 0(.|\n)*repeats differ, first at n = 40",
        False,
    ),
    "another order in each call": (
        calls_in_turn(sums(FOLD), sums(BACK), sums(ring_runs(P, N))),
        "calls contradict each other",
        False,
    ),
    "float64 accumulator": (
        sums(FOLD, accumulator="float64"),
        r"53 bits \(float64\), wider than the input",
        True,
    ),
    "mean before the sum": (mean_first, "a mean: divided by 4 before the sum", True),
    "mean after the sum": (mean_after, "a mean: divided by 4 after the sum", True),
    "mean at each level": (mean_at_each_level, "a mean: divided by 4 between the additions", True),
    "mean before a wide sum": (
        wide_mean_first,
        "wider than the input\n  a mean: divided by 4 before",
        True,
    ),
    "all at once, exactly": (
        lambda xs: [typed(SINGLE)(exactly(xs))],
        r"sum\(0, 1, 2, 3\)    all at once: exact",
        True,
    ),
    "all at once, truncated": (
        lambda xs: [typed(SINGLE)(truncating(xs))],
        r"sum\(0, 1, 2, 3\)    all at once",
        True,
    ),
    "one rank adds in another order": (
        by_ranks(FOLD, BACK, 2, P),
        "rank 2 adds in another order than rank 0, first in element 0: .*backwards",
        False,
    ),
    "float16 on the wire": (
        float16_hops,
        r"11 bits \(float16\), narrower(.|\n)*rounded to float16(.|\n)*2\^120 does not pass",
        True,
    ),
    "inputs rounded to bfloat16": (rounded_inputs, "rounded to bfloat16", True),
    "a rank is lost": (rank_lost, "elements 10..39: no sum of all ranks; .*rank 2: 0,", False),
    "a rank counts twice": (rank_twice, "elements 0..39: no sum of all .*rank 1: 2,", False),
    "the end is not communicated": (
        tail_not_summed,
        "elements 30..39 on rank 0: no sum of all ranks; each 1 counts as rank 0: 1, rank 1: 0"
        "(.|\n)*elements 30..39 on rank 3: no sum of all ranks; each 1 counts as rank 0: 0,",
        False,
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_oddities_are_named(name):
    reduce, says, right = ODD[name]
    found = one(reduce, P, N)
    assert re.search(says, printed(found)), printed(found)
    assert found.right == right


@pytest.mark.parametrize("name", ["mean before the sum", "float64 accumulator", "float16 on the"])
def test_a_plain_sum_is_not_odd(name):
    found = one(sums(FOLD), P, N)
    assert found.right and found.arithmetic.random == 0 and found.arithmetic.bits == [24]
    plain = printed(found)
    assert not re.search("mean|wider|narrower|rounded|differ|at once|does not", plain), plain


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


def test_what_is_no_sum_has_no_tree():
    for reduce in (lambda xs: [np.max(xs, axis=0)], lambda xs: [x * np.nan for x in xs]):
        found = one(reduce, P, N)
        assert found.runs == ((0, N, None),) and not found.right and "no tree" in printed(found)
        assert "does not pass" not in printed(found), "a NaN is no overflow"
        assert "same order" not in printed(found) and "no order is known at n = 40" in printed(
            found
        )


def test_a_compensated_sum_has_other_bits_than_its_tree():
    def kahan(xs):
        total, rest = xs[0], 0 * xs[0]
        for x in xs[1:]:
            x = typed(SINGLE)(x - rest)
            larger = typed(SINGLE)(total + x)
            rest, total = typed(SINGLE)(typed(SINGLE)(larger - total) - x), larger
        return [total]

    found = one(kahan, P, 200)
    assert not found.right and "of 200 elements have other bits than these trees" in printed(found)
    assert "other bits than the trees give" in SPEC.read_text(), "it names why this is exit code 1"


def test_a_random_order_is_no_pair_of_equal_texts():
    found = one(lambda xs: [xs[0]] * 3, 3, n=1)
    found.repeats = [(1, 0, None, None)]
    (line,) = [line for line in printed(found).splitlines() if "repeat 2" in line]
    assert "look for a random order" in line and "contradict" not in line


@pytest.mark.parametrize("scale", (2, 1 / 3))
def test_a_sum_times_a_number_is_not_right(scale):
    (found,) = reveal(lambda xs: [np.float32(scale) * sum(xs)], 4, "float32", [7])
    assert "not a sum: a contribution of 1 counts as" in printed(found) and not found.right


def test_partial_sums_rounded_on_the_wire_are_told_from_inputs():
    def ring(xs):
        total = xs[0].astype(np.float32)
        for x in xs[1:]:
            with np.errstate(over="ignore"):
                total = total.astype(np.float16).astype(np.float32) + x.astype(np.float32)
        return [total]

    (found,) = reveal(ring, 4, "float32", [7])
    assert "rounded to float16 on its way: what comes from ranks 0, 1, 2" in printed(found)
    assert "random numbers: within what rounding to float16 may change" in printed(found)
    assert found.right


def test_ranks_that_keep_other_bits_are_wrong_though_rounding_hides_the_tree():
    def half(x):
        return typed(np.float16)(x)

    def owner_keeps_more(xs):
        total = typed(SINGLE)(sum(half(x) for x in xs))
        return [total] + [half(total)] * (P - 1)

    found = one(owner_keeps_more, P, N)
    assert found.arithmetic.apart > N / 2 and not found.ranks and not found.right
    assert (
        f"ranks differ: {found.arithmetic.apart} of 40 random numbers have other bits"
        in printed(found)
    )
    assert "all ranks: the same order, but not the same bits at n = 40" in printed(found)
    found = one(lambda xs: [half(owner_keeps_more(xs)[0])] * P, P, N)
    assert found.right and found.arithmetic.apart == 0 and "not the same bits" not in printed(found)


@pytest.mark.parametrize("scale", ("1.001", "1.000001"))
def test_a_factor_near_1_is_told(scale):
    found = one(lambda xs: [typed(SINGLE)(float(scale) * x) for x in sums(FOLD)(xs)], P, N)
    assert f"not a sum: a contribution of 1 counts as {scale[:7]}" in printed(found), printed(found)
    assert not found.right


def test_results_of_a_wider_type_are_told():
    found = one(lambda xs: [sum(xs)], P, N)
    assert "results have more bits than float32, the type of the inputs" in printed(found)
    assert not found.right


WRONG = {  # what a sum becomes, and what says so: no probe with whole numbers sees it
    "whole numbers": (np.trunc, "200 of 200 elements have other bits than these trees give"),
    "quarters": (lambda x: np.round(4 * x) / 4, "elements have other bits than these trees give"),
    "bfloat16 and quarters": (
        lambda x: short(np.where(np.abs(x) < 1, np.round(4 * x) / 4, x)),
        "elements have other bits than these trees give",
    ),
    "bfloat16 and 6 % of middle numbers": (
        lambda x: short(np.where((np.abs(x) > 4) & (np.abs(x) < 9), 1.06 * x, x)),
        "farther from the exact value than rounding to bfloat16 explains, first element",
    ),
}


def short(x):
    return on_wire(x.astype(SINGLE), "bfloat16").astype(np.float64)


@pytest.mark.parametrize("name", WRONG)
def test_a_rounded_sum_must_be_within_the_rounding(name):
    wrong, says = WRONG[name]
    for add in (sums([(0, 200, in_rank_order(P))]), exactly_once):
        found = one(lambda xs, add=add: [wrong(add(xs)[0])], P, 200)
        said = says if add is not exactly_once or "bfloat16 e" in says else "farther from the exact"
        assert said in printed(found) and not found.right, printed(found)


def exactly_once(xs):
    return [typed(SINGLE)(exactly(xs))]


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


def test_the_ranks_that_lose_contributions_are_named_and_no_library():
    """Recursive doubling by r xor d, where p is no power of two: ranks 2 and 3 lose 4 and 5."""

    def lossy(xs):
        values, d = [x.astype(SINGLE) for x in xs], 1
        while d < len(xs):
            pairs = [(values[r], values[r ^ d] if r ^ d < len(xs) else 0) for r in range(len(xs))]
            values, d = [a + b for a, b in pairs], 2 * d
        return [x.astype(np.float64) for x in values]

    with np.errstate(over="ignore"):
        found = one(lossy, 6, 9)
    out = printed(found)
    assert "n = 9: no sum of all ranks on ranks 2, 3; the order on rank 0: recursive" in out, out
    assert "elements 0..8 on ranks 2, 3: no sum of all ranks; each 1 counts as rank 0: 1," in out
    assert "MPICH" not in out and not found.right
    with np.errstate(over="ignore"):
        assert "MPICH" in printed(one(lossy, 4, 9)), "the same function is right for 4 ranks"
