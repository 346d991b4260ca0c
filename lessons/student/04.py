"""Exercises of lesson 04, overlap. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 04 lessons/student/04.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/04_overlap.py --mine lessons/student/04.py

Plain Python is all you need; import only Python's own modules and NumPy. The marks do not know
this file's other functions, so add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/04.py

All times are in seconds since the start of the step. A call is one allreduce of one group of
gradients. ready_s[i]: when the last gradient of call i is ready if nothing delays backward. It
never decreases. call_s[i]: how long call i takes. Calls are made in this order, one at a time.
"""


# Exercise 1 (given)
def ready_times(forward_s: float, layers_s: list[float]) -> list[float]:
    """When each layer's gradient is ready, in backward's order.

    forward_s: duration of the forward pass. layers_s: duration of each layer's backward, in
    backward's order.

    ready_times(3.0, [1.0, 2.0, 4.0]) -> [4.0, 6.0, 10.0]
    """
    ready_s, now_s = [], forward_s
    for layer_s in layers_s:
        now_s += layer_s
        ready_s.append(now_s)
    return ready_s


# Exercise 2 (medium, 20 minutes)
def calls_with_overlap(ready_s: list[float], call_s: list[float]) -> list[tuple[float, float]]:
    """[(start, end), ...] of each call, if a second thread communicates while backward goes on.

    calls_with_overlap([4.0, 6.0, 10.0], [3.0, 2.0, 1.0]) -> [(4.0, 7.0), (7.0, 9.0), (10.0, 11.0)]

    Hint: two things must have happened before a call can start. Which one is later?
    """
    raise NotImplementedError


# Exercise 3 (medium, 20 minutes)
def calls_without_overlap(ready_s: list[float], call_s: list[float]) -> list[tuple[float, float]]:
    """[(start, end), ...] of each call, if one thread does all: backward stops during a call.

    calls_without_overlap([4.0, 6.0, 10.0], [3.0, 2.0, 1.0])
        -> [(4.0, 7.0), (9.0, 11.0), (15.0, 16.0)]

    Hint: by how much have the calls before it delayed call i?
    """
    raise NotImplementedError


# Exercise 4 (medium, 20 minutes)
def exposed_and_hidden(
    ready_s: list[float], call_s: list[float], compute_s: float
) -> tuple[float, float]:
    """(exposed, hidden) seconds of communication, with overlap.

    compute_s: when backward ends, never before the last gradient is ready. Exposed is the time by
    which communication makes the step longer than compute_s; the rest of the calls' time is hidden.

    exposed_and_hidden([4.0, 6.0, 10.0], [3.0, 2.0, 1.0], 10.0) -> (1.0, 5.0)
    exposed_and_hidden([4.0, 6.0], [3.0, 2.0], 10.0) -> (0.0, 5.0)

    Hint: the step ends with backward or with the last call, whichever is later.
    """
    raise NotImplementedError
