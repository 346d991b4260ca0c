"""Exercise chunk_bounds(n, chunk): given in the starter."""

from refgf.oracle.definitions import (
    chunk_bounds,
)
from refgf.oracle.grade.exercise import Exercise, Mistake, Part

DIVIDES, SHORTER, SMALL = "chunk divides n", "a shorter last chunk", "one chunk, no elements"


def whole_chunks(n, chunk):
    return [(c * chunk, (c + 1) * chunk) for c in range(n // chunk)]


def last_chunk_too_long(n, chunk):
    return [(start, start + chunk) for start in range(0, n, chunk)]


def small(random):
    return [(3, 8), (0, 4), (int(random.integers(1, 99)), int(random.integers(100, 999)))]


BOUNDS = Exercise(
    "chunk_bounds",
    chunk_bounds,
    (
        Part(DIVIDES, 1, lambda random: [(c * k, c) for c, k in random.integers(1, 9, (4, 2))]),
        Part(SHORTER, 1, lambda random: [(10, 4), (9, 2), (int(random.integers(50)) * 3 + 1, 3)]),
        Part(SMALL, 1, small),
    ),
    (
        Mistake(
            "your last chunk is lost when the chunk's length does not divide n",
            whole_chunks,
            (SHORTER, SMALL),
        ),
        Mistake(
            "your last chunk goes on after element n-1: it may be shorter",
            last_chunk_too_long,
            (SHORTER, SMALL),
        ),
    ),
)
