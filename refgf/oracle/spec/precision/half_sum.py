"""Exercise half_sum of lesson 05: float16 on the wire, at every hop (R3) or once (D2)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.direct import direct_allreduce
from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise, tenths
from refgf.oracle.spec.precision.wire import normal
from refgf.oracle.spec.ring import Arrays, rounded_fold


def half_sum(terms: Arrays, every_hop: bool) -> np.ndarray:
    if every_hop:
        return rounded_fold(terms, "float16")
    return direct_allreduce(terms, "float16")[0]


def half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float32)


def fold(
    terms: Arrays, rounded_input: Callable[..., Any], rounded_partial: Callable[..., Any]
) -> np.ndarray:
    """A left fold; the result is rounded."""
    total = rounded_input(terms[0])
    for term in terms[1:]:
        total = rounded_partial(total) + rounded_input(term)
    return half(total)


def unchanged(x: np.ndarray) -> np.ndarray:
    return x


def ranks(every_hop: bool) -> Drawn:
    return lambda random: [
        *[(list(tenths(random, 3, 4)), every_hop) for _ in range(3)],
        *[([normal(random, 50) for _ in range(p)], every_hop) for p in (2, 5, 8)],
        *[(in_order(random, n), every_hop) for n in (1, 3, 50)],
    ]


def in_order(random: np.random.Generator, n: int) -> Arrays:
    """large, small, -large, small: float32 sums that depend on their order, also in float16.

    A large term leaves a float32 no digits for the small ones that are added to it.
    """
    large = (2048 * random.integers(1, 25, n)).astype(np.float32)
    small, other = (normal(random, n, 2.0**-12) for _ in range(2))
    return [large, small, -large, other]


def large_terms(random: np.random.Generator) -> list[Arguments]:
    """x, y, -x and x, y: numbers that float16 holds. x + y is more than 65504, but for a small last
    element. In the last case the sum, 65512, is rounded to 65504.
    """
    x, y = (32 * random.integers(1100, 1900, (2, 3))).astype(np.float32)
    x, y = np.append(x, np.float32(128)), np.append(y, np.float32(64))
    barely = [np.array([number], np.float32) for number in (65504, 8)]
    orders = [x, y, -x], [-x, y, x], [x, y], barely  # [x, y] overflows only in the result
    return [(terms, every_hop) for terms in orders for every_hop in (True, False)]


HALF_SUM_05 = Exercise("05.2", half_sum)
HALF_SUM_05.part("rounded at every hop", 2, ranks(True))
HALF_SUM_05.part("rounded once", 2, ranks(False))
HALF_SUM_05.part("partial sums too large for float16", 1, large_terms)
HALF_SUM_05.part(
    "one rank, no elements",
    1,
    lambda random: [
        (terms, every_hop)
        for terms in ([tenths(random, 4)], [tenths(random, 0)] * 3)
        for every_hop in (True, False)
    ],
)


@HALF_SUM_05.mistake("you round every input once even where every hop should round the partial sum")
def always_once(terms, every_hop):
    return fold(terms, half, unchanged)


@HALF_SUM_05.mistake(
    "at a hop you round the receiving rank's own gradients too, but only the partial sum is sent"
)
def rounds_the_own_term_too(terms, every_hop):
    return fold(terms, half, half if every_hop else unchanged)


@HALF_SUM_05.mistake(
    "you round the partial sums where only inputs and the result should be rounded"
)
def rounds_partial_sums_of_direct(terms, every_hop):
    return fold(terms, unchanged if every_hop else half, half)


@HALF_SUM_05.mistake("you do not round the result, but it is sent to all ranks as float16 too")
def result_not_rounded(terms, every_hop):
    if not every_hop:
        return sum(map(half, terms[1:]), half(terms[0]))
    total = terms[0]
    for term in terms[1:]:
        total = half(total) + term
    return total


@HALF_SUM_05.mistake("you round only the result: what is sent on the way is float16 too")
def rounds_only_the_result(terms, every_hop):
    return fold(terms, unchanged, unchanged)


@HALF_SUM_05.mistake("you add the terms from the last to the first: the bits differ")
def last_to_first(terms, every_hop):
    return half_sum(terms[::-1], every_hop)


@HALF_SUM_05.mistake("you add in float64: the bits differ")
def float64_sum(terms, every_hop):
    """float16 inputs are added in float64."""
    if every_hop:
        return half_sum(terms, every_hop)
    return half(sum((half(term).astype(np.float64) for term in terms), np.zeros(terms[0].shape)))


@HALF_SUM_05.mistake(
    "your result is a float16 array: only the wire has 16 bits, arrays stay float32"
)
def float16_result(terms, every_hop):
    return half_sum(terms, every_hop).astype(np.float16)
