"""H1 to H8: sums in the orders of tree, doubling and hierarchies.

xs, wire and results are as in ring.py.

nodes   the ranks of each node, [[0, 1], [2, 3], ...], every rank once

p = 4, nodes [[0, 1], [2, 3]]
    tree, doubling          (x0 + x1) + (x2 + x3)
    two levels, slice 0     (x0 + x1) + (x2 + x3)
    two levels, slice 1     (x1 + x0) + (x3 + x2)
"""

import numpy as np

from refgf.oracle.spec.numbers import on_wire
from refgf.oracle.spec.ring import Arrays, ring_allreduce, slice_bounds
from refgf.oracle.spec.ring_steps import ring_traffic

Nodes = list[list[int]]


def tree_allreduce(xs: Arrays, wire: str | None = None) -> Arrays:
    """H1: at distance d = 1, 2, 4, ... rank r, a multiple of 2d, adds the sum of rank r + d.

    Rank 0 finishes the sum.
    """
    held, d = list(xs), 1
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        while d < len(xs):
            for r in range(0, len(xs) - d, 2 * d):
                held[r] = held[r] + on_wire(held[r + d], wire)
            d *= 2
    return [on_wire(held[0], wire) for _ in xs]


def doubling_allreduce(xs: Arrays, wire: str | None = None) -> Arrays:
    """H2: recursive doubling over q ranks, the largest power of two up to p.

    First, of p - q pairs of ranks (0, 1), (2, 3), ... one hands over and the other adds. Then
    partners whose numbers differ in bit 0, 1, 2, ... add each other's sums, both rounded. Recursive
    doubling and halving-doubling have the same bits.
    """
    q = 1 << (len(xs).bit_length() - 1)
    extras, held = len(xs) - q, []
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for pair in ((2 * i, 2 * i + 1) for i in range(extras)):
            adds, sends = sorted(pair, key=hands_over)
            held.append(xs[adds] + on_wire(xs[sends], wire))
        held += xs[2 * extras :]
        bit = 1
        while bit < q:
            held = [add_partner(held[i], held[i ^ bit], wire) for i in range(q)]
            bit *= 2
    total = [on_wire(x, wire) for x in held]
    return [total[r // 2 if r < 2 * extras else r - extras].copy() for r in range(len(xs))]


def hands_over(rank: int) -> bool:
    """Does this rank of a pair of H2 send its array, and take no part?

    The odd one does: chosen. In MPICH's code the even one does. The judge accepts that as the
    variant `mpich`.
    """
    return rank % 2 == 1


def add_partner(own: np.ndarray, other: np.ndarray, wire: str | None = None) -> np.ndarray:
    """H3: of two ranks that exchange sums each rounds its own too, or their bits would differ."""
    return on_wire(own, wire) + on_wire(other, wire)


def node_slices(xs: Arrays, wire: str | None = None) -> Arrays:
    """The sums of a node's slices: left folds as in R2, with R3's roundings except the last."""
    k, folds = len(xs), []
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for s, (i, j) in enumerate(slice_bounds(len(xs[0]), k)):
            total = xs[s][i:j]
            for t in range(1, k):
                total = xs[(s + t) % k][i:j] + on_wire(total, wire)
            folds.append(total)
    return folds


def three_phase_allreduce(xs: Arrays, nodes: Nodes, wire: str | None = None) -> Arrays:
    """H4: each node's slices are summed around its ring and sent to its first rank, the master.

    The master has summed slice 1 itself, so that slice is not rounded. Then follows the ring
    (R2, R3) over the masters, whose sum all ranks receive.
    """
    masters = []
    for node in nodes:
        folds, own = node_slices([xs[r] for r in node], wire), 1 % len(node)
        received = [fold if s == own else on_wire(fold, wire) for s, fold in enumerate(folds)]
        masters.append(np.concatenate(received))
    return [ring_allreduce(masters, wire)[0] for _ in xs]


def two_level_allreduce(xs: Arrays, nodes: Nodes, wire: str | None = None) -> Arrays:
    """H5: each node's slices are summed around its ring, then slice s of all nodes around another.

    Nodes have equally many ranks.
    """
    sums = [node_slices([xs[r] for r in node], wire) for node in nodes]
    total = np.concatenate([ring_allreduce(list(folds), wire)[0] for folds in zip(*sums)])
    return [total.copy() for _ in xs]


def hybrid_allreduce(xs: Arrays, nodes: Nodes, threshold: int, wire: str | None = None) -> Arrays:
    """H6: three phases for fewer than `threshold` elements, the flat ring from there on."""
    if len(xs[0]) < threshold:
        return three_phase_allreduce(xs, nodes, wire)
    return ring_allreduce(xs, wire)


def log_phases_allreduce(xs: Arrays, nodes: Nodes, wire: str | None = None) -> Arrays:
    """H8: each node's sum as in H1, rounded on its first rank; then H2, H3 over these masters."""
    masters = [tree_allreduce([xs[r] for r in node], wire)[0] for node in nodes]
    return [doubling_allreduce(masters, wire)[0] for _ in xs]


def schedule_traffic(algorithm: str, n: int, nodes: Nodes, rank: int) -> tuple[int, int]:
    """H7: (messages, elements) that a rank sends, empty messages too.

    algorithm: tree, recursive_doubling, halving_doubling, three_phase, two_level or log_phases.
    The first three depend only on p, the number of ranks on all nodes.
    """
    p = sum(map(len, nodes))
    if algorithm in ("three_phase", "two_level", "log_phases"):
        return hierarchy_traffic(algorithm, n, nodes, rank)
    if algorithm == "tree":
        below = [rank + 2**i for i in range(p) if rank % 2 ** (i + 1) == 0 and rank + 2**i < p]
        messages = len(below) + (rank > 0)
        return messages, messages * n
    q = 1 << (p.bit_length() - 1)
    extras, rounds = p - q, q.bit_length() - 1
    if rank < 2 * extras and hands_over(rank):
        return 1, n
    extra = rank < 2 * extras
    if algorithm == "recursive_doubling":
        return rounds + extra, (rounds + extra) * n
    number = rank // 2 if extra else rank - extras
    return 2 * rounds + extra, halving_elements(number, n, q) + extra * n


def halving_elements(number: int, n: int, q: int) -> int:
    """Elements that participant `number` of halving-doubling sends.

    In each round it sends one half away, and returns the other half in the second phase.
    """
    bounds = slice_bounds(n, q)
    first, last, sent = 0, q, 0
    for bit in range(q.bit_length() - 1):
        middle = (first + last) // 2
        sent += sum(j - i for i, j in bounds[first:last])  # both halves of what it holds
        first, last = (middle, last) if number >> bit & 1 else (first, middle)
    return sent


def hierarchy_traffic(algorithm: str, n: int, nodes: Nodes, rank: int) -> tuple[int, int]:
    """H7 for three_phase, two_level and log_phases."""
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
