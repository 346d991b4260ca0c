"""Exercises of lesson 08, scaling. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 08 lessons/student/08.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/08_scaling.py --mine lessons/student/08.py

Plain Python is all you need; import only Python's own modules and NumPy. The marks do not know
this file's other functions, so add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/08.py

Weak scaling: each of p ranks brings a batch of its own. Strong scaling: p ranks share one batch.
alpha is a message's latency in seconds, beta the seconds per byte. All times are in seconds.
"""


# Exercise 1 (given)
def ring_seconds(p: int, nbytes: float, alpha: float, beta: float) -> float:
    """A ring allreduce of nbytes over p ranks: 2(p-1) messages, each of a p-th of the bytes.

    ring_seconds(4, 1000, 0.25, 0.001) -> 3.0          ring_seconds(1, 1000, 0.25, 0.001) -> 0.0
    """
    return 2 * (p - 1) * (alpha + beta * nbytes / p)


# Exercise 2 (easy, 10 minutes)
def speedup_and_efficiency(p: int, one_s: float, all_s: float, weak: bool) -> tuple[float, float]:
    """(speedup, scaling efficiency in percent) of p ranks over one rank.

    one_s: a step on one rank, which sends nothing. all_s: a step on p ranks. weak: each rank
    brings a batch of its own; otherwise p ranks share the one batch.
    speedup: images per second on p ranks over images per second on one. Efficiency: its percentage
    of p.

    speedup_and_efficiency(4, 2.0, 2.5, True) -> (3.2, 80.0)
    speedup_and_efficiency(4, 2.0, 1.0, False) -> (2.0, 50.0)

    Hint: how many batches do p ranks compute in a step, with weak scaling and with strong?
    """
    raise NotImplementedError


# Exercise 3 (medium, 25 minutes)
def step_seconds(
    p: int,
    compute_s: float,
    ready_s: list[float],
    nbytes: list[int],
    alpha: float,
    beta: float,
) -> float:
    """Predicted seconds of a step of eager exchange with overlap, on p ranks.

    ready_s[i], nbytes[i]: when gradient i is ready, in seconds since the start of the step
    (ascending), and its bytes. compute_s: the end of backward, never before the last gradient is
    ready. Each gradient has an allreduce of its own, a ring, in this order, one at a time.

    step_seconds(2, 10.0, [4.0, 6.0, 10.0], [2, 1, 3], 0.5, 1.0) -> 14.0
    step_seconds(2, 12.0, [4.0, 6.0], [2, 1], 0.5, 1.0) -> 12.0

    Hint: in the first example the calls take 3, 2 and 4 seconds. When does each start?
    """
    raise NotImplementedError


# Exercise 4 (medium, 15 minutes)
def predicted_efficiency(
    p: int, one_s: float, nbytes: int, alpha: float, beta: float, weak: bool
) -> float:
    """Predicted scaling efficiency of p ranks, in percent, without overlap.

    one_s: seconds that one rank computes a whole batch. nbytes: of all gradients, which one ring
    sums after backward. Efficiency: the time that a rank computes, over the time of a step on p
    ranks. A smaller batch takes proportionally less time.

    predicted_efficiency(4, 12.0, 1000, 0.25, 0.001, True) -> 80.0
    predicted_efficiency(4, 12.0, 1000, 0.25, 0.001, False) -> 50.0

    Hint: with strong scaling, what becomes smaller when p grows, and what does not?
    """
    raise NotImplementedError
