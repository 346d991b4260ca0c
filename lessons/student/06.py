"""Exercises of lesson 06, CSC. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 06 lessons/student/06.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/06_csc.py --mine lessons/student/06.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/06.py

There are no messages here: a function gets the arrays of all p ranks in a list. The pool of n
gradients is divided into C chunks, number 0, 1, ..., C-1. The last one may be shorter.
"""

import numpy as np


# Exercise 1 (given)
def chunk_bounds(n: int, chunk: int) -> list[tuple[int, int]]:
    """[(start, stop), ...]: n elements in chunks of `chunk` elements. The last may be shorter.

    chunk_bounds(8, 4) -> [(0, 4), (4, 8)]      chunk_bounds(7, 3) -> [(0, 3), (3, 6), (6, 7)]
    """
    return [(start, min(start + chunk, n)) for start in range(0, n, chunk)]


# Exercise 2 (easy, 15 minutes)
def importance(waiting: list[np.ndarray], chunk: int) -> np.ndarray:
    """The importance of each chunk, the same on all ranks. -> float64 (C,)

    waiting[r]: float32 (n,), what rank r would send. Each rank computes the L1 norm of each of its
    chunks: the sum of the magnitudes. The norms are summed over the ranks and divided by the
    chunk's length. All sums are in float64.

    importance([[1, -3, 2], [-1, 1, 5]], 2) -> [3.0, 7.0]
    importance([[1, -3, 2]], 4) -> [2.0]

    Hint: of what must each rank take magnitudes, before anything is summed over the ranks?
    """
    raise NotImplementedError


# Exercise 3 (medium, 15 minutes)
def choose(values: np.ndarray, percent: float) -> list[int]:
    """The numbers of the most important chunks, ascending: percent of all C, rounded up.

    values: the importance of each chunk, float64 (C,). percent: above 0, at most 100. Of equally
    important chunks the one with the lower number is chosen, because all ranks must choose alike.

    choose([3, 9, 1, 8], 50) -> [1, 3]      choose([3, 9, 1, 8], 60) -> [0, 1, 3]
    choose([7, 7, 7], 30) -> [0]

    Hint: np.argsort(..., kind="stable") leaves equal values in their order. Which way does it sort?
    """
    raise NotImplementedError


# Exercise 4 (medium, 30 minutes)
def csc_step(
    gradients: list[np.ndarray], residuals: list[np.ndarray], chosen: list[int], chunk: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """What the allreduce of one sparse step returns, and what stays. -> (packed, new residuals)

    gradients[r], residuals[r]: float32 (n,), those of rank r. chosen: chunk numbers, ascending, the
    same on all ranks. A rank adds its residual to its gradient. The chosen chunks are sent, and
    the others are the rank's new residual.
    packed: float32 (k,), the k elements of the chosen chunks one after another, summed over the
    ranks. New residuals: p arrays, float32 (n,), 0 in the chosen chunks.

    csc_step([[1, 2, 3], [10, 20, 30]], [[0, 0, 5], [0, 0, 0]], [0], 2)
        -> ([11, 22], [[0, 0, 8], [0, 0, 30]])
    csc_step([[1, 2, 3], [10, 20, 30]], [[0, 0, 5], [0, 0, 0]], [1], 2)
        -> ([38], [[1, 2, 0], [10, 20, 0]])

    Hint: np.arange(n) // chunk is the chunk of each element, and np.isin(..., chosen) says which
    elements are sent.
    """
    raise NotImplementedError
