"""Lesson 10: the ranks of each node, three phases, two levels, what crosses the slow links.

Numbers are whole: every order of summation gives the same bits.
"""

from refgf.oracle.grade.exercises.lesson_10.nodes_of import NODES_OF
from refgf.oracle.grade.exercises.lesson_10.slow_links import SLOW_LINKS
from refgf.oracle.grade.exercises.lesson_10.three_phases import THREE_PHASES
from refgf.oracle.grade.exercises.lesson_10.two_levels import TWO_LEVELS

EXERCISES = (NODES_OF, THREE_PHASES, TWO_LEVELS, SLOW_LINKS)
