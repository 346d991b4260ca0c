"""Exercises of lesson 09, merged gradients. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 09 lessons/student/09.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/09_merged_gradients.py --mine lessons/student/09.py

Plain Python is all you need; import only Python's own modules and NumPy. The marks do not know
this file's other functions, so add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/09.py

ready_s[i]: when gradient i is ready, in seconds from the start of backward, ascending. nbytes[i]:
its bytes. counts: how many gradients each call sums, in order: [1, 3] is gradient 0 in the first
call, gradients 1, 2 and 3 in the second. A call of m bytes takes a_s + b_s_per_byte m seconds.
"""


# Exercise 1 (given)
def groupings(count: int) -> list[list[int]]:
    """All counts that add up to count, in ascending order: 2**(count - 1) of them.

    groupings(3) -> [[1, 1, 1], [1, 2], [2, 1], [3]]          groupings(0) -> [[]]
    """
    if count == 0:
        return [[]]
    return [[first, *rest] for first in range(1, count + 1) for rest in groupings(count - first)]


# Exercise 2 (easy, 15 minutes)
def step_end(
    ready_s: list[float],
    nbytes: list[float],
    counts: list[int],
    a_s: float,
    b_s_per_byte: float,
) -> float:
    """When the last call ends, in seconds. 0 if there is no gradient.

    A call starts when its last gradient is ready and the call before has ended.

    step_end([1, 4, 5], [1, 2, 1], [1, 2], 2, 1) -> 10        calls from 1 to 4 and from 5 to 10
    step_end([1, 4, 5], [1, 2, 1], [1, 1, 1], 2, 1) -> 11     calls 1 to 4, 4 to 8 and 8 to 11

    Hint: one loop over counts that remembers where a group begins and when the link is free.
    """
    raise NotImplementedError


# Exercise 3 (medium, 30 minutes)
def greedy_counts(
    ready_s: list[float], nbytes: list[float], a_s: float, b_s_per_byte: float
) -> list[int]:
    """The counts of MG-WFBP's greedy rule.

    Go through the gradients in order. Gradient i joins the call of gradient i+1 if waiting costs
    less than a latency: ready(i+1) - start(i) < a_s. Here start(i) is when a call that ends with
    gradient i would start (see exercise 2). Otherwise send what waits, up to gradient i.

    greedy_counts([0, 1, 2, 20], [5, 1, 1, 4], 3, 1) -> [3, 1]
    greedy_counts([0, 3, 6, 30], [10, 10, 10, 10], 2, 1) -> [1, 2, 1]

    In the second example the first call ends at 12, so gradient 1 could start at 12 only: gradient
    2 is ready long before.

    Hint: start(i) = max(when the link is free, ready_s[i]).
    """
    raise NotImplementedError


# Exercise 4 (easy, 15 minutes)
def best_end(ready_s: list[float], nbytes: list[float], a_s: float, b_s_per_byte: float) -> float:
    """The earliest end that any counts have, in seconds, for at most 10 gradients.

    best_end([0, 10], [8, 1], 1, 1) -> 12        one call for each: 0 to 9, 10 to 12
    best_end([0, 1, 2, 3], [1, 1, 1, 1], 5, 1) -> 12          one call, 3 to 12

    Hint: exercises 1 and 2.
    """
    raise NotImplementedError
