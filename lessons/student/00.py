"""Exercises of lesson 00, two ranks. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 00 lessons/student/00.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/00_two_ranks.py --mine lessons/student/00.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/00.py
"""

import numpy as np


# Exercise 1 (given)
def loss(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Half the mean squared error of the predictions x @ w, over all samples.

    w: (features,), x: (samples, features), y: (samples,), all float64.

    w = [1, 2], x = [[1, 0], [2, 1]], y = [0, 1]: errors [1, 3]  ->  2.5
    """
    error = x @ w - y
    return float(np.mean(error**2) / 2)


# Exercise 2 (easy, 15 minutes)
def gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The gradient of `loss` with respect to w. -> (features,)

    gradient([1, 2], [[1, 0], [2, 1]], [0, 1]) -> [3.5, 1.5]        the errors are 1 and 3

    Hint: sample s adds error[s] * x[s] to the sum over all samples. Write it as one product.
    """
    raise NotImplementedError


# Exercise 3 (medium, 25 minutes)
def step_on_ranks(
    w: np.ndarray, xs: list[np.ndarray], ys: list[np.ndarray], rate: float
) -> list[np.ndarray]:
    """One step of data-parallel SGD on p ranks. -> the new weights (features,) of each rank.

    All ranks begin with the weights w. Rank r has the samples xs[r], ys[r]. After the step every
    rank holds the weights that one rank with all samples would have:
    w - rate * (gradient of `loss`). Ranks may have different numbers of samples, even none. All
    ranks together have at least one. w itself stays as it is, and so do the samples.

    step_on_ranks([3], [[[1], [2]], [[3]]], [[0, 0], [0]], 0.125) -> [[1.25], [1.25]]

    In the example the three samples have the gradients 3, 12 and 27.

    Hint: with as many samples on each rank the mean of the ranks' gradients will do. What must a
    rank contribute otherwise, so that the sum over all ranks is right?
    """
    raise NotImplementedError


# Exercise 4 (easy, 25 minutes)
def sum_of_ranks(comm, x: np.ndarray) -> None:
    """Sum x (n,) over all ranks, in place, through rank 0: x is different on each rank, before.

    Rank 0 receives x from ranks 1, 2, ..., p-1, in this order, adds each to its own x, and then
    sends the sum to ranks 1, 2, ..., p-1, in this order. One rank sends nothing.

    rank 0: [1, 2], rank 1: [10, 20]  ->  both [11, 22], after 1 message of each rank

    comm has Get_rank, Get_size, Send, Recv and others, as in mpi4py: comm.Send(x, dest) sends x;
    comm.Recv(y, source) fills y, an array of the same size and type. MPI's Send may return before a
    short message is received (lesson 00). The marker's Send always waits, as for a long one.
    The marks are for values, bits (the order of adding), schedule, messages and bytes.

    Hint: np.empty_like(x) is room for what arrives.
    """
    raise NotImplementedError
