"""Lesson 11: accumulated gradients, the rate of a step, the LARS ratio, a LARS step."""

from refgf.oracle.grade.exercises.lesson_11.accumulated import ACCUMULATED
from refgf.oracle.grade.exercises.lesson_11.lars_ratio import RATIO
from refgf.oracle.grade.exercises.lesson_11.lars_step import STEP
from refgf.oracle.grade.exercises.lesson_11.learning_rate import LEARNING_RATE

EXERCISES = (ACCUMULATED, LEARNING_RATE, RATIO, STEP)
