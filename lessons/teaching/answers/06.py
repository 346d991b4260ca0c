"""Answers to lessons/student/06.py: full marks."""

import math

import numpy as np


def chunk_bounds(n, chunk):
    return [(start, min(start + chunk, n)) for start in range(0, n, chunk)]


def importance(waiting, chunk):
    values = []
    for start, stop in chunk_bounds(waiting[0].size, chunk):
        norm = sum(np.abs(x[start:stop].astype(np.float64)).sum() for x in waiting)
        values.append(norm / (stop - start))
    return np.array(values, np.float64)


def choose(values, percent):
    count = math.ceil(len(values) * percent / 100)
    return sorted(np.argsort(-values, kind="stable")[:count].tolist())


def csc_step(gradients, residuals, chosen, chunk):
    waiting = [residual + gradient for residual, gradient in zip(residuals, gradients)]
    sent = np.isin(np.arange(waiting[0].size) // chunk, chosen)
    packed = sum(mine[sent] for mine in waiting)
    for mine in waiting:
        mine[sent] = 0
    return packed, waiting
