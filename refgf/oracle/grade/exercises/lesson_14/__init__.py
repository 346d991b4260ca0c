"""Lesson 14: shards, which level serves a sample, the time of an epoch, how much to cache."""

from refgf.oracle.grade.exercises.lesson_14.epoch_seconds import EPOCH
from refgf.oracle.grade.exercises.lesson_14.hits import HITS
from refgf.oracle.grade.exercises.lesson_14.shards import SHARDS
from refgf.oracle.grade.exercises.lesson_14.share_needed import SHARE

EXERCISES = (SHARDS, HITS, EPOCH, SHARE)
