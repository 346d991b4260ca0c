"""Exercise best_end(ready_s, nbytes, a_s, b_s_per_byte)."""

from functools import cache

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_09.cases import FEW, faster, few
from refgf.oracle.grade.exercises.lesson_09.greedy_counts import greedy_counts
from refgf.oracle.grade.exercises.lesson_09.groupings import groupings
from refgf.oracle.grade.exercises.lesson_09.step_end import step_end

SAME, BETTER = "the greedy rule finds the best grouping", "the greedy rule misses the best grouping"
cached = cache(groupings)


def best_end(ready_s, nbytes, a_s, b_s_per_byte, tried=lambda counts: True):
    found = [counts for counts in cached(len(ready_s)) if tried(counts)] or [[1] * len(ready_s)]
    return min(step_end(ready_s, nbytes, counts, a_s, b_s_per_byte) for counts in found)


def trusts_the_greedy_rule(ready_s, nbytes, a_s, b_s_per_byte):
    counts = greedy_counts(ready_s, nbytes, a_s, b_s_per_byte)
    return step_end(ready_s, nbytes, counts, a_s, b_s_per_byte)


def eager_or_one_call(*case):
    return best_end(*case, lambda counts: len(counts) <= 1 or max(counts) == 1)


def never_all_in_one(*case):
    return best_end(*case, lambda counts: len(counts) != 1)


def never_one_by_one(*case):
    return best_end(*case, lambda counts: max(counts, default=2) > 1)


def equal_groups(*case):
    return best_end(*case, lambda counts: len({counts[0], *counts[:-1]}) == 1 if counts else True)


def at_most_two(*case):
    return best_end(*case, lambda counts: max(counts, default=0) <= 2)


BEST = Exercise(
    "best_end",
    best_end,
    (
        Part(
            SAME,
            1,
            lambda random: faster(
                random,
                ([7, 11, 14, 21, 24, 28], [5, 1, 7, 9, 2, 3], 4, 1),
                ([0, 1, 2, 3], [1, 1, 1, 1], 5, 1),
                ([0, 10], [8, 1], 1, 1),
            ),
        ),
        Part(
            BETTER,
            2,
            lambda random: faster(
                random,
                ([6, 11, 16, 17, 18, 27], [7, 8, 6, 7, 6, 1], 6, 0.5),
                ([0, 3, 6, 9, 12], [40, 1, 1, 1, 1], 4, 0.5),
            ),
        ),
        Part(FEW, 1, lambda random: [(*row, 2.0, 0.5) for row in few(random)]),
    ),
    (
        Mistake(
            "you take the greedy rule's grouping, but another one may end earlier: try them all",
            trusts_the_greedy_rule,
            (BETTER,),
        ),
        Mistake(
            "you try two groupings only, one call and one call for each gradient",
            eager_or_one_call,
            (SAME, BETTER),
        ),
        Mistake("you never try one call for all gradients", never_all_in_one, (SAME,)),
        Mistake("you never try one call for each gradient", never_one_by_one, (SAME,)),
        Mistake(
            "you try groups of equal size only; groups may have any sizes",
            equal_groups,
            (SAME, BETTER),
        ),
        Mistake("you try groups of at most two gradients", at_most_two, (SAME, BETTER)),
    ),
    relative=1e-12,  # as in step_end
)
