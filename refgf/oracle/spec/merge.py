"""G1 to G6: the calls of a step in time, and which gradients are sent together.

ready_s   (L,) seconds at which each gradient is ready, ascending, in the order of generation
nbytes    (L,) bytes of each on the wire, at least 1
counts    gradients in each group of neighbours; a group is one call
line      (a, b): a call of m bytes takes a + b m seconds

ready at 1, 2 and 4, a byte each, a = 2, b = 1
    one by one     counts [1, 1, 1]     calls 1-4, 4-7, 7-10
    greedy (G4)    counts [2, 1]        calls 2-6, 6-9
    best (G6)      counts [1, 2]        calls 1-4, 4-8
"""

from collections.abc import Iterator
from itertools import accumulate

from refgf.oracle.spec.lazy.calls import lazy_calls

Line = tuple[float, float]
Times = list[tuple[float, float]]  # (start, end) of each call


def step_times(
    ready_s: list[float],
    nbytes: list[int],
    counts: list[int],
    line: Line,
    overlap: float = 1.0,
    compute_s: float | None = None,
) -> tuple[Times, float]:
    """G1: one call after the other; each also waits for the last gradient of its group.

    The step ends with the computation (by default with the last gradient) or with the last call.
    -> ([(start, end)] of each call, end of the step)
    """
    calls, free_s, first = [], 0.0, 0
    for count in counts:
        group = range(first, first + count)
        start_s = max(free_s, computed_at(ready_s[group[-1]], calls, overlap))
        free_s = start_s + (line[0] + line[1] * sum(nbytes[i] for i in group))
        calls.append((start_s, free_s))
        first += count
    if compute_s is None:
        compute_s = max(ready_s, default=0.0)
    return calls, max(free_s, computed_at(compute_s, calls, overlap))


def computed_at(work_s: float, calls: Times, overlap: float) -> float:
    """G2: when `work_s` seconds of computing are done, if a call leaves it `overlap` of its speed.

    Between calls the computation has its full speed.
    """
    now_s, done_s = 0.0, 0.0
    for start_s, end_s in calls:
        if done_s + (start_s - now_s) >= work_s:
            break
        done_s += start_s - now_s
        if done_s + overlap * (end_s - start_s) >= work_s:
            return start_s + (work_s - done_s) / overlap
        now_s, done_s = end_s, done_s + overlap * (end_s - start_s)
    return now_s + (work_s - done_s)


def lazy_step(
    ready_s: list[float], nbytes: list[int], theta_bytes: float, line: Line
) -> tuple[list[int], Times, float]:
    """G3: theta's groups (L1, L2), timed as in G1. -> (counts, calls, end of the step)

    theta = 0 is wait-free backpropagation, infinity one call after the last gradient.
    """
    ends = list(accumulate(nbytes))
    counts = [sum(i < end <= j for end in ends) for i, j in lazy_calls(nbytes, 1, theta_bytes)]
    return counts, *step_times(ready_s, nbytes, counts, line)


def greedy_counts(
    ready_s: list[float], nbytes: list[int], line: Line, small_bytes: int = 0
) -> list[int]:
    """G4: gradient i joins gradient i + 1 if waiting for that one takes less than a.

    The wait counts from the start of the call that would end with gradient i, after all calls
    before it. Decided from the first gradient to the last; no decision is revised. -> counts
    """
    counts, waiting = [], 1
    for i in range(len(ready_s) - 1):
        calls, _ = step_times(ready_s[: i + 1], nbytes[: i + 1], [*counts, waiting], line)
        group_bytes = sum(nbytes[i + 1 - waiting : i + 1])
        if joins(ready_s[i + 1] - calls[-1][0], line[0], group_bytes, small_bytes):
            waiting += 1
        else:
            counts.append(waiting)
            waiting = 1
    return [*counts, waiting] if ready_s else []


def joins(wait_s: float, a_s: float, group_bytes: int, small_bytes: int) -> bool:
    """G5: less than a, not equal; and always while the group has fewer than small_bytes bytes."""
    return wait_s < a_s or group_bytes < small_bytes


def best_counts(ready_s: list[float], nbytes: list[int], line: Line) -> list[int]:
    """G6: of all groupings one whose last call ends first. -> counts

    Others may end as early. All 2^(L-1) are tried, so L should be small.
    """
    return min(
        groupings(len(ready_s)),
        key=lambda counts: step_times(ready_s, nbytes, counts, line)[1],
    )


def groupings(count: int) -> Iterator[list[int]]:
    """All ways to cut `count` gradients into groups of neighbours."""
    if count == 0:
        yield []
    for first in range(1, count + 1):
        for rest in groupings(count - first):
            yield [first, *rest]
