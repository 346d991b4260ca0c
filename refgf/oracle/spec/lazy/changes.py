"""Other rules for lesson 03: what a call is, when theta is reached, the pool, what a call costs."""

import numpy as np

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.lazy.calls import CALLS_03
from refgf.oracle.spec.lazy.sums import SECONDS_03, SUMS_03

# ---- what a call is ----


def writes_counts(function):
    return lambda *a: [(start, stop - start) for start, stop in function(*a)]


def writes_last(function):
    return lambda *a: [(start, stop - 1) for start, stop in function(*a)]


def sums_counts(function):
    def sum_calls(gradients, calls, rank):
        return function(gradients, [(start, start + count) for start, count in calls], rank)

    return sum_calls


def sums_last(function):
    def sum_calls(gradients, calls, rank):
        return function(gradients, [(first, last + 1) for first, last in calls], rank)

    return sum_calls


def prices_counts(function):
    return lambda calls, *a: function([(start, start + count) for start, count in calls], *a)


def prices_last(function):
    return lambda calls, *a: function([(first, last + 1) for first, last in calls], *a)


PAIR = "A call is (start, stop): one allreduce that sums the elements start .. stop-1 of the pool."
LISTED = "[(start, stop), ...]: the calls of one step"
COUNT = "here a call is (start, count), not (start, stop)"
COUNTS = {
    PAIR: "A call is (start, count): one allreduce that sums count elements from element start on.",
    LISTED: "[(start, count), ...]: the calls of one step",
}
LAST = "here a call is (first, last), not (start, stop)"
LASTS = {
    PAIR: "A call is (first, last): one allreduce that sums the elements first .. last.",
    LISTED: "[(first, last), ...]: the calls of one step",
}


def counted(calls):
    return [(start, stop - start) for start, stop in calls]


def inclusive(calls):
    return [(start, stop - 1) for start, stop in calls]


# ---- when theta is reached ----


def at_least(function):
    return lambda sizes, theta: function(sizes, float(np.nextafter(theta, -np.inf)))


def in_elements(function):
    return lambda sizes, theta: function(sizes, 4 * theta)


ENOUGH = {
    "As soon as more than theta bytes wait": "As soon as theta bytes or more wait",
    "more than theta bytes are sent": "theta bytes or more are sent",
    "exactly theta bytes go on waiting": "exactly theta bytes are sent",
    "you send as soon as theta bytes wait; the rule says more than theta": "",
}
ELEMENTS = {
    "As soon as more than theta bytes wait": "As soon as more than theta elements wait",
    "4, 12, 20 bytes wait, then 32, then 4, 8": "1, 3, 5 elements wait, then 8, then 1, 2",
    "more than theta bytes": "more than theta elements",
    "exactly theta bytes": "exactly theta elements",
    "at most theta bytes": "at most theta elements",
    "you compare all bytes of": "you compare all elements of",
    "you compare elements with theta, which is in bytes: a float32 has 4": "",
    "you send as soon as theta bytes wait": "you send as soon as theta elements wait",
}

# ---- the pool ----


def last_first(function):
    def sum_calls(gradients, calls, rank):
        return function([mine[::-1] for mine in gradients], calls, rank)[::-1]

    return sum_calls


def turned(gradients, calls, rank):
    n = sum(map(np.size, gradients[0]))
    return gradients, [(n - stop, n - start) for start, stop in reversed(calls)], rank


LIES = "Each\n    call sums one slice of the pool over all ranks."
MADE = "in the order in which backward makes\nthem"
TURNED = {
    f"{MADE}. ": f"{MADE}, except in exercise 3.\n",
    LIES: (
        "In\n    this exercise the last gradient lies first in the pool, and the first one last. "
        f"{LIES}"
    ),
}

# ---- what a call costs ----


def first_is_free(function):
    return lambda calls, s, a, b: function(calls, s, a, b) - (a if calls else 0.0)


def there_and_back(function):
    return lambda calls, s, a, b: function(calls, s, 2 * a, b)


COSTS = "A call of m bytes takes a + b m seconds."
EVERY = "every call pays the latency a, not each step once"
FREE = {
    COSTS: "A call of m bytes takes a + b m seconds, the first one only b m.\n   ",
    EVERY: "every call after the first pays the latency a, and a step without calls pays none",
}
TWICE = {
    COSTS: "A call of m bytes takes 2 a + b m seconds.",
    EVERY: "every call pays the latency a twice, not each step once",
}

CHANGES["03"] = [
    [[], [Change(SUMS_03, "here the last gradient lies first", last_first, turned, TURNED)]],
    [
        [Change(CALLS_03, "here exactly theta bytes are enough", at_least, words=ENOUGH)],
        [
            Change(
                CALLS_03,
                "here theta counts elements, not bytes",
                in_elements,
                lambda sizes, theta: (sizes, theta / 4),
                ELEMENTS,
            )
        ],
    ],
    [
        [Change(SECONDS_03, "here the first call pays no latency", first_is_free, words=FREE)],
        [Change(SECONDS_03, "here each call pays a twice", there_and_back, words=TWICE)],
    ],
    [
        [
            Change(CALLS_03, COUNT, writes_counts, words=COUNTS),
            Change(SUMS_03, COUNT, sums_counts, lambda g, calls, rank: (g, counted(calls), rank)),
            Change(SECONDS_03, COUNT, prices_counts, lambda calls, *a: (counted(calls), *a)),
        ],
        [
            Change(CALLS_03, LAST, writes_last, words=LASTS),
            Change(SUMS_03, LAST, sums_last, lambda g, calls, rank: (g, inclusive(calls), rank)),
            Change(SECONDS_03, LAST, prices_last, lambda calls, *a: (inclusive(calls), *a)),
        ],
    ],
]
