"""Lesson 09: all groupings, the end of a step, the greedy rule of MG-WFBP, the best grouping."""

from refgf.oracle.grade.exercises.lesson_09.best_end import BEST
from refgf.oracle.grade.exercises.lesson_09.greedy_counts import GREEDY
from refgf.oracle.grade.exercises.lesson_09.groupings import GROUPINGS
from refgf.oracle.grade.exercises.lesson_09.step_end import STEP_END

EXERCISES = (GROUPINGS, STEP_END, GREEDY, BEST)
