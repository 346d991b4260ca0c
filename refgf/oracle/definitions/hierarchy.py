"""H1 to H8: sums in the orders of tree, doubling and hierarchies; xs, wire and results as in ring.py.

    nodes   which ranks share a node, [[0, 1], [2, 3], ...], every rank once

    p = 4, nodes [[0, 1], [2, 3]]       tree, doubling                     two levels, slice 0
    every element                       (x0 + x1) + (x2 + x3)              (x0 + x1) + (x2 + x3)
                                                                           slice 1: (x1 + x0) + (x3 + x2)
"""

import numpy as np

from refgf.oracle.definitions.numbers import on_wire
from refgf.oracle.definitions.ring import ring_allreduce, ring_traffic, slice_bounds


def tree_allreduce(xs, wire=None):
    """H1: at distance d = 1, 2, 4, ... rank r, a multiple of 2d, adds what rank r + d holds; rank 0 finishes the sum."""
    held, d = list(xs), 1
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        while d < len(xs):
            for r in range(0, len(xs) - d, 2 * d):
                held[r] = held[r] + on_wire(held[r + d], wire)
            d *= 2
    return [on_wire(held[0], wire) for _ in xs]


def doubling_allreduce(xs, wire=None):
    """H2: p - q ranks too many, q the largest power of two up to p, add up in pairs (0, 1), (2, 3), ...; then partners whose
    numbers differ in bit 0, 1, 2, ... add each other's sums, both rounded. Recursive doubling and halving-doubling alike."""
    q = 1 << (len(xs).bit_length() - 1)
    extras = len(xs) - q
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        held = [xs[2 * i] + on_wire(xs[2 * i + 1], wire) for i in range(extras)] + list(xs[2 * extras :])
        bit = 1
        while bit < q:
            held = [exchanged(held[i], held[i ^ bit], wire) for i in range(q)]
            bit *= 2
    total = [on_wire(x, wire) for x in held]
    return [total[r // 2 if r < 2 * extras else r - extras].copy() for r in range(len(xs))]


def exchanged(own, other, wire=None):
    """H3: where two ranks exchange their sums, each rounds its own too, or the two would hold different bits."""
    return on_wire(own, wire) + on_wire(other, wire)


def node_slices(xs, wire=None):
    """The sums of a node's slices: left folds as in R2, with R3's roundings but for the last. -> [array] * k"""
    k, folds = len(xs), []
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for s, (i, j) in enumerate(slice_bounds(len(xs[0]), k)):
            total = xs[s][i:j]
            for t in range(1, k):
                total = xs[(s + t) % k][i:j] + on_wire(total, wire)
            folds.append(total)
    return folds


def three_phase_allreduce(xs, nodes, wire=None):
    """H4: each node's slices are summed around its ring and travel to its first rank, which has summed slice 1 itself; then
    the ring (R2, R3) over these masters, whose sum everybody gets."""
    masters = []
    for node in nodes:
        folds = node_slices([xs[r] for r in node], wire)
        own = 1 % len(node)
        masters.append(np.concatenate([fold if s == own else on_wire(fold, wire) for s, fold in enumerate(folds)]))
    return [ring_allreduce(masters, wire)[0] for _ in xs]


def two_level_allreduce(xs, nodes, wire=None):
    """H5: each node's slices are summed around its ring; slice s of all nodes, equally many ranks each, around another."""
    sums = [node_slices([xs[r] for r in node], wire) for node in nodes]
    total = np.concatenate([ring_allreduce(list(parts), wire)[0] for parts in zip(*sums)])
    return [total.copy() for _ in xs]


def hybrid_allreduce(xs, nodes, threshold, wire=None):
    """H6: fewer than `threshold` elements in three phases, the others by the flat ring."""
    return three_phase_allreduce(xs, nodes, wire) if len(xs[0]) < threshold else ring_allreduce(xs, wire)


def log_phases_allreduce(xs, nodes, wire=None):
    """H8: each node's sum as in H1, rounded on its first rank; then H2, H3 over these masters, whose sum everybody gets."""
    masters = [tree_allreduce([xs[r] for r in node], wire)[0] for node in nodes]
    return [doubling_allreduce(masters, wire)[0] for _ in xs]


def schedule_traffic(algorithm, n, nodes, rank):
    """H7: (messages, elements) that a rank sends, empty ones too; algorithm: tree, recursive_doubling, halving_doubling,
    three_phase, two_level or log_phases. For the first three only p, the number of ranks on all nodes, counts."""
    p = sum(map(len, nodes))
    if algorithm in ("three_phase", "two_level", "log_phases"):
        return hierarchy_traffic(algorithm, n, nodes, rank)
    if algorithm == "tree":
        below = [rank + 2**i for i in range(p) if rank % 2 ** (i + 1) == 0 and rank + 2**i < p]
        messages = len(below) + (rank > 0)
        return messages, messages * n
    q = 1 << (p.bit_length() - 1)
    extras, rounds = p - q, q.bit_length() - 1
    if rank < 2 * extras and rank % 2:
        return 1, n
    extra = rank < 2 * extras
    if algorithm == "recursive_doubling":
        return rounds + extra, (rounds + extra) * n
    number = rank // 2 if extra else rank - extras
    return 2 * rounds + extra, halved(number, n, q) + extra * n


def halved(number, n, q):
    """Elements that participant `number` of halving-doubling sends: in each round one half there, the other half back."""
    bounds = slice_bounds(n, q)
    first, last, sent = 0, q, 0
    for bit in range(q.bit_length() - 1):
        middle = (first + last) // 2
        sent += sum(j - i for i, j in bounds[first:last])  # it gives one half away now and the other one on the way back
        first, last = (middle, last) if number >> bit & 1 else (first, middle)
    return sent


def hierarchy_traffic(algorithm, n, nodes, rank):
    i, node = next((i, list(node)) for i, node in enumerate(nodes) if rank in node)
    j, k, m = node.index(rank), len(node), len(nodes)
    s = [stop - start for start, stop in slice_bounds(n, k)]
    if algorithm == "two_level":
        inside, between = ring_traffic(n, k, j), ring_traffic(s[(j + 1) % k], m, i)
        return inside[0] + between[0], inside[1] + between[1]
    if algorithm == "log_phases":
        inside = schedule_traffic("tree", n, [node], j)
        between = (0, 0) if j else schedule_traffic("halving_doubling", n, [range(m)], i)
        return inside[0] + between[0], inside[1] + between[1]
    if j:
        return 2 * k - 1, 2 * n - s[j]
    messages, elements = ring_traffic(n, m, i)
    return messages + 3 * (k - 1), elements + (3 * n - 2 * s[1] - s[0] if k > 1 else 0)
