"""Exercises of lesson 01, the ring allreduce. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 01 lessons/student/01.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/01_ring_allreduce.py --mine lessons/student/01.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/01.py
"""

import numpy as np


# Exercise 1 (given)
def slices(n: int, p: int) -> list[tuple[int, int]]:
    """[(start, stop), ...]: n elements in p slices, the first n mod p of them one element longer.

    slices(10, 4) -> [(0, 3), (3, 6), (6, 8), (8, 10)]      slices(2, 3) -> [(0, 1), (1, 2), (2, 2)]
    """
    length, longer = divmod(n, p)
    stops = [(i + 1) * length + min(i + 1, longer) for i in range(p)]
    return list(zip([0, *stops[:-1]], stops))


# Exercise 2 (easy, 10 minutes)
def ring_cost(n: int, p: int, rank: int) -> tuple[int, int]:
    """(messages, elements) that this rank sends in a ring allreduce of n elements over p ranks.

    Empty slices are sent too. One rank sends nothing.

    ring_cost(8, 4, 0) -> (6, 12)     ring_cost(3, 2, 0) -> (2, 3)     ring_cost(5, 1, 0) -> (0, 0)

    Hint: which slices does a rank not send in the first p-1 steps, and which in the others?
    """
    raise NotImplementedError


# Exercise 3 (medium, 40 minutes)
def allreduce(comm, x: np.ndarray) -> None:
    """Sum x (n,) over all ranks, in place, by a ring: x is different on each rank, before.

    Reduce-scatter: in step t = 0 .. p-2 send slice (rank - t) mod p to the right neighbour, receive
    slice (rank - t - 1) mod p from the left one, and add it to x's own.
    Allgather: in step t send slice (rank + 1 - t) mod p to the right neighbour, receive slice
    (rank - t) mod p from the left one, and put it into x.

    rank 0: [1, 2, 3], rank 1: [10, 20, 30]  ->  both [11, 22, 33], after 2 messages of each rank

    comm has Get_rank, Get_size, Send, Recv, Sendrecv, Isend and Irecv, as in mpi4py:
    comm.Sendrecv(outgoing, dest, 0, incoming, source, 0) sends and receives at the same time.
    Isend and Irecv return a request at once. Each needs request.Wait(): before it, what is received
    is not there, and what is sent must not change.
    The marks are for values, bits (the order of adding), schedule, messages and bytes.

    Hint: if all ranks call Send first, all wait. np.empty(k, x.dtype) is room for what arrives.
    """
    raise NotImplementedError


# Exercise 4 (easy, 10 minutes)
def ring_seconds(nbytes: int, p: int, alpha: float, beta: float) -> float:
    """Predicted seconds of a ring allreduce of nbytes over p ranks, p divides nbytes.

    A message of m bytes takes alpha + beta m seconds; all links work at the same time.

    ring_seconds(1000, 2, 0.5, 0.001) -> 2.0       ring_seconds(1000, 1, 0.5, 0.001) -> 0.0

    Hint: how many steps are there, and how many bytes has the message of each?
    """
    raise NotImplementedError
