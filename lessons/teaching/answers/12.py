"""Answers to lessons/student/12.py: full marks."""

from fractions import Fraction
from math import ceil

import numpy as np


def keep_count(n, percent):
    return min(n, max(1, ceil(n * Fraction(str(percent)) / 100)))


def top_k(x, k):
    return np.sort(np.argsort(-np.abs(x), kind="stable")[:k])


def threshold(x, k, rounds):
    magnitude = np.abs(x)
    low, high, tested = 0.0, magnitude.max(), magnitude.mean()
    for _ in range(rounds):
        if np.count_nonzero(magnitude >= tested) > k:
            low = tested
        else:
            high = tested
        tested = (low + high) / 2
    return low, high


def topk_step(gradients, residuals, k):
    waiting = [residual + gradient for residual, gradient in zip(residuals, gradients)]
    total = np.zeros_like(waiting[0])
    for mine in waiting:
        chosen = top_k(mine, k)
        total[chosen] += mine[chosen]
        mine[chosen] = 0
    return total, waiting


def step_bytes(n, percent, p, value_bytes):
    dense = 2 * (p - 1) / p * n * value_bytes
    return dense, (p - 1) * keep_count(n, percent) * (value_bytes + 4)
