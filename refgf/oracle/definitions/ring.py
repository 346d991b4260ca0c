"""R1 to R6 and D1 to D4: allreduce over p ranks, one flat array of n elements per rank.

    xs      list of p arrays (n,), all of one type; xs[r] is what rank r contributes
    result  list of p arrays (n,): what each rank holds afterwards

    p = 3: who adds what, in which order          ring                     direct
    slice 0                                  (x0 + x1) + x2           (x0 + x1) + x2
    slice 1                                  (x1 + x2) + x0           (x0 + x1) + x2
    slice 2                                  (x2 + x0) + x1           (x0 + x1) + x2
"""

from itertools import accumulate

import numpy as np

from refgf.oracle.definitions.numbers import on_wire


def slice_bounds(n, p):
    """R1: n elements in p slices, the first n mod p of them one longer. -> [(start, stop)] * p"""
    lengths = [n // p + (s < n % p) for s in range(p)]
    return [(stop - length, stop) for length, stop in zip(lengths, accumulate(lengths))]


def ring_allreduce(xs, wire=None):
    """R2: slice s is a left fold over the ranks s, s+1, ..., s+p-1 (mod p). -> p arrays with the same bits"""
    p, total = len(xs), np.empty_like(xs[0])
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), p)):
        total[i:j] = rounded_fold([xs[(s + k) % p][i:j] for k in range(p)], wire)
    return [total.copy() for _ in xs]


def rounded_fold(parts, wire=None):
    """R3: a partial sum is rounded to the wire type before each addition, and the finished sum once more.

    That last rounding is done by the owner on its own copy too (and for p = 1), or its bits would differ from those
    that it sends. Additions are in the type of the arrays; on float16 values this is float16 addition, bit for bit.
    """
    total = parts[0]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for part in parts[1:]:
            total = part + on_wire(total, wire)
    return on_wire(total, wire)


def agree(results):
    """R4: all ranks end with the same bits. Payloads of NaN do not count, the sign of zero does. -> bool"""
    return all(same_bits(result, results[0]) for result in results)


def same_bits(a, b):
    """Are these the same numbers, bit for bit, NaN equal to any NaN, +0 different from -0?"""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    return bool((((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))).all())


def ring_states(xs, wire=None):
    """R5: every rank's array after each of the 2(p-1) steps of the ring in place, and after the owner's rounding.

    Step t of the first p-1:  rank r sends slice r-t to rank r+1, receives slice r-t-1 from rank r-1 and adds it.
    Then rank r rounds slice r+1, which it has finished, to the wire type.
    Step t of the last p-1:   rank r sends slice r+1-t to rank r+1, receives slice r-t from rank r-1 and keeps it.
    All slice numbers mod p.  -> list of 2(p-1) + 1 lists of p arrays; number p-1 is the state after the rounding
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


def ring_traffic(n, p, rank):
    """R6: what one rank sends. -> (messages, elements); empty slices are sent too, nothing is sent when p = 1"""
    if p == 1:
        return 0, 0
    lengths = [stop - start for start, stop in slice_bounds(n, p)]
    return 2 * (p - 1), 2 * n - lengths[(rank + 1) % p] - lengths[(rank + 2) % p]


def direct_allreduce(xs, wire=None):
    """D1: every element is a left fold over the ranks 0, 1, ..., p-1. -> p arrays with the same bits"""
    total = direct_fold(xs, wire)
    return [total.copy() for _ in xs]


def direct_fold(parts, wire=None):
    """D2: each of the p inputs, the owner's own included, is rounded to the wire type once, and the finished sum once.

    The owner's own input is rounded although it does not travel: otherwise the bits would depend on who owns it.
    """
    total = on_wire(parts[0], wire)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for part in parts[1:]:
            total = total + on_wire(part, wire)
    return on_wire(total, wire)


def direct_in_pieces(xs, cuts, wire=None):
    """D3: bits do not depend on how the elements are cut into calls. cuts: increasing positions. -> p arrays

    Equal to direct_allreduce(xs, wire) for all cuts; that is the statement.
    """
    edges = [0, *cuts, len(xs[0])]
    pieces = [direct_allreduce([x[i:j] for x in xs], wire) for i, j in zip(edges, edges[1:])]
    return [np.concatenate(parts) for parts in zip(*pieces)]


def direct_traffic(n, p, rank):
    """D4: what one rank sends: every other's slice to its owner, then its own finished slice to every other.

    -> (messages, elements); empty slices are sent too, nothing is sent when p = 1
    """
    if p == 1:
        return 0, 0
    start, stop = slice_bounds(n, p)[rank]
    return 2 * (p - 1), n + (p - 2) * (stop - start)
