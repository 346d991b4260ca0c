"""Exercise top_k(x, k)."""

import numpy as np

from refgf.oracle.definitions import top_k
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part

DIFFERENT, TIES, FEW = "different magnitudes", "equal magnitudes", "k = 0, k = n, no elements"


def largest_values(x, k):
    return np.sort(np.argsort(-x, kind="stable")[:k])


def largest_first(x, k):
    return np.argsort(-np.abs(x), kind="stable")[:k]


def last_of_an_ascending_sort(x, k):
    return np.sort(np.argsort(np.abs(x), kind="stable")[-k:])


def all_that_reach(x, k):
    return np.flatnonzero(np.abs(x) >= np.sort(np.abs(x))[x.size - k]) if k else np.arange(0)


def all_above(x, k):
    size = np.abs(x)
    return np.flatnonzero(size > np.sort(size)[x.size - k - 1]) if k < x.size else np.arange(k)


def values_for_indices(x, k):
    return x[top_k(x, k)]


def different(random, n):
    """n numbers of different magnitudes. The largest are negative; the very largest is the last."""
    size = random.permutation(n) + 1 + random.random(n) / 2
    size[-1:] = n + 1
    return np.where(size > n / 2, -size, size)


def with_ties(random):
    n = int(random.integers(6, 12))
    signs = random.choice([-1.0, 1.0], n)
    return [
        (np.array([2.0, -2, 5, 2, -2, 1]), 3),
        (signs * 3, 3),
        (signs * ([1, 4, 4, 4] + [2] * (n - 4)), 2),
    ]


TOP_K = Exercise(
    "top_k",
    top_k,
    (
        Part(
            DIFFERENT, 2, lambda random: [(different(random, n), k) for n, k in ((9, 3), (40, 7))]
        ),
        Part(TIES, 1, with_ties),
        Part(
            FEW,
            1,
            lambda random: [(different(random, n), k) for n, k in ((7, 0), (6, 6), (0, 0))],
        ),
    ),
    (
        Mistake(
            "you choose the largest values: a large negative gradient matters as much",
            largest_values,
            (DIFFERENT, TIES),
        ),
        Mistake(
            "your indices are in the order of magnitude; wanted ascending",
            largest_first,
            (DIFFERENT, TIES, FEW),
        ),
        Mistake(
            "you take the end of an ascending sort: of equal magnitudes that is the last, not the "
            "first, and [-k:] is everything for k = 0",
            last_of_an_ascending_sort,
            (TIES, FEW),
        ),
        Mistake(
            "you take all elements that reach the k-th magnitude: with equal ones these are more "
            "than k",
            all_that_reach,
            (TIES,),
        ),
        Mistake(
            "you take the elements above the next magnitude: with equal ones these are fewer than "
            "k",
            all_above,
            (TIES,),
        ),
        Mistake(
            "you return values; wanted their indices", values_for_indices, (DIFFERENT, TIES, FEW)
        ),
    ),
)
