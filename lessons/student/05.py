"""Exercises of lesson 05, mixed precision. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 05 lessons/student/05.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/05_mixed_precision.py --mine lessons/student/05.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. A function may overwrite its arguments, which are copies. Exercise 1 is
done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/05.py
"""

import numpy as np


# Exercise 1 (given)
def half(x: np.ndarray) -> np.ndarray:
    """float32 numbers (n,) as they arrive after they were sent as float16: float32 again, (n,).

    half([0.1, 70000, 1e-8]) -> [0.09997559, inf, 0]
    """
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


# Exercise 2 (medium, 20 minutes)
def half_sum(terms: list[np.ndarray], every_hop: bool) -> np.ndarray:
    """Sum p float32 arrays (n,), the gradients of p ranks, with float16 on the wire.

    terms are in the order in which they are added, and additions are in float32. -> float32 (n,)

    every_hop True, as in a ring: the partial sum is sent from rank to rank, and each rank adds its
    own term to what arrives. The last rank sends the result to all.
    every_hop False, as in `direct`: all terms are sent to one rank, which adds them. The result is
    sent to all. That rank's own term counts as sent too, so that all ranks round alike.

    Bits count. For one rank too, the result is rounded: all ranks hold what was sent.

    half_sum([[0.1], [0.1], [0.1]], True) -> [0.30004883]
    half_sum([[0.1], [0.1], [0.1]], False) -> [0.2998047]
    half_sum([[60000], [60000], [-60000]], True) -> [inf]          ..., False) -> [60000]

    Hint: call `half` on exactly what is sent, each time that it is sent.
    """
    raise NotImplementedError


# Exercise 3 (easy, 10 minutes)
def next_scale(scale: float, good_steps: int, finite: bool, interval: int) -> tuple[float, int]:
    """(scale, good_steps) after a step: dynamic loss scaling.

    scale: a power of two.
    good_steps: how many steps in a row were finite before this step. finite: was this one?
    A step that is not finite is skipped: the scale is halved. `interval` finite steps in a row
    double it. Both begin a new count. The scale stays within 1 and 2**24.

    next_scale(1024.0, 3, True, 2000) -> (1024.0, 4)
    next_scale(1024.0, 1999, True, 2000) -> (2048.0, 0)
    next_scale(1024.0, 3, False, 2000) -> (512.0, 0)

    Hint: three cases, and the limits with min and max.
    """
    raise NotImplementedError


# Exercise 4 (medium, 20 minutes)
def update(
    master: np.ndarray, total: np.ndarray, scale: float, rate: float
) -> tuple[np.ndarray, np.ndarray]:
    """One update of the weights, which are kept twice. -> (master, working), (n,) each

    master: float32 (n,), the weights that are updated.
    working: float16 (n,), the master weights rounded, for the next forward and backward pass.
    total: float16 (n,), the gradients' sum over all ranks, times the loss scale (a power of two).

    SGD without momentum: weights minus rate times gradients, in float32. If a number of the sum is
    infinite or NaN, the whole step is skipped and the weights stay.

    update([1, 1], [1, -512], 1024.0, 0.5) -> ([0.9995117, 1.25], [0.9995117, 1.25])
    update([1, 1], [1, np.inf], 1024.0, 0.5) -> ([1, 1], [1, 1])
    update([1], [0.25], 1024.0, 0.5) -> ([0.99987793], [1])         the master keeps what is lost

    Hint: in NumPy, a float16 array divided by a Python number is a float16 array.
    """
    raise NotImplementedError


# Exercise 5 (medium, 20 minutes)
def in_blocks(x: np.ndarray, block: int) -> np.ndarray:
    """float32 numbers (n,) as they arrive after they were sent in 8 bits: float32 again, (n,).

    The first `block` numbers are a block, then the next; the last one may be shorter.
    A block shares s: the least power of two with which no |x| / s is above 448.
    Each x / s is rounded to E4M3, to nearest, ties to even. What arrives is s times that.

    From 2^k to 2^(k+1) E4M3 has the multiples of 2^(k-3), for k = -6 and more. Below 2^-6 it has
    the multiples of 2^-9.

    in_blocks([460, 0.001, 0.001], 2) -> [448, 0, 0.0009765625]
    in_blocks([300, 1, 0.3], 3) -> [288, 1, 0.3125]
    in_blocks([0, 0], 2) -> [0, 0]

    Hint: np.frexp(y)[1] is k + 1 of each number, and np.rint rounds ties to even.
    """
    raise NotImplementedError
