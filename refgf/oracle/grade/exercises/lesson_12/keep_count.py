"""Exercise keep_count(n, percent): given in the starter."""

import numpy as np

from refgf.oracle.definitions import keep_count
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part

WHOLE, UP, ENDS = "a whole number", "rounded up", "no elements, at least one, all"


def rounded_down(n, percent):
    return int(n * percent / 100)


def from_binary_fractions(n, percent):
    return min(n, int(np.ceil(n * (percent / 100))))


def ends(random):
    return [(0, 10), (5, 0.1), (9, 100), (int(random.integers(10, 9999)), 100)]


KEEP_COUNT = Exercise(
    "keep_count",
    keep_count,
    (
        Part(
            WHOLE, 1, lambda random: [(int(random.integers(1, 90)) * 100, 1), (1000, 1.1), (50, 2)]
        ),
        Part(UP, 1, lambda random: [(int(random.integers(9)) * 100 + 1, 1), (999, 0.1)]),
        Part(ENDS, 1, ends),
    ),
    (
        Mistake("you round k down; wanted up, and so never 0", rounded_down, (UP, ENDS)),
        Mistake(
            "1.1 / 100 is rounded, and so 1.1 % of 1000 come out as 12: compute with a Fraction",
            from_binary_fractions,
            (WHOLE,),
        ),
    ),
)
