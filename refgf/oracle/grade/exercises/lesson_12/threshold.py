"""Exercise threshold(x, k, rounds)."""

import numpy as np

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.spec.exercise import quarters

RANDOM, REACHES = "random numbers", "a magnitude that is exactly a threshold"
NO_SEARCH = "no rounds, one element, only equal magnitudes"


def bisected(x, k, rounds, size=np.abs, first=None, reaches=np.greater_equal, up=np.greater):
    """MSTopK's interval as in the lesson; the keywords make its typical mistakes."""
    magnitude = size(x)
    low, high = 0.0, float(magnitude.max())
    tested = float(magnitude.mean()) if first is None else first(x)
    for _ in range(rounds):
        if up(np.count_nonzero(reaches(magnitude, tested)), k):
            low = tested
        else:
            high = tested
        tested = (low + high) / 2
    return low, high


def threshold(x, k, rounds):
    return bisected(x, k, rounds)


def signed_numbers(x, k, rounds):
    return bisected(x, k, rounds, size=np.array)


def signed_mean(x, k, rounds):
    return bisected(x, k, rounds, first=lambda x: float(x.mean()))


def begins_in_the_middle(x, k, rounds):
    return bisected(x, k, rounds, first=lambda x: float(np.abs(x).max()) / 2)


def up_at_exactly_k(x, k, rounds):
    return bisected(x, k, rounds, up=np.greater_equal)


def above_the_threshold(x, k, rounds):
    return bisected(x, k, rounds, reaches=np.greater)


def wrong_half(x, k, rounds):
    return bisected(x, k, rounds, up=np.less_equal)


def one_round_too_few(x, k, rounds):
    return bisected(x, k, max(0, rounds - 1))


def searched(random):
    """20 rounds meet thresholds that exactly k magnitudes reach."""
    ks = random.integers(3, 11, 3).tolist()
    small = [(quarters(random, 6), 2, rounds) for rounds in (2, 3, 4)]
    return [
        *small,
        *[(random.standard_normal(40), k, rounds) for k, rounds in zip(ks, (4, 20, 20))],
    ]


def reached(random):
    """The means are 3 and 2, the midpoint of 2 and 8 is 5. Factors of 2 keep all of it exact."""
    factor = 2.0 ** int(random.integers(-3, 6))
    rows = [([8, -3, 1, 0], 1, 2), ([8, -5, 1, -1, 1, 0, 0, 0], 1, 3)]
    return [(factor * random.permutation(np.array(x, float)), k, r) for x, k, r in rows]


THRESHOLD = Exercise(
    "threshold",
    threshold,
    (
        Part(RANDOM, 3, searched),
        Part(REACHES, 1, reached),
        Part(
            NO_SEARCH,
            1,
            lambda random: [
                (random.standard_normal(9), 2, 0),
                (np.array([3.0]), 1, 5),
                (np.array([-2.0, 2, 2, 2]) * int(random.integers(1, 9)), 3, 3),
            ],
        ),
    ),
    (
        Mistake(
            "you compare signed numbers: magnitudes are to reach the threshold",
            signed_numbers,
            (RANDOM, REACHES, NO_SEARCH),
        ),
        Mistake(
            "your first threshold is the mean of the signed numbers, which is about 0; wanted the "
            "mean magnitude",
            signed_mean,
            (RANDOM, REACHES, NO_SEARCH),
        ),
        Mistake(
            "your first threshold is half the largest magnitude; wanted the mean magnitude",
            begins_in_the_middle,
            (RANDOM, REACHES, NO_SEARCH),
        ),
        Mistake(
            "when exactly k magnitudes reach the threshold, it becomes high, not low",
            up_at_exactly_k,
            (RANDOM, REACHES, NO_SEARCH),
        ),
        Mistake(
            "a magnitude equal to the threshold reaches it too: >=, not >",
            above_the_threshold,
            (REACHES, NO_SEARCH),
        ),
        Mistake(
            "you go on in the wrong half: when more than k reach the threshold, it is too low",
            wrong_half,
            (RANDOM, REACHES, NO_SEARCH),
        ),
        Mistake(
            "you make one round too few: the mean is the first one",
            one_round_too_few,
            (RANDOM, REACHES, NO_SEARCH),
        ),
    ),
    relative=1e-12,  # the mean may be added in any order: a few roundings of 1e-16
)
