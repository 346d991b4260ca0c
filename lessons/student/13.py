"""Exercises of lesson 13, DASO. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 13 lessons/student/13.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/13_daso.py --mine lessons/student/13.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/13.py

m nodes have k ranks each. global_skip is B: a sum over the nodes is sent every B batches. wait is
W: it is received W batches later, W <= B.
"""

import numpy as np


# Exercise 1 (given)
def node_means(gradients: np.ndarray, k: int) -> np.ndarray:
    """The mean of the gradients of each node's ranks. (m k, n) -> (m, n)

    Node i has the ranks i k, i k + 1, ... , i k + k - 1.

    node_means([[1, 2], [3, 4], [5, 6], [9, 8]], 2) -> [[2, 3], [7, 7]]
    """
    p, n = gradients.shape
    return gradients.reshape(p // k, k, n).mean(axis=1)


# Exercise 2 (easy, 15 minutes)
def global_sums(batches: int, global_skip: int, wait: int) -> list[tuple[int, int]]:
    """[(batch when sent, batch when received), ...]: all sums over nodes in an epoch, in order.

    A sum is sent in the batches 0, B, 2B, ... and in the last batch of the epoch. It is received W
    batches later, but in the last batch at the latest. So the sum that is sent in the last batch is
    received at once: all nodes wait for it.

    global_sums(7, 4, 1) -> [(0, 1), (4, 5), (6, 6)]
    global_sums(6, 4, 3) -> [(0, 3), (4, 5), (5, 5)]

    Hint: is your list right if the last batch is a multiple of B?
    """
    raise NotImplementedError


# Exercise 3 (easy, 10 minutes)
def merge(w: np.ndarray, total: np.ndarray, nodes: int, waited: int) -> np.ndarray:
    """A node's parameters after it has received a sum. float32 (n,) -> float32 (n,)

    w: its parameters now. total: the sum of the parameters of all nodes (this one too), which was
    sent `waited` batches ago. The result is a weighted mean: w has the weight 2 waited, and each of
    the nodes' old parameters has the weight 1. For waited = 0 that is the mean over the nodes.

    merge([4], [6], 2, 1) -> [3.5]          merge([4], [6], 2, 0) -> [3]

    Hint: a weighted mean is divided by the sum of all weights.
    """
    raise NotImplementedError


# Exercise 4 (medium, 45 minutes)
def epoch(
    w: np.ndarray, gradients: np.ndarray, global_skip: int, wait: int, rate: float
) -> np.ndarray:
    """The parameters of every node after every batch of an epoch. -> (batches, m, n)

    w: (n,), all nodes' parameters before the first batch. gradients: (batches, m, n), averaged in
    each node already (exercise 1).

    Each batch has these steps:
    1. Each node: parameters minus rate times its own gradients.
    2. If a sum is sent in this batch (exercise 2): it is the sum of the nodes' parameters now.
    3. If a sum is received in this batch: each node merges it (exercise 3).
    The sum of the last batch replaces one that is still in flight: that one is never merged.
    With one node there is nothing to sum, and nothing is merged.

    epoch([0], [[[2], [-2]], [[-2], [-2]], [[0], [-8]]], 4, 1, 0.5)
        -> [[[-1], [1]], [[0], [1]], [[2.5], [2.5]]]

    The sum of batch 0 is -1 + 1 = 0. In batch 1 the nodes have moved to 0 and 2, and merge it:
    (2 * 0 + 0) / 4 = 0 and (2 * 2 + 0) / 4 = 1. Batch 2 is the last: the mean of 0 and 5.

    Hint: a dict {batch of receipt: (sum, batches since it was sent)} holds what is in flight.
    """
    raise NotImplementedError


# Exercise 5 (easy, 15 minutes)
def outer_step(
    start: np.ndarray, v: np.ndarray, ws: np.ndarray, rate: float, momentum: float
) -> tuple[np.ndarray, np.ndarray]:
    """(start, v) after an outer step of DiLoCo. float64 (n,) each

    start: the parameters of all nodes after the last outer step. v: the outer velocity.
    ws: (m, n), those of each node now, H steps of its own later.

    d is the mean over the nodes of start - w. It points where a gradient would.
    The velocity becomes momentum * v + d.
    Nesterov's step: start - rate * (d + momentum * v), with the new v.

    outer_step([1, 1], [0, 0], [[0, 2], [0, 0]], 1.0, 0.0) -> ([0, 1], [1, 0])
    outer_step([1], [2], [[0]], 0.5, 0.5) -> ([0], [2])

    Rate 1 without momentum is the mean of the nodes: local SGD.

    Hint: compute the new v before the new start.
    """
    raise NotImplementedError
