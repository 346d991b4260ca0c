"""Lesson 05: what float16 on the wire does to a sum, the loss scale, master weights."""

import numpy as np

from refgf.oracle.definitions import direct_allreduce, next_scale, on_wire, working_copy
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.spec.exercise import tenths
from refgf.oracle.spec.ring import rounded_fold


def normal(random, n, factor=1.0):
    """Random float32 numbers. -> (n,)"""
    return (factor * random.standard_normal(n)).astype(np.float32)


# ---- half(x): given in the starter ----

HALF = Exercise(
    "half",
    lambda x: on_wire(x, "float16"),
    (
        Part("ordinary numbers", 1, lambda random: [(normal(random, n),) for n in (40, 1, 0)]),
        Part(
            "numbers that are too large or too small for float16",
            1,
            lambda random: [
                (np.array([65519, 65520, -1e6, 6e-8, 2e-8, -1e-5], np.float32),),
                (normal(random, 40, 1e-6),),
            ],
        ),
    ),
)

# ---- half_sum(terms, every_hop) ----

HOP, ONCE = "rounded at every hop", "rounded once"
LARGE, FEW = "partial sums too large for float16", "one rank, no elements"


def half_sum(terms, every_hop):
    if every_hop:
        return rounded_fold(terms, "float16")
    return direct_allreduce(terms, "float16")[0]


def half(x):
    return x.astype(np.float16).astype(np.float32)


def fold(terms, rounded_input, rounded_partial):
    """A left fold; the result is rounded."""
    total = rounded_input(terms[0])
    for term in terms[1:]:
        total = rounded_partial(total) + rounded_input(term)
    return half(total)


def unchanged(x):
    return x


def always_once(terms, every_hop):
    return fold(terms, half, unchanged)


def rounds_the_own_term_too(terms, every_hop):
    return fold(terms, half, half if every_hop else unchanged)


def rounds_partial_sums_of_direct(terms, every_hop):
    return fold(terms, unchanged if every_hop else half, half)


def result_not_rounded(terms, every_hop):
    if not every_hop:
        return sum(map(half, terms[1:]), half(terms[0]))
    total = terms[0]
    for term in terms[1:]:
        total = half(total) + term
    return total


def rounds_only_the_result(terms, every_hop):
    return fold(terms, unchanged, unchanged)


def last_to_first(terms, every_hop):
    return half_sum(terms[::-1], every_hop)


def float64_sum(terms, every_hop):
    """float16 inputs are added in float64."""
    if every_hop:
        return half_sum(terms, every_hop)
    return half(sum(half(term).astype(np.float64) for term in terms))


def float16_result(terms, every_hop):
    return half_sum(terms, every_hop).astype(np.float16)


def ranks(every_hop):
    return lambda random: [
        *[(list(tenths(random, 3, 4)), every_hop) for _ in range(3)],
        *[([normal(random, 50) for _ in range(p)], every_hop) for p in (2, 5, 8)],
        *[(in_order(random, n), every_hop) for n in (1, 3, 50)],
    ]


def in_order(random, n):
    """large, small, -large, small: float32 sums that depend on their order, also in float16.

    A large term leaves a float32 no digits for the small ones that are added to it.
    """
    large = (2048 * random.integers(1, 25, n)).astype(np.float32)
    small, other = (normal(random, n, 2.0**-12) for _ in range(2))
    return [large, small, -large, other]


def large_terms(random):
    """x, y, -x: multiples of 32, which float16 holds. x + y is more than 65504."""
    x, y = (32 * random.integers(1100, 1900, (2, 3))).astype(np.float32)
    orders = [x, y, -x], [-x, y, x]
    return [(terms, every_hop) for terms in orders for every_hop in (True, False)]


HALF_SUM = Exercise(
    "half_sum",
    half_sum,
    (
        Part(HOP, 2, ranks(True)),
        Part(ONCE, 2, ranks(False)),
        Part(LARGE, 1, large_terms),
        Part(
            FEW,
            1,
            lambda random: [
                (terms, every_hop)
                for terms in ([tenths(random, 4)], [tenths(random, 0)] * 3)
                for every_hop in (True, False)
            ],
        ),
    ),
    (
        Mistake(
            "you round every input once even where every hop should round the partial sum",
            always_once,
            (HOP, LARGE),
        ),
        Mistake(
            "at a hop you round the receiving rank's own gradients too, but only the partial sum "
            "is sent",
            rounds_the_own_term_too,
            (HOP,),
        ),
        Mistake(
            "you round the partial sums where only inputs and the result should be rounded",
            rounds_partial_sums_of_direct,
            (ONCE, LARGE),
        ),
        Mistake(
            "you do not round the result, but it is sent to all ranks as float16 too",
            result_not_rounded,
            (HOP, ONCE, FEW),
        ),
        Mistake(
            "you round only the result: what is sent on the way is float16 too",
            rounds_only_the_result,
            (HOP, ONCE, LARGE),
        ),
        Mistake(
            "you add the terms from the last to the first: the bits differ",
            last_to_first,
            (HOP, ONCE, LARGE),
        ),
        Mistake("you add in float64: the bits differ", float64_sum, (ONCE,)),
        Mistake(
            "your result is a float16 array: only the wire has 16 bits, arrays stay float32",
            float16_result,
            (HOP, ONCE, LARGE, FEW),
        ),
    ),
)

# ---- next_scale(scale, good_steps, finite, interval) ----

GOOD, SKIPPED, LIMITS = "good steps", "skipped steps", "the scale stays within 1 and 2**24"


def doubles_late(scale, good_steps, finite, interval):
    if finite and good_steps < interval:
        return scale, good_steps + 1
    return next_scale(scale, interval - 1, finite, interval)


def count_goes_on_after_doubling(scale, good_steps, finite, interval):
    after = next_scale(scale, good_steps, finite, interval)
    return (after[0], good_steps + 1) if finite else after


def count_goes_on_after_a_skip(scale, good_steps, finite, interval):
    after = next_scale(scale, good_steps, finite, interval)
    return after if finite else (after[0], good_steps)


def doubles_in_a_skipped_step(scale, good_steps, finite, interval):
    if good_steps + 1 == interval:
        return min(scale * 2, 2.0**24), 0
    return next_scale(scale, good_steps, finite, interval)


def without_limits(scale, good_steps, finite, interval):
    return next_scale(scale, good_steps, finite, interval, smallest=0, largest=2.0**99)


def good_scales(random):
    """Before, at and after the step that doubles."""
    rows = [(2.0**16, 1999, 2000), (2.0**16, 1998, 2000), (1024.0, 0, 2000), (8.0, 0, 1)]
    interval = int(random.integers(3, 3000))
    rows += [(2.0 ** int(random.integers(1, 23)), interval - k, interval) for k in (1, 2)]
    return [(scale, good_steps, True, interval) for scale, good_steps, interval in rows]


def limits(random):
    """At the limits, and one doubling below the upper one, which it reaches."""
    found = []
    for interval in (10, int(random.integers(3, 3000))):
        found += [(2.0**k, interval - 1, True, interval) for k in (23, 24)]
        found.append((1.0, 0, False, interval))
    return found


NEXT_SCALE = Exercise(
    "next_scale",
    lambda scale, good_steps, finite, interval: next_scale(scale, good_steps, finite, interval),
    (
        Part(GOOD, 2, good_scales),
        Part(
            SKIPPED,
            1,
            lambda random: [
                (2.0**16, 7, False, 2000),
                (2.0**16, 1999, False, 2000),
                (2.0 ** int(random.integers(2, 24)), int(random.integers(99)), False, 100),
            ],
        ),
        Part(LIMITS, 1, limits),
    ),
    (
        Mistake(
            "you double one step late: good_steps does not count this step yet",
            doubles_late,
            (GOOD, LIMITS),
        ),
        Mistake(
            "after doubling, the count of good steps begins at 0 again",
            count_goes_on_after_doubling,
            (GOOD, LIMITS),
        ),
        Mistake(
            "a skipped step ends the row of good steps: the count begins at 0 again",
            count_goes_on_after_a_skip,
            (SKIPPED,),
        ),
        Mistake(
            "you double the scale in a step that was skipped: look at finite first",
            doubles_in_a_skipped_step,
            (SKIPPED,),
        ),
        Mistake("your scale leaves the range 1 to 2**24", without_limits, (LIMITS,)),
    ),
)

# ---- update(master, total, scale, rate) ----

PLAIN, SCALED, BROKEN = "scale 1", "a large scale", "an infinity or NaN in the sum"


def update(master, total, scale, rate):
    if np.isfinite(total).all():
        master = master - np.float32(rate) * (total.astype(np.float32) / np.float32(scale))
    return master, working_copy(master).astype(np.float16)


def no_master(master, total, scale, rate):
    w = update(master.astype(np.float16).astype(np.float32), total, scale, rate)[1]
    return w.astype(np.float32), w


def divides_in_float16(master, total, scale, rate):
    return update(master, total / scale, 1.0, rate)


def never_unscaled(master, total, scale, rate):
    return update(master, total, 1.0, rate)


def never_skips(master, total, scale, rate):
    master = master - np.float32(rate) * (total.astype(np.float32) / np.float32(scale))
    return master, master.astype(np.float16)


def skips_elements(master, total, scale, rate):
    return update(master, np.where(np.isfinite(total), total, np.float16(0)), scale, rate)


def sees_no_nan(master, total, scale, rate):
    return (never_skips if not np.isinf(total).any() else update)(master, total, scale, rate)


def float32_working(master, total, scale, rate):
    master, working = update(master, total, scale, rate)
    return master, working.astype(np.float32)


def sums_for(scales, broken=None):
    """Cases of update: weights near 1, sums that float16 holds."""

    def cases(random):
        found = []
        for n, factor, scale in zip((3, 3, 20), (1e-3, 1e-2, 0.1), scales):
            master = 1 + tenths(random, n) / 10
            total = (tenths(random, n) * factor * max(1.0, scale / 1000)).astype(np.float16)
            if broken is not None:
                total[int(random.integers(n))] = broken[len(found) % len(broken)]
            found.append((master, total, scale, int(random.integers(1, 10)) / 10))
        return found

    return cases


UPDATE = Exercise(
    "update",
    update,
    (
        Part(PLAIN, 2, sums_for((1.0, 1.0, 1.0))),
        Part(SCALED, 2, sums_for((2.0**10, 2.0**16, 2.0**16))),
        Part(BROKEN, 1, sums_for((2.0**16,) * 3, (np.inf, np.nan, -np.inf))),
    ),
    (
        Mistake(
            "you update the float16 weights: small updates are lost when they are rounded, so "
            "keep the float32 master weights and update these",
            no_master,
            (PLAIN, SCALED, BROKEN),
        ),
        Mistake(
            "you divide by the scale in float16, where small gradients become zero and 2**16 is "
            "infinite: convert the sum to float32 first",
            divides_in_float16,
            (SCALED,),
        ),
        Mistake(
            "a NaN in the sum skips the step too, not only an infinity", sees_no_nan, (BROKEN,)
        ),
        Mistake("you do not divide the sum by the loss scale", never_unscaled, (SCALED,)),
        Mistake(
            "you apply a sum that is not finite: such a step is skipped",
            never_skips,
            (BROKEN,),
        ),
        Mistake(
            "you skip only the elements that are not finite: the whole step is skipped",
            skips_elements,
            (BROKEN,),
        ),
        Mistake(
            "your working copy must be a float16 array",
            float32_working,
            (PLAIN, SCALED, BROKEN),
        ),
    ),
)

EXERCISES = (HALF, HALF_SUM, NEXT_SCALE, UPDATE)
