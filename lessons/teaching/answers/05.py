"""Answers to lessons/student/05.py: full marks."""

import numpy as np


def half(x):
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def half_sum(terms, every_hop):
    total = terms[0] if every_hop else half(terms[0])
    for term in terms[1:]:
        total = half(total) + term if every_hop else total + half(term)
    return half(total)


def next_scale(scale, good_steps, finite, interval):
    if not finite:
        return max(1.0, scale / 2), 0
    if good_steps + 1 == interval:
        return min(2.0**24, scale * 2), 0
    return scale, good_steps + 1


def update(master, total, scale, rate):
    if np.isfinite(total).all():
        gradient = total.astype(np.float32) / np.float32(scale)
        master = master - np.float32(rate) * gradient
    return master, master.astype(np.float16)


def in_blocks(x, block):
    received = np.zeros_like(x)
    for i in range(0, len(x), block):
        part = x[i : i + block].astype(np.float64)
        largest = abs(part).max()
        s = 2.0 ** np.ceil(np.log2(largest / 448)) if largest else 1.0
        y = part / s
        step = np.maximum(2.0 ** (np.frexp(y)[1] - 4), 2.0**-9)
        received[i : i + block] = np.rint(y / step) * step * s
    return received
