"""Exercise groupings(count): given in the starter."""

from refgf.oracle.grade.exercises.before import Exercise, Part
from refgf.oracle.grade.exercises.lesson_09.cases import FEW


def groupings(count):
    if count == 0:
        return [[]]
    return [[i, *rest] for i in range(1, count + 1) for rest in groupings(count - i)]


GROUPINGS = Exercise(
    "groupings",
    groupings,
    (
        Part("several gradients", 1, lambda random: [(n,) for n in (2, 3, 7)]),
        Part(FEW, 1, lambda random: [(1,), (0,)]),
    ),
)
