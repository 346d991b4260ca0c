"""T1 to T8: fine-grained sparsity. gs: per step the gradients of each rank, p arrays (n,)."""

from fractions import Fraction
from math import ceil

import numpy as np

from refgf.oracle.spec.hierarchy.nodes import Nodes, node_slices
from refgf.oracle.spec.ring import Arrays, slice_bounds
from refgf.oracle.spec.ring_steps import ring_traffic


def keep_count(n: int, percent: float) -> int:
    """T1: how many of n elements are sent: percent of them, rounded up, at least 1; none of 0."""
    return min(n, max(1, ceil(n * Fraction(str(percent)) / 100)))


def top_k(x: np.ndarray, k: int) -> np.ndarray:
    """T2: the k elements of largest magnitude, of equal ones the first. -> ascending indices"""
    return np.array(sorted(sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))[:k]), np.int64)


def mstopk(x: np.ndarray, k: int, start: float = 0.0, rounds: int = 30) -> np.ndarray:
    """T3: exactly k indices, nearly those of T2, by bisection over the magnitudes.

    The interval begins as mean .. maximum, with 0 for the mean if fewer than k elements reach it.
    Each round tests its midpoint. If more than k elements reach that threshold, the upper half
    remains. If at most k reach it, the lower half remains, and the largest such set so far is
    certain. The search ends after `rounds` rounds, or when k are certain. The missing elements are
    neighbours among those that reach the last threshold of more than k; `start` is where they
    begin, as a share of that list.
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


def sparsify(residual: np.ndarray, g: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """T4: the residual is added to the gradient, and the k largest sums are sent.

    sent + residual = accumulated, and one of the two is 0. -> (sent, new residual), (n,) each
    """
    accumulated = residual + g
    chosen = top_k(accumulated, k)
    sent = np.zeros_like(g)
    sent[chosen] = accumulated[chosen]
    accumulated[chosen] = 0
    return sent, accumulated


def topk_run(gs: list[Arrays], percent: float) -> list[dict]:
    """T5: each rank sends its k largest; all ranks add them up in rank order, from 0 on.

    -> per step {"x": the sum, "kept": the residual of each rank}, p arrays each
    """
    residuals, reports = [np.zeros_like(g) for g in gs[0]], []
    for step in gs:
        k = keep_count(len(step[0]), percent)
        pairs = [sparsify(residual, g, k) for residual, g in zip(residuals, step)]
        total = np.zeros_like(step[0])
        for sent, _ in pairs:
            total = total + sent
        residuals = [residual for _, residual in pairs]
        reports.append({"x": [total.copy() for _ in step], "kept": residuals})
    return reports


def hitopk_run(gs: list[Arrays], nodes: Nodes, percent: float) -> list[dict]:
    """T6: dense sums in the node, top-k between nodes. Reports as in T5.

    Each node sums around its ring (H4's folds). Its j-th of g ranks owns slice j + 1 (mod g) and
    sends the k largest of it, where k is that of the slice's length. All ranks receive the sums
    over nodes, in their order from 0 on. "kept" is zero outside the owner's slice.
    """
    n, g = len(gs[0][0]), len(nodes[0])
    bounds, reports = slice_bounds(n, g), []
    residuals = [np.zeros_like(x) for x in gs[0]]
    for step in gs:
        total = np.zeros_like(step[0])
        for node in nodes:
            folds = node_slices([step[r] for r in node])
            for j, rank in enumerate(node):
                own, residual = slice(*bounds[(j + 1) % g]), residuals[rank]
                k = keep_count(own.stop - own.start, percent)
                sent, residual[own] = sparsify(residual[own], folds[(j + 1) % g], k)
                total[own] = total[own] + sent
        kept = [residual.copy() for residual in residuals]
        reports.append({"x": [total.copy() for _ in step], "kept": kept})
    return reports


def topk_traffic(
    n: int,
    nodes: Nodes,
    percent: float,
    rank: int,
    hierarchical: bool = False,
    itemsize: int = 4,
) -> tuple[int, int]:
    """T7: (messages, bytes) that a rank sends in a step: values, and indices of 4 bytes.

    In nodes the values of the ring are added.
    """
    p, node = sum(map(len, nodes)), next(list(node) for node in nodes if rank in node)
    if not hierarchical:
        return 2 * (p - 1), (p - 1) * keep_count(n, percent) * (itemsize + 4)
    g, m, j = len(node), len(nodes), node.index(rank)
    start, stop = slice_bounds(n, g)[(j + 1) % g]
    messages, elements = ring_traffic(n, g, j)
    sparse_bytes = keep_count(stop - start, percent) * (itemsize + 4)
    return messages + 2 * (m - 1), itemsize * elements + (m - 1) * sparse_bytes


def hitopk_pairs_traffic(
    n: int, nodes: Nodes, percent: float, rank: int, itemsize: int = 4
) -> tuple[int, int]:
    """T8: (messages, bytes) that a rank sends if HiTopKComm ends with an allgather of pairs.

    g ranks on each of m nodes, where g divides n. After the gather between nodes a rank holds m k
    pairs of its slice. In the node a ring passes these on, values and indices apart, and each rank
    adds up all slices itself, in T6's order: the results are T6's.
    """
    g, m = len(nodes[0]), len(nodes)
    k = keep_count(n // g, percent)
    pairs = (m - 1) * k + (g - 1) * m * k
    messages = (g - 1) + 2 * (m - 1) + 2 * (g - 1)  # reduce-scatter, between nodes, in the node
    return messages, itemsize * (n - n // g) + pairs * (itemsize + 4)
