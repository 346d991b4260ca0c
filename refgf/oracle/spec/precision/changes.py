"""Other rules for lesson 05: what a sum comes with, which term is first, how a scale is written,
which numbers are a block.
"""

import numpy as np

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.precision.blocks import BLOCKS_05, cut_off
from refgf.oracle.spec.precision.half_sum import HALF_SUM_05
from refgf.oracle.spec.precision.master import UPDATE_05
from refgf.oracle.spec.precision.scale import SCALE_05

# ---- the sum ----


def as_float16(function):
    return lambda terms, every_hop: function(terms, every_hop).astype(np.float16)


def with_finite(function):
    def half_sum(terms, every_hop):
        total = function(terms, every_hop)
        return total, bool(np.isfinite(total).all())

    return half_sum


def from_the_last(function):
    return lambda terms, every_hop: function(terms[::-1], every_hop)


RETURNS = "additions are in float32. -> float32 (n,)"
FLOAT16 = {
    RETURNS: "additions are in float32. -> float16 (n,)",
    "your result is a float16 array: only the wire has 16 bits, arrays stay float32": "",
    "you do not round the result, but it is sent to all ranks as float16 too": "",
}
FINITE = {
    RETURNS: "additions are in float32.\n"
    "    -> (float32 (n,), are all its numbers finite?), a tuple",
    "..., False) -> [60000]": "..., False) -> ([60000], True)",
}
LAST = {
    "in the order in which they are added, and": "added from the last one to the first, and",
    "you add the terms from the last to the first": "you add the terms from the first to the last",
}

# ---- the scale ----


def of_exponent(function):
    def next_scale(exponent, good_steps, finite, interval):
        scale, good_steps = function(2.0**exponent, good_steps, finite, interval)
        return int(np.log2(scale)), good_steps

    return next_scale


def by_exponent(function):
    return lambda master, total, exponent, rate: function(master, total, 2.0**exponent, rate)


def counted_down(function):
    def next_scale(scale, missing, finite, interval):
        scale, good_steps = function(scale, interval - missing, finite, interval)
        return scale, interval - good_steps

    return next_scale


def quartered(function):
    def next_scale(scale, good_steps, finite, interval):
        after = function(scale, good_steps, finite, interval)
        return after if finite else function(after[0], good_steps, finite, interval)

    return next_scale


EXPONENT = "here the scale is given as its exponent: 10 for 1024"
EXPONENTS = {
    "    scale: a power of two.\n": "",
    "scale: float, good_steps": "exponent: int, good_steps",
    '-> tuple[float, int]:\n    """(scale, good_steps)': "-> tuple[int, int]:\n    "
    '"""(exponent, good_steps)',
    "after a step: dynamic loss scaling.": "after a step: dynamic loss scaling by 2**exponent.",
    "The scale stays within 1 and 2**24": "The exponent stays within 0 and 24",
    "the scale stays within 1 and 2**24": "the exponent stays within 0 and 24",
    "your scale leaves the range 1 to 2**24": "your exponent leaves the range 0 to 24",
    "you do not double after interval": "you do not add 1 after interval",
    "after doubling, the count": "after adding 1, the count",
    "you double the scale in a step": "you add 1 to the exponent in a step",
}
TIMES = "times the loss scale (a power of two)."
BY_EXPONENT = {
    TIMES: "times the loss scale 2**exponent.",
    "master: np.ndarray, total: np.ndarray, scale: float,": (
        "master: np.ndarray, total: np.ndarray, exponent: int,"
    ),
    "scale 1": "exponent 0",
}
MISSING = {
    "scale: float, good_steps": "scale: float, missing",
    '"""(scale, good_steps) after': '"""(scale, missing) after',
    "good_steps: how many steps in a row were finite before this step.": (
        "missing: how many more steps in a row must be finite, this one included, until it doubles."
        "\n   "
    ),
    "Both begin a new count.": "After both, `interval` steps are missing.",
    "good_steps does not count this step yet": "missing counts this step, too",
    "the count of good steps begins at 0 again": "`interval` steps are missing again",
    "the count begins at 0 again": "`interval` steps are missing again",
}
QUARTER = {"the scale is halved": "the scale is divided by four"}

# ---- the update ----


def with_applied(function):
    def update(master, total, scale, rate):
        after = function(master, total, scale, rate)
        is_wrong = not np.isfinite(after[0]).all()  # a mistake did not skip it, and says so
        return *after, is_wrong or bool(np.isfinite(total).all())

    return update


APPLIED = {
    "-> tuple[np.ndarray, np.ndarray]:": "-> tuple[np.ndarray, np.ndarray, bool]:",
    "-> (master, working), (n,) each": "-> (master, working, applied), (n,) each",
    "the whole step is skipped and the weights stay.": (
        "the whole step is skipped and the weights stay.\n    applied: False for such a step."
    ),
}


# ---- the blocks ----


def from_the_end(function):
    return lambda x, block: function(x[::-1], block)[::-1]


FITS = "the least power of two with which no |x| / s is above 448."
CUT_OFF = {
    FITS: (
        "the power of two with which the largest |x| / s is from 256 to below 512.\n"
        "    What is above 448 then is sent as 448."
    ),
    "you cut off at 448; here s is large enough for the largest number": "",
}
FROM_THE_END = {
    "The first `block` numbers are a block, then the next; the last one may be shorter.": (
        "The last `block` numbers are a block, then those before; the first one may be shorter."
    ),
    "several blocks, the last one shorter": "several blocks, the first one shorter",
}


def exponents(scale, *rest):
    return int(np.log2(scale)), *rest


CHANGES["05"] = [
    [
        [Change(HALF_SUM_05, "here the result is float16", as_float16, words=FLOAT16)],
        [Change(HALF_SUM_05, "here the result comes with a flag", with_finite, words=FINITE)],
    ],
    [[], [Change(HALF_SUM_05, "here the last term is first", from_the_last, words=LAST)]],
    [[], [Change(SCALE_05, "here a skipped step quarters", quartered, words=QUARTER)]],
    [
        [
            Change(SCALE_05, EXPONENT, of_exponent, exponents, EXPONENTS),
            Change(
                UPDATE_05,
                EXPONENT,
                by_exponent,
                lambda master, total, scale, rate: (master, total, *exponents(scale, rate)),
                BY_EXPONENT,
            ),
        ],
        [
            Change(
                SCALE_05,
                "here the count is of missing steps",
                counted_down,
                lambda scale, good, finite, interval: (scale, interval - good, finite, interval),
                MISSING,
            ),
            Change(UPDATE_05, "here a third result says `applied`", with_applied, words=APPLIED),
        ],
    ],
    [
        [Change(BLOCKS_05, "here what is above 448 is cut off", cut_off, words=CUT_OFF)],
        [Change(BLOCKS_05, "here blocks begin at the end", from_the_end, words=FROM_THE_END)],
    ],
]
