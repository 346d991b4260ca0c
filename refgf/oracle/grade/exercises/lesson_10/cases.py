"""What the exercises of this lesson share."""

import numpy as np


def vectors(random, p, n):
    """Whole numbers, all different from 0. -> p float32 arrays (n,)"""
    return [random.integers(1, 100, n).astype(np.float32) for _ in range(p)]


def consecutive(m, k):
    """m nodes of k neighbouring ranks."""
    return [list(range(i * k, i * k + k)) for i in range(m)]


def round_robin(m, k):
    return [list(range(i, m * k, m)) for i in range(m)]


def with_nodes(*shapes):
    """Cases (xs, nodes), from (nodes, n) each."""
    return lambda random: [
        (vectors(random, sum(map(len, nodes)), n), nodes)
        for nodes, n in [*shapes, (shapes[0][0], shapes[0][1] * int(random.integers(1, 5)))]
    ]
