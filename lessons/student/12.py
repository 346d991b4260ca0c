"""Exercises of lesson 12, top-k. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 12 lessons/student/12.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/12_topk.py --mine lessons/student/12.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/12.py

There are no messages here: a function gets the arrays of all p ranks in a list.
"""

from fractions import Fraction
from math import ceil

import numpy as np


# Exercise 1 (given)
def keep_count(n: int, percent: float) -> int:
    """k: how many of n elements are sent. percent of them, rounded up, at least 1; none of 0.

    keep_count(1000, 1) -> 10      keep_count(250, 1) -> 3      keep_count(0, 1) -> 0

    Floats round: ceil(1000 * (1.1 / 100)) is 12. A Fraction is exact: 1.1 % of 1000 are 11.
    """
    return min(n, max(1, ceil(n * Fraction(str(percent)) / 100)))


# Exercise 2 (easy, 10 minutes)
def top_k(x: np.ndarray, k: int) -> np.ndarray:
    """The indices of the k elements of largest magnitude, ascending. -> int64 (k,)

    x: float64 (n,), k: 0 to n. Of equal magnitudes the first is chosen.

    top_k([1, -5, 0, 4], 2) -> [1, 3]      top_k([2, -2, 2], 2) -> [0, 1]      top_k([7], 0) -> []

    Hint: np.argsort(..., kind="stable") leaves equal numbers in their order.
    """
    raise NotImplementedError


# Exercise 3 (medium, 20 minutes)
def threshold(x: np.ndarray, k: int, rounds: int) -> tuple[float, float]:
    """MSTopK's search for a threshold that k magnitudes reach, by bisection. -> (low, high)

    x: float64 (n,), n and k at least 1. The interval begins with low = 0 and high = the largest
    magnitude. Each round tests a threshold. If more than k magnitudes reach it (>=), it becomes
    low, otherwise high. The first round tests the mean magnitude, and each later one the middle of
    low and high.

    threshold([8, -3, 1, 0], 1, 0) -> (0.0, 8.0)
    threshold([8, -3, 1, 0], 1, 1) -> (3.0, 8.0)        8 and 3 reach the mean 3: more than one
    threshold([8, -3, 1, 0], 1, 2) -> (3.0, 5.5)        8 reaches 5.5

    Hint: np.count_nonzero(magnitude >= tested) is one pass over memory. Nothing is sorted.
    """
    raise NotImplementedError


# Exercise 4 (medium, 25 minutes)
def topk_step(
    gradients: list[np.ndarray], residuals: list[np.ndarray], k: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """One step of top-k with error feedback over p ranks. -> (sum (n,), new residuals)

    gradients[r], residuals[r]: float32 (n,), those of rank r. A rank adds its residual to its
    gradient. It sends the k largest magnitudes of this sum (top_k), as values and indices, to all
    ranks. The rest is its new residual. All ranks add up what all have sent.
    The sum: float32 (n,), 0 where no rank has sent anything. New residuals: p arrays, float32 (n,).

    topk_step([[0, 5, 1], [0, 4, -6]], [[0, 0, 0], [0, 0, 0]], 1)
        -> ([0, 5, -6], [[0, 0, 1], [0, 4, 0]])
    topk_step([[0, 5, 1], [3, 1, 0]], [[0, 0, 1], [0, 4, 0]], 1)
        -> ([0, 10, 0], [[0, 0, 2], [3, 0, 0]])

    Hint: x[indices] reads the chosen values, x[indices] = 0 clears them, y[indices] += ... adds.
    """
    raise NotImplementedError


# Exercise 5 (easy, 10 minutes)
def step_bytes(n: int, percent: float, p: int, value_bytes: int) -> tuple[float, float]:
    """Bytes that one of p ranks sends in a step. -> (of a dense ring allreduce, of top-k)

    n: elements of the gradient, p divides n. value_bytes: bytes of an element. An index has 4.
    Top-k: each rank sends its k = keep_count(n, percent) pairs of value and index to each of the
    other ranks.

    step_bytes(1000, 1, 4, 4) -> (6000, 240)      step_bytes(1000, 1, 4, 2) -> (3000, 180)
    step_bytes(1000, 1, 1, 4) -> (0, 0)

    Hint: a ring makes 2 (p-1) steps. How many elements has the message of each?
    """
    raise NotImplementedError
