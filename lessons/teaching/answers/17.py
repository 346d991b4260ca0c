"""Answers to lessons/student/17.py: full marks."""

import math

import numpy as np


def factor_elements(shape, r):
    columns, rows = shape[-1], math.prod(shape[:-1])
    if r * (rows + columns) < rows * columns:
        return r * rows, r * columns
    return rows * columns, 0


def orthogonal(p):
    done = []
    for given in p.T:
        rest = given.astype(np.float64)
        for column in done:
            rest = rest - (column @ rest) * column
        length = np.linalg.norm(rest)
        small = length <= 2.0**-20 * np.linalg.norm(given)
        done.append(np.zeros_like(rest) if small else rest / length)
    return np.stack(done, axis=1)


def low_rank_sum(ms, q):
    p = orthogonal(sum(m @ q for m in ms))
    own = [m.T @ p for m in ms]
    new = sum(own)
    errors = [m - p @ mine.T for m, mine in zip(ms, own)]
    return p @ new.T, np.where((new == 0).all(axis=0), q, new), errors


def sent_bytes(what, k, p):
    each = {"floats": 4, "votes": 2, "signs": 1 / 8, "pairs": 8}[what]
    if what in ("floats", "votes"):
        return 2 * (p - 1) / p * each * k
    return (p - 1) * each * k


def majority(gradients):
    votes = np.sign(gradients).sum(axis=0)
    return np.sign(votes) * np.abs(gradients).mean(axis=1).sum()
