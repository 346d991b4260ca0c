"""Exercises of lesson 16, sharding. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 16 lessons/student/16.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/16_sharding.py --mine lessons/student/16.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/16.py

There are no messages here: a function gets the arrays of all p ranks in a list.
"""

import numpy as np


# Exercise 1 (given)
def own_slice(n: int, p: int, rank: int) -> tuple[int, int]:
    """The slice that a rank owns after the reduce-scatter of a ring. -> (start, stop)

    n elements are cut into p slices; the first n mod p of them have one element more (lesson 01).
    Rank r owns slice r+1 (mod p). With n < p some ranks own nothing.

    own_slice(12, 3, 0) -> (4, 8)    own_slice(12, 3, 2) -> (0, 4)    own_slice(2, 3, 1) -> (2, 2)
    """
    s = (rank + 1) % p
    start, stop = (i * (n // p) + min(i, n % p) for i in (s, s + 1))
    return start, stop


# Exercise 2 (easy, 15 minutes)
def held(n: int, p: int, rank: int, stage: int, states: int) -> tuple[int, int, int]:
    """Elements that a rank holds. -> (of weights, of gradients, of the optimiser's state)

    n weights, p ranks, an optimiser with so many states: momentum has 1, Adam 2, plain SGD none.
    stage 0: every rank holds all. ZeRO-1: of the state its own slice only. ZeRO-2: of the gradients
    too. ZeRO-3: of the weights too.

    held(12, 3, 0, 0, 2) -> (12, 12, 24)      held(12, 3, 0, 1, 2) -> (12, 12, 8)
    held(12, 3, 0, 3, 1) -> (4, 4, 4)         held(13, 3, 2, 1, 1) -> (13, 13, 5)

    Hint: own_slice says which slice, and so how long it is.
    """
    raise NotImplementedError


# Exercise 3 (medium, 25 minutes)
def sharded_step(
    w: np.ndarray,
    velocities: list[np.ndarray],
    gradients: list[np.ndarray],
    rate: float,
    momentum: float,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """One step of ZeRO-1 over p ranks. -> (new weights (n,), new velocities)

    w: float32 (n,), the weights, which all ranks hold. gradients[r]: float32 (n,), those of rank r.
    velocities[r]: float32, of rank r's own slice alone. A rank sums its slice of all gradients, and
    updates its slice with v <- momentum v + sum, then w <- w - rate v. All ranks take all slices of
    the new weights. The sums may be in any order. What is returned is float32, too.

    w = [1, 1], rate = 0.5, momentum = 0.5, two ranks: rank 0 owns w[1], rank 1 owns w[0]
    sharded_step([1, 1], [[2], [4]], [[1, 2], [3, 4]], 0.5, 0.5) -> ([-2.0, -2.5], [[7.0], [6.0]])

    Hint: start, stop = own_slice(...), and w[start:stop] = ... changes the slice of a copy of w.
    """
    raise NotImplementedError


# Exercise 4 (easy, 10 minutes)
def step_elements(n: int, p: int, stage: int) -> float:
    """Elements that a rank sends in a step, where p divides n.

    Each half of a ring is p-1 messages of a slice. stage 0: a ring allreduce. ZeRO-1, ZeRO-2: a
    reduce-scatter of the gradients, an allgather of the weights. ZeRO-3: allgathers of the weights
    before forward and again before backward, a reduce-scatter of the gradients.

    step_elements(12, 3, 0) -> 16.0      step_elements(12, 3, 3) -> 24.0
    """
    raise NotImplementedError
