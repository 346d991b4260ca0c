"""Other rules for lesson 07: what a call is given as, when it is sent, the sums, the efficiency."""

import numpy as np

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.stack import CALLS_07, EXCHANGE_07, GAINS_07

# ---- the calls ----


def in_elements(function):
    def call_bytes(sizes, theta, half, chunk, chosen):
        calls = function(sizes, theta, half, chunk, chosen)
        return [nbytes // (2 if half else 4) for nbytes in calls]

    return call_bytes


def sent_so_far(function):
    return lambda *step: np.cumsum(function(*step), dtype=int).tolist()


def at_least(function):
    def call_bytes(sizes, theta, *rest):
        return function(sizes, float(np.nextafter(theta, -np.inf)), *rest)

    return call_bytes


CALLS = "The bytes of each call of a step, in order. -> [bytes, ...]"
ELEMENTS = {CALLS: "The elements of each call of a step, in order. -> [elements, ...]"}
SO_FAR = {CALLS: "The bytes that are sent by the end of each call of a step. -> [bytes, ...]"}
ENOUGH = {
    "if more than theta bytes wait": "if theta bytes or more wait",
    "exactly theta bytes go on waiting": "exactly theta bytes are sent",
    "you send as soon as theta bytes wait; the rule says more than theta": "",
}

# ---- the sums ----


def mean(function):
    def exchange(gradients, residuals, chosen):
        sums, new = function(gradients, residuals, chosen)
        return sums / np.float32(len(gradients)), new

    return exchange


def packed(function):
    def exchange(gradients, residuals, chosen):
        sums, new = function(gradients, residuals, chosen)
        return sums[chosen], new

    return exchange


ZERO = "sums is 0 where nothing was sent."
MEAN = {
    ZERO: "Then each rank divides it by the number of ranks, in float32. sums is 0 where nothing\n"
    "    was sent.",
}
PACKED = {
    ZERO: "sums has the chosen elements only, packed one after another.",
    "all float32 (n,)": "all float32,\n    (k,) for k chosen elements and (n,) each",
    "you sum what was not chosen too: the result is 0 there": "",
    "Hint: x.astype(np.float16).astype(np.float32) rounds. sums[chosen] = ... puts numbers back.": (
        "Hint: x.astype(np.float16).astype(np.float32) rounds. x[chosen] packs."
    ),
}

# ---- the efficiency ----


def as_share(function):
    return lambda *stack: [(gain_s, percent / 100) for gain_s, percent in function(*stack)]


def as_loss(function):
    return lambda *stack: [(gain_s, 100 - percent) for gain_s, percent in function(*stack)]


PERCENT = "[(gain in seconds, scaling efficiency in percent), ...] of"
UP_TO_IT = "efficiency is that of the stack up to it."
SHARE = {PERCENT: "[(gain in seconds, scaling efficiency from 0 to 1), ...] of"}
LOSS = {
    PERCENT: "[(gain in seconds, lost efficiency in percent), ...] of",
    UP_TO_IT: f"{UP_TO_IT} 100 percent less the\n    scaling efficiency is lost.",
}

CHANGES["07"] = [
    [
        [Change(CALLS_07, "here a call is given in elements", in_elements, words=ELEMENTS)],
        [Change(CALLS_07, "here it is what is sent so far", sent_so_far, words=SO_FAR)],
    ],
    [[], [Change(CALLS_07, "here exactly theta bytes are enough", at_least, words=ENOUGH)]],
    [
        [Change(EXCHANGE_07, "here the sum is divided by the ranks", mean, words=MEAN)],
        [Change(EXCHANGE_07, "here only chosen elements are returned", packed, words=PACKED)],
    ],
    [
        [Change(GAINS_07, "here the efficiency is a share", as_share, words=SHARE)],
        [Change(GAINS_07, "here it is what is lost", as_loss, words=LOSS)],
    ],
]
