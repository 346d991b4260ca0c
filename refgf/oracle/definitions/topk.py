"""T1 to T7: fine-grained sparsity. gs: per step a list of p arrays (n,), the gradients of each rank."""

from fractions import Fraction
from math import ceil

import numpy as np

from refgf.oracle.definitions.hierarchy import node_slices
from refgf.oracle.definitions.ring import ring_traffic, slice_bounds


def keep_count(n, percent):
    """T1: of n elements travel percent of them, rounded up, at least 1; none of 0. -> int"""
    return min(n, max(1, ceil(n * Fraction(str(percent)) / 100)))


def top_k(x, k):
    """T2: the k elements that are largest in magnitude, of equal ones the first. -> ascending indices (k,)"""
    return np.array(sorted(sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))[:k]), np.int64)


def mstopk(x, k, start=0.0, rounds=30):
    """T3: exactly k indices, nearly those of T2, by bisection between mean and maximum of the magnitudes.

    Each round halves the interval at low + ratio (high - low) and counts who reaches it: at most k, the interval's upper
    half is left out, and the largest such set so far is certain; more than k, its lower half is. It ends when k are found.
    What is missing are neighbours among those that reach the last threshold of more than k, from `start` of the way on.
    Where fewer than k reach the mean, 0 takes its place.
    """
    size = np.abs(x)
    if k == 0:
        return np.arange(0)
    low, high = float(size.mean(dtype=np.float64)), float(size.max())
    low = low if np.sum(size >= low) >= k else 0.0
    left, right, certain, possible = 0.0, 1.0, np.zeros(len(x), bool), np.ones(len(x), bool)
    for _ in range(rounds):
        ratio = left + (right - left) / 2
        reach = size >= low + ratio * (high - low)
        if reach.sum() > k:
            left, possible = ratio, reach
        else:
            right = ratio
            certain = reach if reach.sum() > certain.sum() else certain
        if certain.sum() == k:
            break
    between, missing = np.flatnonzero(possible & ~certain), k - int(certain.sum())
    first = int(start * (len(between) - missing + 1))
    return np.sort(np.concatenate([np.flatnonzero(certain), between[first : first + missing]]))


def chosen_and_kept(kept, g, k):
    """T4: what was kept is added to the gradient, the k largest of that are sent, the rest is kept: sent + kept =
    accumulated, and one of the two is 0. -> (sent, kept), (n,) each"""
    accumulated = kept + g
    chosen = top_k(accumulated, k)
    sent = np.zeros_like(g)
    sent[chosen] = accumulated[chosen]
    accumulated[chosen] = 0
    return sent, accumulated


def topk_run(gs, percent):
    """T5: each rank sends its k largest; everybody adds them up in rank order, from 0 on. -> per step {"x", "kept"}, p arrays
    each: the sum, and what each rank has kept"""
    kept, reports = [np.zeros_like(g) for g in gs[0]], []
    for step in gs:
        pairs = [chosen_and_kept(h, g, keep_count(len(g), percent)) for h, g in zip(kept, step)]
        total = np.zeros_like(step[0])
        for sent, _ in pairs:
            total = total + sent
        kept = [h for _, h in pairs]
        reports.append({"x": [total.copy() for _ in step], "kept": kept})
    return reports


def hitopk_run(gs, nodes, percent):
    """T6: each node sums densely around its ring (H4's folds); the rank at place j owns slice j + 1 (mod g) and sends the k
    largest of it, k of the slice's length; the sums over nodes, in their order from 0 on, go to everybody. Reports as in T5,
    "kept" with zeros outside the owner's slice."""
    n, g = len(gs[0][0]), len(nodes[0])
    bounds, reports = slice_bounds(n, g), []
    kept = [np.zeros_like(x) for x in gs[0]]
    for step in gs:
        total = np.zeros_like(step[0])
        for node in nodes:
            folds = node_slices([step[r] for r in node])
            for j, rank in enumerate(node):
                own = slice(*bounds[(j + 1) % g])
                k = keep_count(own.stop - own.start, percent)
                sent, kept[rank][own] = chosen_and_kept(kept[rank][own], folds[(j + 1) % g], k)
                total[own] = total[own] + sent
        reports.append({"x": [total.copy() for _ in step], "kept": [h.copy() for h in kept]})
    return reports


def topk_traffic(n, nodes, percent, rank, hierarchical=False, itemsize=4):
    """T7: (messages, bytes) that a rank sends in a step: values, and indices of 4 bytes; in nodes the values of the ring."""
    p, node = sum(map(len, nodes)), next(list(node) for node in nodes if rank in node)
    if not hierarchical:
        return 2 * (p - 1), (p - 1) * keep_count(n, percent) * (itemsize + 4)
    g, m, j = len(node), len(nodes), node.index(rank)
    start, stop = slice_bounds(n, g)[(j + 1) % g]
    messages, elements = ring_traffic(n, g, j)
    return messages + 2 * (m - 1), itemsize * elements + (m - 1) * keep_count(stop - start, percent) * (itemsize + 4)
