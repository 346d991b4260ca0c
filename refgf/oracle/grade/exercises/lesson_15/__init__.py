"""Lesson 15: the roofline, the batch from which flops limit a layer, a step and its efficiency."""

from refgf.oracle.grade.exercises.lesson_15.fully_connected import LAYER
from refgf.oracle.grade.exercises.lesson_15.ridge_batch import BATCH
from refgf.oracle.grade.exercises.lesson_15.roofline import ROOFLINE
from refgf.oracle.grade.exercises.lesson_15.step import STEP

EXERCISES = (LAYER, ROOFLINE, BATCH, STEP)
