"""Lesson 07: the calls of the whole stack, their sums, what each technique gains in which order."""

from refgf.oracle.grade.exercises.lesson_07.call_bytes import CALLS
from refgf.oracle.grade.exercises.lesson_07.exchange import EXCHANGE
from refgf.oracle.grade.exercises.lesson_07.gains import GAINS
from refgf.oracle.grade.exercises.lesson_07.traffic import TRAFFIC

EXERCISES = (TRAFFIC, CALLS, EXCHANGE, GAINS)
