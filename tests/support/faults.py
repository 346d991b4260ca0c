"""Sums over ranks with one fault each, distilled from public reports on collective libraries.

An array per rank in, an array per rank out; no code of a report is in here.
"""

import numpy as np


def _sum(xs):
    with np.errstate(all="ignore"):
        total = xs[0].copy()
        for x in xs[1:]:
            total = total + x
    return total


def right(xs, wire=None):
    return [_sum(xs) for _ in xs]


def _clipped(total, xs):
    largest = np.finfo(total.dtype).max
    overflow = np.isinf(total) & ~np.any([np.isinf(x) for x in xs], axis=0)
    return np.where(overflow, np.copysign(largest, total), total).astype(total.dtype)


def saturates(xs, wire=None):
    return [_clipped(_sum(xs), xs) for _ in xs]


def nan_to_zero(xs, wire=None):
    return [np.nan_to_num(_sum(xs), nan=0.0, posinf=np.inf, neginf=-np.inf) for _ in xs]


def infinity_clipped(xs, wire=None):
    return [np.clip(_sum(xs), -3e38, 3e38).astype(xs[0].dtype) for _ in xs]


def denormals_flushed(xs, wire=None):
    total = _sum(xs)
    return [np.where(np.abs(total) < np.finfo(total.dtype).tiny, 0, total).astype(total.dtype)] * 4


def offset_wraps(xs, wire=None):
    total = _sum(xs)
    total[65536:] = xs[0][65536:]
    return [total.copy() for _ in xs]


def aliased(xs, wire=None):
    for x in xs[1:]:
        xs[0] += x
    return [xs[0].copy() for _ in xs]


def last_aliased(xs, wire=None):
    found = right(xs)
    xs[-1][:] = 0
    return found


def in_place(xs, wire=None):
    total = _sum(xs)
    for x in xs:
        x[:] = total
    return xs


def big_endian(xs, wire=None):
    return [x.astype(x.dtype.newbyteorder(">")) for x in right(xs)]


def generator(xs, wire=None):
    return (x for x in right(xs))


def two_types(xs, wire=None):
    first, *others = right(xs)
    return [first.astype(np.float64), *others[:-1], others[-1].astype(np.float16)]


def other_bounds(xs):
    """A ring whose slice s ends at floor(n (s + 1) / p)."""
    p, n, total = len(xs), len(xs[0]), np.empty_like(xs[0])
    for s in range(p):
        i, j = n * s // p, n * (s + 1) // p
        total[i:j] = _sum([xs[(s + k) % p][i:j] for k in range(p)])
    return [total.copy() for _ in xs]


def rare(xs, _calls=[0]):  # noqa: B006  memory of the calls before
    _calls[0] += 1
    return right(xs[::-1] if _calls[0] % 50 == 0 else xs)
