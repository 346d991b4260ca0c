"""Lesson 06: chunks of the pool, their importance, the choice, what is sent and what stays."""

from refgf.oracle.grade.exercises.lesson_06.choose import CHOOSE
from refgf.oracle.grade.exercises.lesson_06.chunk_bounds import BOUNDS
from refgf.oracle.grade.exercises.lesson_06.csc_step import STEP
from refgf.oracle.grade.exercises.lesson_06.importance import IMPORTANCE

ALLOWED = ()
EXERCISES = (BOUNDS, IMPORTANCE, CHOOSE, STEP)
