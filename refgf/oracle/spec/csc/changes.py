"""Other rules for lesson 06: an importance, ties or the unit, how a choice is written, the sum."""

import numpy as np

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.csc.choice import CHOOSE_06
from refgf.oracle.spec.csc.importance import IMPORTANCE_06
from refgf.oracle.spec.csc.residual import STEP_06

# ---- an importance ----


def undivided(function):
    def importance(waiting, chunk):
        starts = np.arange(0, len(waiting[0]), chunk)
        return function(waiting, chunk) * np.minimum(chunk, len(waiting[0]) - starts)

    return importance


def per_rank(function):
    return lambda waiting, chunk: function(waiting, chunk) / len(waiting)


def shares(function):
    def importance(waiting, chunk):
        values = function(waiting, chunk)
        return values / values.sum()

    return importance


SUMMED = "The norms are summed over the ranks and divided by the\n    chunk's length."
OVER_RANKS = "you divide by the number of ranks: norms are summed over the ranks"
UNDIVIDED = {
    SUMMED: "The norms are summed over the ranks and not\n    divided by the chunk's length.",
    "you do not divide by the chunk's length: a short last chunk is hardly ever chosen": "",
    "you divide the last chunk's norm by the length of the others": "",
}
PER_RANK = {SUMMED: f"{SUMMED[:-1]} and by the number of ranks.", OVER_RANKS: ""}
SHARES = {
    SUMMED: f"{SUMMED}\n    Then each is divided by the total of all chunks: together they are 1.",
    OVER_RANKS: "",
}

# ---- ties, or the unit ----


def to_higher(function):
    def choose(values, percent):
        return [len(values) - 1 - c for c in reversed(function(values[::-1], percent))]

    return choose


def in_permille(function):
    return lambda values, permille: function(values, permille / 10)


HIGHER = {
    "chunks the one with the lower number is": "chunks the one with the higher number is",
    "equal values: the lower number": "equal values: the higher number",
    "of equal values you choose the chunk with the higher number: an ascending sort puts it last": (
        ""
    ),
}
PERMILLE = {
    "percent: above 0, at most 100": "permille: above 0, at most 1000",
    "divide it by 100": "divide it by 1000",
    "percent by 100 first": "permille by 1000 first",
    "(28 / 100)": "(280 / 1000)",
    "C * percent / 100": "C * permille / 1000",
    "percent": "permille",
}

# ---- how a choice is written ----


def writes_from_1(function):
    return lambda values, percent: [c + 1 for c in function(values, percent)]


def reads_from_1(function):
    return lambda g, h, chosen, chunk: function(g, h, [c - 1 for c in chosen], chunk)


def writes_marks(function):
    def choose(values, percent):
        chosen = set(function(values, percent))
        return [int(c in chosen) for c in range(len(values))]

    return choose


def reads_marks(function):
    def csc_step(gradients, residuals, chosen, chunk):
        return function(gradients, residuals, [c for c, mark in enumerate(chosen) if mark], chunk)

    return csc_step


def from_1(gradients, residuals, chosen, chunk):
    return gradients, residuals, [c + 1 for c in chosen], chunk


def marks(gradients, residuals, chosen, chunk):
    count = -(-gradients[0].size // chunk)
    return gradients, residuals, [int(c in chosen) for c in range(count)], chunk


ONE = "here the first chunk has number 1"
ONES = {
    "number 0, 1, ..., C-1": "number 1, 2, ..., C",
    "is the chunk of each element, and": "is a chunk, counted from 0, and",
}
MARKS = "here a choice is a 1 or a 0 for each chunk"
CHOSEN = {
    "The numbers of the most important chunks, ascending:": (
        "A 1 for the most important chunks, a 0 for the others:"
    ),
    "your chunks are in the order of importance; wanted ascending numbers, the order in which "
    "they are packed": "",
}
TAKEN = {
    "chosen: chunk numbers, ascending, the": "chosen: 1 or 0 for each chunk, the",
    "np.isin(..., chosen) says which": "np.take(chosen, ...) says which",
    "you take the chosen numbers as elements: they are chunks": "",
}

# ---- the sum ----


def mean(function):
    def csc_step(gradients, residuals, chosen, chunk):
        packed, unsent = function(gradients, residuals, chosen, chunk)
        return packed / np.float32(len(gradients)), unsent

    return csc_step


MEANS = {
    "one after another, summed over the\n    ranks.": (
        "one after another: the sum over the\n    ranks divided by their number."
    ),
    "you send the mean over the ranks; wanted the sum": "",
}

CHANGES["06"] = [
    [
        [Change(IMPORTANCE_06, "here a norm is not divided", undivided, words=UNDIVIDED)],
        [Change(IMPORTANCE_06, "here it is a mean over the ranks", per_rank, words=PER_RANK)],
        [Change(IMPORTANCE_06, "here all are divided by their total", shares, words=SHARES)],
    ],
    [
        [Change(CHOOSE_06, "here the higher of equal ones is chosen", to_higher, words=HIGHER)],
        [
            Change(
                CHOOSE_06,
                "here percent is in permille",
                in_permille,
                lambda values, percent: (values, percent * 10),
                PERMILLE,
            )
        ],
    ],
    [[], [Change(STEP_06, "here the sum is divided by the ranks", mean, words=MEANS)]],
    [
        [
            Change(CHOOSE_06, ONE, writes_from_1, words=ONES),
            Change(STEP_06, ONE, reads_from_1, from_1),
        ],
        [
            Change(CHOOSE_06, MARKS, writes_marks, words=CHOSEN),
            Change(STEP_06, MARKS, reads_marks, marks, TAKEN),
        ],
    ],
]
