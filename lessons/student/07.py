"""Exercises of lesson 07, the whole stack. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 07 lessons/student/07.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/07_gradientflow.py --mine lessons/student/07.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/07.py

The pool holds all n gradients, in the order in which backward makes them. It is also divided into
chunks, number 0, 1, ...: `chunk` elements each, and the last one may be shorter. A call is one ring
allreduce.
"""

import numpy as np


# Exercise 1 (given)
def traffic(calls: list[int], p: int) -> tuple[int, float]:
    """(messages, bytes) that a rank sends in a step, on the average of p ranks.

    calls: the bytes of each call. A ring has 2(p-1) messages, each of a p-th of the call's bytes.

    traffic([8, 12], 4) -> (12, 30.0)          traffic([8, 12], 1) -> (0, 0.0)
    """
    return 2 * (p - 1) * len(calls), 2 * (p - 1) / p * sum(calls)


# Exercise 2 (medium, 25 minutes)
def call_bytes(
    sizes: list[int], theta: float, half: bool, chunk: int, chosen: list[int] | None
) -> list[int]:
    """The bytes of each call of a step, in order. -> [bytes, ...]

    sizes: elements of each gradient. half: sent as float16 (2 bytes an element), otherwise as
    float32 (4 bytes).
    chosen None: the gradients are sent, one after another. Otherwise: the chunks with these
    numbers (ascending), packed one after another, and nothing else.
    What is sent waits first. After each gradient, or each chunk: if more than theta bytes wait, one
    call sends them all. At the end one more call sends the rest, if anything waits. theta counts
    bytes as they are sent.

    call_bytes([1, 2, 2, 8, 1, 1], 9, True, 4, None) -> [10, 16, 4]
    call_bytes([1, 2, 2, 8, 1, 1], 9, False, 4, None) -> [12, 40, 8]
    call_bytes([5, 7, 6], 9, True, 4, [0, 2, 4]) -> [16, 4]

    Hint: first make a list of the elements of what is sent, gradients or chunks. The rest is the
    same for both.
    """
    raise NotImplementedError


# Exercise 3 (medium, 30 minutes)
def exchange(
    gradients: list[np.ndarray], residuals: list[np.ndarray], chosen: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """One step of CSC with float16 on the wire. -> (sums, new residuals), all float32 (n,)

    gradients[r], residuals[r]: float32 (n,), those of rank r. chosen: bool (n,), True where an
    element is sent, the same on all ranks.
    A rank adds its residual to its gradient. The chosen elements are rounded to float16 and sent,
    and the others are the rank's new residual, which is 0 where an element was sent. The ranks'
    numbers are added in float32, and the sum is rounded to float16 too, because it is sent to all.
    sums is 0 where nothing was sent. There are no calls here: they do not change these sums.

    exchange([[1, 2, 3], [10, 20, 30]], [[0, 5, 0.5], [0, 0, 0]], [True, True, False])
        -> ([11, 27, 0], [[0, 0, 3.5], [0, 0, 30]])
    exchange([[2049], [1], [1]], [[0], [0], [0]], [True])
        -> ([2050], [[0], [0], [0]])          2049 is sent as 2048, float16 has no number between

    Hint: x.astype(np.float16).astype(np.float32) rounds. sums[chosen] = ... puts numbers back.
    """
    raise NotImplementedError


# Exercise 4 (easy, 15 minutes)
def gains(off_s: float, steps_s: dict[str, float], order: str) -> list[tuple[float, float]]:
    """[(gain in seconds, scaling efficiency in percent), ...] of each technique, as switched on.

    Each technique has a letter. order: the letters of all techniques, in the order in which they
    are switched on, one more at a time. steps_s: the step of each set of techniques, in seconds;
    the set's letters are in the alphabet's order, "" is the set without techniques. off_s: the step
    without exchange.
    A technique's gain is what it saves once those before it are on; it may be negative. The
    efficiency is that of the stack up to it.

    gains(3.0, {"": 10.0, "H": 6.0, "O": 8.0, "HO": 5.0}, "HO") -> [(4.0, 50.0), (1.0, 60.0)]
    gains(3.0, {"": 10.0, "H": 6.0, "O": 8.0, "HO": 5.0}, "OH") -> [(2.0, 37.5), (3.0, 60.0)]

    Hint: "".join(sorted("OH")) is "HO".
    """
    raise NotImplementedError
