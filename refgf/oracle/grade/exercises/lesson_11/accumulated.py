"""Exercise accumulated(gradients): given in the starter."""

import numpy as np

from refgf.oracle.definitions import accumulated
from refgf.oracle.grade.exercise import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_11.cases import normal

SEVERAL, FEW = "several micro-batches", "one micro-batch, no elements"


def mean_of_micro_batches(gradients):
    return accumulated(gradients) / np.float32(len(gradients))


def last_to_first(gradients):
    return accumulated(gradients[::-1])


def float64_sum(gradients):
    return sum(g.astype(np.float64) for g in gradients).astype(np.float32)


ACCUMULATED = Exercise(
    "accumulated",
    accumulated,
    (
        Part(
            SEVERAL, 2, lambda random: [([normal(random, 50) for _ in range(k)],) for k in (3, 8)]
        ),
        Part(FEW, 1, lambda random: [([normal(random, 9)],), ([normal(random, 0)] * 3,)]),
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
