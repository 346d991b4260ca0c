"""Exercises of lesson 17, low rank. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 17 lessons/student/17.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/17_low_rank.py --mine lessons/student/17.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/17.py

There are no messages here: a function gets the arrays of all p ranks in a list.
"""

import math

import numpy as np


# Exercise 1 (given)
def factor_elements(shape: tuple[int, ...], r: int) -> tuple[int, int]:
    """Elements of a tensor's factors. -> (in the first, in the second allreduce)

    The last dimension is the columns, all others together are the rows. If r (rows + columns) is
    less than rows * columns, r * rows and r * columns elements are sent; else all elements, first.

    factor_elements((5, 4), 2) -> (10, 8)      factor_elements((4, 4), 2) -> (16, 0)
    factor_elements((3, 3, 8, 16), 1) -> (72, 16)      factor_elements((9,), 1) -> (9, 0)
    """
    columns, rows = shape[-1], math.prod(shape[:-1])
    if r * (rows + columns) < rows * columns:
        return r * rows, r * columns
    return rows * columns, 0


# Exercise 2 (medium, 20 minutes)
def orthogonal(p: np.ndarray) -> np.ndarray:
    """Gram-Schmidt. p: float64 (rows, r) -> (rows, r)

    Columns in order: from each, take its projections on all finished columns before it, then divide
    it by its length. A column of which at most 2**-20 of its length is left becomes 0.

    orthogonal([[3, 3], [0, 5], [0, 0]]) -> [[1, 0], [0, 1], [0, 0]]
    orthogonal([[3, 6], [4, 8]]) -> [[0.6, 0], [0.8, 0]]      the second column depends on the first

    Hint: the projection of x on a column c of length 1 is (c @ x) * c.
    """
    raise NotImplementedError


# Exercise 3 (medium, 25 minutes)
def low_rank_sum(
    ms: list[np.ndarray], q: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """PowerSGD's step for one matrix. -> (about the sum of ms, the next q, each rank's error)

    ms[i]: float64 (rows, columns), the gradient of rank i with its error. q: (columns, r), on all
    ranks the same. P is the sum of all m @ q, made orthogonal. The next q is the sum of all m^T P,
    and P q^T, with that q, stands for the sum of ms. A rank's error is m - P (m^T P)^T. A column of
    the next q that is 0 stays as it was in q.

    one rank, and P = [[0.6], [0.8]]:
    low_rank_sum([[[3, 1], [4, 0]]], [[1], [0]])
        -> ([[3, 0.36], [4, 0.48]], [[5], [0.6]], [[[0, 0.64], [0, -0.48]]])

    Hint: (new == 0).all(axis=0) says which columns are 0.
    """
    raise NotImplementedError


# Exercise 4 (easy, 10 minutes)
def sent_bytes(what: str, k: int, p: int) -> float:
    """Bytes that one of p ranks sends for k of something.

    "floats": k numbers of 4 bytes, summed by a ring allreduce. "votes": k counters of 2 bytes,
    summed. "signs": k signs of 1 bit, gathered: all ranks get those of all. "pairs": k values and k
    indices of 4 bytes each, gathered. Summed, a rank sends 2 (p-1)/p of its bytes, else p-1 times.

    sent_bytes("floats", 8, 4) -> 48.0      sent_bytes("signs", 64, 4) -> 24.0
    """
    raise NotImplementedError


# Exercise 5 (easy, 10 minutes)
def majority(gradients: np.ndarray) -> np.ndarray:
    """signSGD with majority vote: what each rank takes for the sum. float64 (p, n) -> (n,)

    Each rank has a vote for each element: its gradient's sign, and 0 for 0. An allreduce sums the
    votes. The result has the sign of this sum, and 0 where the votes tie. Its magnitude, the same
    for all elements, is the sum over the ranks of the means of their |gradients|.

    majority([[1, -2, 0], [3, 1, 0], [-1, 5, 0]]) -> [4.33333333, 4.33333333, 0]

    Hint: np.sign, twice.
    """
    raise NotImplementedError
