"""Exercise accumulated(gradients): given in the starter."""

import numpy as np

from refgf.oracle.definitions import accumulated
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_11.cases import normal
from refgf.oracle.spec.exercise import tenths

SEVERAL, FEW = "several micro-batches", "one micro-batch, no elements"


def mean_of_micro_batches(gradients):
    return accumulated(gradients) / np.float32(len(gradients))


def last_to_first(gradients):
    return accumulated(gradients[::-1])


def float64_sum(gradients):
    return sum(g.astype(np.float64) for g in gradients).astype(np.float32)


def several(random):
    return [
        *[(list(tenths(random, 3, 4)),) for _ in range(3)],
        ([normal(random, 50) for _ in range(8)],),
    ]


ACCUMULATED = Exercise(
    "accumulated",
    accumulated,
    (
        Part(SEVERAL, 2, several),
        Part(FEW, 1, lambda random: [([tenths(random, 4)],), ([tenths(random, 0)] * 3,)]),
    ),
    (
        Mistake(
            "you take the mean, but each loss is divided by the whole batch already",
            mean_of_micro_batches,
            (SEVERAL,),
        ),
        Mistake("you add from the last to the first: the bits differ", last_to_first, (SEVERAL,)),
        Mistake("you add in float64: the bits differ", float64_sum, (SEVERAL,)),
    ),
)
