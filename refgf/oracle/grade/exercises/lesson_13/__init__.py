"""Lesson 13: means in a node, when DASO sums over nodes, the merge of a late sum, an epoch."""

from refgf.oracle.grade.exercises.lesson_13.epoch import EPOCH
from refgf.oracle.grade.exercises.lesson_13.global_sums import GLOBAL_SUMS
from refgf.oracle.grade.exercises.lesson_13.merge import MERGE
from refgf.oracle.grade.exercises.lesson_13.node_means import NODE_MEANS

EXERCISES = (NODE_MEANS, GLOBAL_SUMS, MERGE, EPOCH)
