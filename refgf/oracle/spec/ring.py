"""R1 to R6 and D1 to D4: allreduce over p ranks, one flat array of n elements per rank.

xs      list of p arrays (n,), all of one type; xs[r] is the contribution of rank r
result  list of p arrays (n,): what each rank holds afterwards

Order of summation for p = 3        ring                     direct
slice 0                             (x0 + x1) + x2           (x0 + x1) + x2
slice 1                             (x1 + x2) + x0           (x0 + x1) + x2
slice 2                             (x2 + x0) + x1           (x0 + x1) + x2
"""

from itertools import accumulate

import numpy as np

from refgf.oracle.spec.calls import same_bits
from refgf.oracle.spec.numbers import on_wire

Arrays = list[np.ndarray]  # one per rank


def slice_bounds(n: int, p: int) -> list[tuple[int, int]]:
    """R1: n elements in p slices; the first n mod p have one more. -> [(start, stop)] * p"""
    lengths = [n // p + (s < n % p) for s in range(p)]
    return [(stop - length, stop) for length, stop in zip(lengths, accumulate(lengths))]


def ring_allreduce(xs: Arrays, wire: str | None = None) -> Arrays:
    """R2: slice s is a left fold over the ranks s, s+1, ..., s+p-1 (mod p).

    -> p arrays with the same bits
    """
    p, total = len(xs), np.empty_like(xs[0])
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), p)):
        total[i:j] = rounded_fold([xs[(s + k) % p][i:j] for k in range(p)], wire)
    return [total.copy() for _ in xs]


def rounded_fold(terms: Arrays, wire: str | None = None) -> np.ndarray:
    """R3: a partial sum is rounded to the wire type before each addition, the result once more.

    The owner rounds its own copy too (and for p = 1); otherwise its bits would differ from those
    that it sends. Additions are in the type of the arrays. On float16 values this is float16
    addition, bit for bit.
    """
    total = terms[0]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for term in terms[1:]:
            total = term + on_wire(total, wire)
    return on_wire(total, wire)


def agree(results: Arrays) -> bool:
    """R4: all ranks end with the same bits. NaN payloads do not count, the sign of zero does."""
    return all(same_bits(result, results[0]) for result in results)


def ring_states(xs: Arrays, wire: str | None = None) -> list[Arrays]:
    """R5: every rank's array after each of the 2(p-1) ring steps, and after the owner's rounding.

    All slice numbers are mod p.
      step t of the first p-1   rank r sends slice r-t to rank r+1, receives slice r-t-1, adds it
      between                   rank r rounds slice r+1, which it has finished, to the wire type
      step t of the last p-1    rank r sends slice r+1-t to rank r+1, receives slice r-t, copies it

    -> list of 2(p-1) + 1 lists of p arrays; number p-1 is the state after the rounding
    """
    p, bounds = len(xs), slice_bounds(len(xs[0]), len(xs))
    held, states = [x.copy() for x in xs], []
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for t in range(p - 1):
            sent = [on_wire(held[r][slice(*bounds[(r - t) % p])], wire) for r in range(p)]
            for r in range(p):
                held[r][slice(*bounds[(r - t - 1) % p])] += sent[(r - 1) % p]
            states.append([x.copy() for x in held])
    for r in range(p):
        own = slice(*bounds[(r + 1) % p])
        held[r][own] = on_wire(held[r][own], wire)
    states.append([x.copy() for x in held])
    for t in range(p - 1):
        sent = [held[r][slice(*bounds[(r + 1 - t) % p])].copy() for r in range(p)]
        for r in range(p):
            held[r][slice(*bounds[(r - t) % p])] = sent[(r - 1) % p]
        states.append([x.copy() for x in held])
    return states


def ring_traffic(n: int, p: int, rank: int) -> tuple[int, int]:
    """R6: what one rank sends. -> (messages, elements)

    Empty slices are sent too. Nothing is sent for p = 1.
    """
    if p == 1:
        return 0, 0
    lengths = [stop - start for start, stop in slice_bounds(n, p)]
    return 2 * (p - 1), 2 * n - lengths[(rank + 1) % p] - lengths[(rank + 2) % p]


def direct_allreduce(xs: Arrays, wire: str | None = None) -> Arrays:
    """D1: every element is a left fold over the ranks 0, 1, ..., p-1. -> p arrays, the same bits"""
    total = direct_fold(xs, wire)
    return [total.copy() for _ in xs]


def direct_fold(terms: Arrays, wire: str | None = None) -> np.ndarray:
    """D2: each of the p inputs is rounded to the wire type once, and the finished sum once.

    The owner's own input is rounded although it is not sent; otherwise the bits would depend on
    which rank owns an element.
    """
    total = on_wire(terms[0], wire)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for term in terms[1:]:
            total = total + on_wire(term, wire)
    return on_wire(total, wire)


def direct_in_calls(xs: Arrays, cuts: list[int], wire: str | None = None) -> Arrays:
    """D3: bits do not depend on how the elements are divided into calls.

    cuts: increasing positions. The statement is that this equals direct_allreduce(xs, wire) for
    all cuts. -> p arrays
    """
    edges = [0, *cuts, len(xs[0])]
    calls = [direct_allreduce([x[i:j] for x in xs], wire) for i, j in zip(edges, edges[1:])]
    return [np.concatenate(sums) for sums in zip(*calls)]


def direct_traffic(n: int, p: int, rank: int) -> tuple[int, int]:
    """D4: a rank sends each other rank's slice to its owner, then its finished slice to all others.

    Empty slices are sent too. Nothing is sent for p = 1. -> (messages, elements)
    """
    if p == 1:
        return 0, 0
    start, stop = slice_bounds(n, p)[rank]
    return 2 * (p - 1), n + (p - 2) * (stop - start)
