"""Exercise importance(waiting, chunk)."""

import numpy as np

from refgf.oracle.definitions import (
    chunk_bounds,
    importance,
)
from refgf.oracle.grade.exercise import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_06.chunk_bounds import DIVIDES, SHORTER
from refgf.oracle.grade.exercises.numbers import tenths

FEW = "one rank, one chunk, no elements"


def per_chunk(xs, chunk, magnitude=np.abs, divide=True, total=np.sum):
    """total over a chunk's elements and all ranks; the keywords make the typical mistakes."""
    values = []
    for start, stop in chunk_bounds(len(xs[0]), chunk):
        norm = sum(total(magnitude(x[start:stop].astype(np.float64))) for x in xs)
        values.append(norm / (stop - start) if divide else norm)
    return np.array(values, np.float64)


def without_magnitudes(waiting, chunk):
    return per_chunk(waiting, chunk, magnitude=np.array)


def squares(waiting, chunk):
    return per_chunk(waiting, chunk, magnitude=np.square)


def euclidean(waiting, chunk):
    return per_chunk(waiting, chunk, total=np.linalg.norm)


def magnitudes_of_the_sum(waiting, chunk):
    return per_chunk([sum(x.astype(np.float64) for x in waiting)], chunk)


def not_divided(waiting, chunk):
    return per_chunk(waiting, chunk, divide=False)


def divided_by_the_full_length(waiting, chunk):
    return per_chunk(waiting, chunk, divide=False) / chunk


def mean_over_ranks(waiting, chunk):
    return importance(waiting, chunk) / len(waiting)


def own_norms_only(waiting, chunk):
    return importance(waiting[:1], chunk)


def float32_norms(waiting, chunk):
    bounds = chunk_bounds(len(waiting[0]), chunk)
    norms = [[np.abs(x[i:j]).sum() for i, j in bounds] for x in waiting]
    lengths = np.array([j - i for i, j in bounds], np.float32)
    return np.array(norms, np.float32).sum(0) / lengths


def waiting(shapes):
    """Cases of p ranks with n random float32 numbers. shapes: (p, n, chunk) of each case."""
    return lambda random: [(list(tenths(random, p, n)), chunk) for p, n, chunk in shapes]


IMPORTANCE = Exercise(
    "importance",
    importance,
    (
        Part(DIVIDES, 2, waiting([(2, 4, 2), (3, 30, 10), (5, 40, 5)])),
        Part(SHORTER, 2, waiting([(2, 5, 2), (3, 31, 6), (4, 38, 9)])),
        Part(FEW, 1, waiting([(1, 6, 3), (1, 3, 8), (2, 0, 4)])),
    ),
    (
        Mistake(
            "you add signed numbers, and these cancel: a norm adds magnitudes",
            without_magnitudes,
            (DIVIDES, SHORTER, FEW),
        ),
        Mistake("you add squares: the L1 norm adds magnitudes", squares, (DIVIDES, SHORTER, FEW)),
        Mistake(
            "you take Euclidean norms: the L1 norm adds magnitudes",
            euclidean,
            (DIVIDES, SHORTER, FEW),
        ),
        Mistake(
            "you take magnitudes of the ranks' sum, which no rank knows before the exchange: each "
            "rank takes those of its own numbers, and the norms are summed",
            magnitudes_of_the_sum,
            (DIVIDES, SHORTER),
        ),
        Mistake(
            "you do not divide by the chunk's length: a short last chunk is hardly ever chosen",
            not_divided,
            (DIVIDES, SHORTER, FEW),
        ),
        Mistake(
            "you divide the last chunk's norm by the length of the others",
            divided_by_the_full_length,
            (SHORTER, FEW),
        ),
        Mistake(
            "you divide by the number of ranks: norms are summed over the ranks",
            mean_over_ranks,
            (DIVIDES, SHORTER),
        ),
        Mistake(
            "you use rank 0's norms only: the other ranks would choose other chunks",
            own_norms_only,
            (DIVIDES, SHORTER),
        ),
        Mistake(
            "you compute in float32; wanted float64: x.astype(np.float64) before the sum",
            float32_norms,
            (DIVIDES, SHORTER, FEW),
        ),
    ),
    relative=1e-12,  # float64 sums in any order: a few roundings of 1e-16
)
