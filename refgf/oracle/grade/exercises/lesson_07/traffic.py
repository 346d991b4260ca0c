"""Exercise traffic(calls, p): given in the starter."""

from refgf.oracle.grade.exercises.before import Exercise, Part
from refgf.oracle.grade.exercises.lesson_07.cases import ROUNDINGS


def traffic(calls, p):
    return 2 * (p - 1) * len(calls), 2 * (p - 1) / p * sum(calls)


def of_several_ranks(random):
    return [([8, 12], 4), (random.integers(1, 10**6, 5).tolist(), int(random.integers(2, 64)))]


def few(random):
    return [([8, 12], 1), ([], 4), (random.integers(1, 10**6, 3).tolist(), 1)]


TRAFFIC = Exercise(
    "traffic",
    traffic,
    (
        Part("several ranks", 1, of_several_ranks),
        Part("one rank, no call", 1, few),
    ),
    relative=ROUNDINGS,
)
