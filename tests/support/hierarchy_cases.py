"""Splits of p ranks into nodes; the sum of each form in its order, and its stated costs."""

import itertools

import numpy as np

from refgf.comm.slices import length, slices
from refgf.oracle.definitions import doubling_allreduce, ring_allreduce
from refgf.papers.jia.doubling import recursive_doubling
from refgf.papers.jia.hierarchical import log_phases, three_phase, two_level_ring
from tests.support.comm_cases import rounded


def splits(p):
    """Every way to cut ranks 0..p-1 into nodes of neighbours: 2**(p-1) of them."""
    for cuts in itertools.product([False, True], repeat=p - 1):
        bounds = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), p]
        yield [list(range(a, b)) for a, b in zip(bounds, bounds[1:])]


def shuffled(nodes):
    """The same sizes, but any ranks in any order, as a launcher may deal them out."""
    ranks = iter(np.random.default_rng(len(nodes)).permutation(sum(map(len, nodes))).tolist())
    return [[next(ranks) for _ in node] for node in nodes]


def equal(nodes):
    return len({len(node) for node in nodes}) == 1


def ring_folds(xs, wire):
    """[sum of slice s] over these ranks in ring order s, s+1, ..., before it is sent."""
    k, folds = len(xs), []
    for s, part in enumerate(slices(xs[0].size, len(xs))):
        total = xs[s][part]
        for i in range(1, k):
            total = xs[(s + i) % k][part] + rounded(total, wire)
        folds.append(total)
    return folds


def three_phase_sum(xs, nodes, wire):
    """Each node's slices come to its master, which owns slice 1; then a ring over the masters."""
    sums = [ring_folds([xs[r] for r in node], wire) for node in nodes]
    at_master = [
        [f if s == 1 % len(fs) else rounded(f, wire) for s, f in enumerate(fs)] for fs in sums
    ]
    return ring_allreduce([np.concatenate(parts) for parts in at_master], wire)[0]


def two_level_sum(xs, nodes, wire):
    """For each slice of a node, the ring over the nodes."""
    sums = [ring_folds([xs[r] for r in node], wire) for node in nodes]
    return np.concatenate([ring_allreduce(list(parts), wire)[0] for parts in zip(*sums)])


def log_phases_sum(xs, nodes, wire):
    """Pairs, pairs of pairs, ... of a node, rounded by its master; then the masters by doubling."""
    masters = [rounded(paired([xs[r] for r in node], wire), wire) for node in nodes]
    return doubling_allreduce(masters, wire)[0]


def paired(xs, wire):
    """A binomial tree: the left of two neighbours adds the right one's rounded sum."""
    if len(xs) == 1:
        return xs[0]
    pairs = [xs[i : i + 2] for i in range(0, len(xs), 2)]
    return paired(
        [pair[0] + rounded(pair[1], wire) if len(pair) == 2 else pair[0] for pair in pairs], wire
    )


CASES = {
    "three phases": (three_phase, three_phase_sum),
    "log phases": (log_phases, log_phases_sum),
    "doubling phases": (lambda nodes: log_phases(nodes, recursive_doubling), log_phases_sum),
    "two-level ring": (two_level_ring, two_level_sum),
}


def ring_elements(n, p, r):
    """What rank r sends in a flat ring over p ranks."""
    parts = slices(n, p)
    return 2 * n - length(parts[(r + 1) % p]) - length(parts[(r + 2) % p]) if p > 1 else 0


def three_phase_cost(nodes, i, j, n):
    k, m = len(nodes[i]), len(nodes)
    s = [length(part) for part in slices(n, k)]
    if j > 0:
        return 2 * k - 1, 2 * n - s[j]
    inside = 3 * n - 2 * s[1] - s[0] if k > 1 else 0
    return 3 * (k - 1) + 2 * (m - 1), inside + ring_elements(n, m, i)


def two_level_cost(nodes, i, j, n):
    k, m = len(nodes[i]), len(nodes)
    own = length(slices(n, k)[(j + 1) % k])
    return 2 * (k - 1) + 2 * (m - 1), ring_elements(n, k, j) + ring_elements(own, m, i)


def log_phases_cost(nodes, i, j, n):
    """1 + c_j messages of all elements; a master's c_0, and the cost of halving-doubling."""
    k, m = len(nodes[i]), len(nodes)
    lowest = j & -j if j else k
    children = sum(1 << d < lowest and j + (1 << d) < k for d in range(k))
    if j > 0:
        return 1 + children, (1 + children) * n
    assert children == (k - 1).bit_length()
    rounds = m.bit_length() - 1
    extras = m - 2**rounds
    if i < 2 * extras and i % 2:
        return children + 1, (children + 1) * n
    more = i < 2 * extras
    halved = halving_elements(i // 2 if more else i - extras, 2**rounds, n)
    return children + more + 2 * rounds, (children + more) * n + halved


def doubling_phases_cost(nodes, i, j, n):
    """Every message has all elements: a master sends c_0, then R, or one more for an extra rank."""
    if j > 0:
        return log_phases_cost(nodes, i, j, n)
    m, children = len(nodes), (len(nodes[i]) - 1).bit_length()
    rounds = m.bit_length() - 1
    two = i < 2 * (m - 2**rounds)
    messages = children + (1 if two and i % 2 else rounds + two)
    return messages, messages * n


def halving_elements(number, q, n):
    """n - |B_R| + |B_1| + ... + |B_R|, B_t what a participant holds after round t."""
    bounds, first, last, held = [part.start for part in slices(n, q)] + [n], 0, q, [n]
    for bit in range(q.bit_length() - 1):
        middle = (first + last) // 2
        first, last = (middle, last) if number >> bit & 1 else (first, middle)
        held.append(bounds[last] - bounds[first])
    return n - held[-1] + sum(held[1:])


COSTS = {
    "three phases": three_phase_cost,
    "log phases": log_phases_cost,
    "doubling phases": doubling_phases_cost,
    "two-level ring": two_level_cost,
}
FORMS = [(CASES[name][0], cost) for name, cost in COSTS.items()]
