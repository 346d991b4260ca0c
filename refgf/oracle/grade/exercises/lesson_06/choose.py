"""Exercise choose(values, percent)."""

import math

import numpy as np

from refgf.oracle.definitions import (
    choose,
)
from refgf.oracle.grade.exercise import Exercise, Mistake, Part

WHOLE, UP = "percent of the chunks are a whole number", "the number of chunks is rounded up"
TIES, ENDS = "equal values: the lower number is chosen", "one chunk, all chunks"


def order_of(values):
    """Chunk numbers, the most important first, equal ones by number."""
    return np.argsort(-values, kind="stable").tolist()


def count_of(values, percent):
    return math.ceil(len(values) * percent / 100)


def rounded_down(values, percent):
    return sorted(order_of(values)[: int(len(values) * percent / 100)])


def rounds_the_share(values, percent):
    return sorted(order_of(values)[: math.ceil(len(values) * (percent / 100))])


def share_for_percent(values, percent):
    return sorted(order_of(values)[: count_of(values, 100 * percent)])


def in_order_of_importance(values, percent):
    return order_of(values)[: count_of(values, percent)]


def least_important(values, percent):
    return choose(-values, percent)


def higher_number_of_equal_ones(values, percent):
    return sorted(np.argsort(values, kind="stable")[-count_of(values, percent) :].tolist())


def all_that_reach_the_last(values, percent):
    smallest = np.sort(values)[-count_of(values, percent)]
    return np.flatnonzero(values >= smallest).tolist()


def different(random, count):
    """Values of `count` chunks, no two equal. The last chunk but one is the most important."""
    values = random.permutation(count) + random.random(count) / 2
    values[-2] = count
    return values


CHOOSE = Exercise(
    "choose",
    choose,
    (
        Part(
            WHOLE,
            1,
            lambda random: [
                (different(random, c), d) for c, d in ((10, 30), (20, 25), (25, 28), (50, 14))
            ],
        ),
        Part(
            UP,
            1,
            lambda random: [(different(random, c), d) for c, d in ((10, 25), (13, 50), (9, 12.5))],
        ),
        Part(
            TIES,
            1,
            lambda random: [
                (np.array([2.0, 5, 2, 9, 2]), 60),
                (np.array([1.0, 3, 3, 3, 0, 3]), 50),
                (np.full(5 * int(random.integers(1, 5)), random.random()), 40),
            ],
        ),
        Part(
            ENDS,
            1,
            lambda random: [(different(random, c), d) for c, d in ((8, 1), (6, 100), (3, 0.1))],
        ),
    ),
    (
        Mistake(
            "you round the number of chunks down; wanted up, and so never 0",
            rounded_down,
            (UP, ENDS),
        ),
        Mistake(
            "you divide percent by 100 first, and that rounds: 25 * (28 / 100) is more than 7, so "
            "you choose a chunk too many; wanted C * percent / 100 from left to right",
            rounds_the_share,
            (WHOLE,),
        ),
        Mistake(
            "you take percent as a share: divide it by 100",
            share_for_percent,
            (WHOLE, UP, TIES, ENDS),
        ),
        Mistake(
            "your chunks are in the order of importance; wanted ascending numbers, the order in "
            "which they are packed",
            in_order_of_importance,
            (WHOLE, UP, TIES, ENDS),
        ),
        Mistake("you choose the least important chunks", least_important, (WHOLE, UP, TIES, ENDS)),
        Mistake(
            "of equal values you choose the chunk with the higher number: an ascending sort puts "
            "it last",
            higher_number_of_equal_ones,
            (TIES,),
        ),
        Mistake(
            "you choose all chunks that reach the smallest chosen value: with equal values these "
            "are too many",
            all_that_reach_the_last,
            (TIES,),
        ),
    ),
)
