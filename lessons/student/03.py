"""Exercises of lesson 03, lazy allreduce. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 03 lessons/student/03.py

NumPy is all you need. The marks do not know this file's other functions, so add as many as you
like. Exercise 1 is done, as an example.

The gradients are float32 (4 bytes each). They lie in one pool, in the order in which backward makes
them. A call is (start, stop): one allreduce that sums the elements start .. stop-1 of the pool.
"""

import numpy as np


# Exercise 1 (given)
def pool_slices(sizes: list[int]) -> list[tuple[int, int]]:
    """[(start, stop), ...]: where each gradient lies. sizes: their elements, in backward's order.

    pool_slices([4, 2, 3]) -> [(0, 4), (4, 6), (6, 9)]
    """
    slices, start = [], 0
    for size in sizes:
        slices.append((start, start + size))
        start += size
    return slices


# Exercise 2 (medium, 20 minutes)
def lazy_calls(sizes: list[int], theta: float) -> list[tuple[int, int]]:
    """[(start, stop), ...]: the calls of one step of lazy allreduce, in elements of the pool.

    A gradient that is ready waits. As soon as more than theta bytes wait, one call sums all that
    wait. After the last gradient one more call sums the rest, if anything waits.

    lazy_calls([1, 2, 2, 8, 1, 1], 16) -> [(0, 5), (5, 13), (13, 15)]
    lazy_calls([2, 3], 0) -> [(0, 2), (2, 5)]      lazy_calls([2, 3], math.inf) -> [(0, 5)]

    Hint: in the first example 4, 12, 20 bytes wait, then 32, then 4, 8.
    """
    raise NotImplementedError


# Exercise 3 (medium, 25 minutes)
def sum_calls(
    gradients: list[list[np.ndarray]], calls: list[tuple[int, int]], rank: int
) -> list[np.ndarray]:
    """The gradients that this rank holds after the calls, in their own shapes and type.

    gradients[r][i]: gradient i of rank r, float32, of any shape, the same shape on all ranks. Each
    call sums one slice of the pool over all ranks. A gradient that no call sums stays the rank's
    own. Calls start and stop between two gradients, never within one.

    rank 0: [1, 2], [[3, 4]]     rank 1: [10, 20], [[30, 40]]     sum_calls(gradients, calls, 1):
        calls [(0, 4)] -> [11, 22], [[33, 44]]     calls [(0, 2)] -> [11, 22], [[30, 40]]

    Hint: np.concatenate lays flat arrays (g.ravel()) into one pool; g.size and g.shape help to take
    them out again.
    """
    raise NotImplementedError


# Exercise 4 (easy, 10 minutes)
def step_seconds(calls: list[tuple[int, int]], compute_s: float, a: float, b: float) -> float:
    """Predicted seconds of a step without overlap: compute_s, then the calls one after another.

    A call of m bytes takes a + b m seconds. Calls are in elements of float32.

    step_seconds([(0, 5), (5, 15)], 2.0, 0.5, 0.1) -> 9.0
    step_seconds([], 2.0, 0.5, 0.1) -> 2.0

    Hint: how many bytes has the second call? How often is a paid?
    """
    raise NotImplementedError
