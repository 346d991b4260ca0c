"""Lesson 12: how many elements, which ones, a threshold without sorting, a step, its bytes."""

from refgf.oracle.grade.exercises.lesson_12.keep_count import KEEP_COUNT
from refgf.oracle.grade.exercises.lesson_12.step_bytes import BYTES
from refgf.oracle.grade.exercises.lesson_12.threshold import THRESHOLD
from refgf.oracle.grade.exercises.lesson_12.top_k import TOP_K
from refgf.oracle.grade.exercises.lesson_12.topk_step import STEP

EXERCISES = (KEEP_COUNT, TOP_K, THRESHOLD, STEP, BYTES)
