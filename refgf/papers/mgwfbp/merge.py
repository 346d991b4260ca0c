"""Which gradients to send together: MG-WFBP's greedy rule, and the exact best merge.

Both return groups as refgf.predict.timeline takes them: ranges of consecutive gradients in the
order of generation. The greedy rule is the authors', the exact merge is ours. A merge saves one
latency, T(x) + T(y) - T(x + y) = a, and waits for the later gradient. For every gradient j, the
exact merge tries every i at which the group that ends with j may begin:

    F(j) = min over i < j of  max(F(i), ready(j)) + T(bytes of i .. j-1)        F(0) = 0

F(j) is the earliest end of all calls up to gradient j. An earlier F(i) never makes a later one
worse, so the best prefix is enough: at most L (L+1) values of T instead of 2**(L-1) timelines.
"""

from collections.abc import Callable, Sequence
from math import inf

from refgf.predict.cost import Line
from refgf.predict.timeline import Gradients, predict

MARGIN = 1e-12  # of a step: far more than rounding, far less than any clock


def greedy_merge(gradients: Gradients, line: Line, small_bytes: float = 0) -> list[range]:
    """MG-WFBP's rule (verified in the authors' two implementations).

    Gradient i joins i+1 if and only if ready(i+1) - start(i) < a, where start(i) is the start of
    the call that ends with i: waiting for the next gradient costs less than one latency. Decided
    from the first gradient generated to the last and never revised. The authors recompute all
    starts after each merge, which changes only later ones.

    small_bytes: also merge while the group has fewer bytes (verified: 8192 elements in a later
    variant of theirs).
    """
    groups, begin, waiting, start_s = [], 0, 0, 0.0
    for i, (ready_s, nbytes) in enumerate(gradients):
        start_s = max(start_s, ready_s)
        waiting += nbytes
        if i + 1 < len(gradients):
            gap_s = gradients[i + 1][0] - start_s
            if gap_s < line.a_s or waiting < small_bytes:
                continue
        groups.append(range(begin, i + 1))
        start_s += line(waiting)  # without bytes: the next gradient comes later in any case
        begin, waiting = i + 1, 0
    return groups


def exact_merge(gradients: Gradients, allreduce_s: Callable[[float], float]) -> list[range]:
    """The groups with the earliest end of the last call, for any function bytes -> seconds.

    Exact if communication does not slow computation (overlap=True): then the step ends with the
    last call. While backward is ahead, many merges end equally early; on a Line this is one with
    the fewest calls.
    """

    def call_s(nbytes: float) -> float:
        return allreduce_s(nbytes) if nbytes else 0.0  # a group without bytes is no call

    ends_s, begins, sums = [0.0], [0], [0]  # ends_s[j] = F(j), by a last group from begins[j]
    for _, nbytes in gradients:
        sums.append(sums[-1] + nbytes)
    for j, (ready_s, _) in enumerate(gradients, 1):
        found = [max(ends_s[i], ready_s) + call_s(sums[j] - sums[i]) for i in range(j)]
        ends_s.append(min(found))
        begins.append(found.index(ends_s[j]))
    return few_calls(gradients, call_s, ends_s, begins, sums)


def few_calls(
    gradients: Gradients,
    allreduce_s: Callable[[float], float],
    ends_s: Sequence[float],
    begins: Sequence[int],
    sums: Sequence[float],
) -> list[range]:
    """From the last group to the first, the largest one whose prefix can still be in time."""
    groups, j, until_s = [], len(gradients), ends_s[-1]
    while j:
        ready_s, candidates = gradients[j - 1][0], range(begins[j] + 1)
        starts_s = [max(ends_s[i], ready_s) for i in candidates]
        times_s = [allreduce_s(sums[j] - sums[i]) for i in candidates]
        begin = next(i for i in candidates if starts_s[i] + times_s[i] <= until_s)
        groups.append(range(begin, j))
        # how late it may start; the margin keeps the rounded sum of the two below until_s
        until_s = max(starts_s[begin], until_s - times_s[begin] - MARGIN * ends_s[-1])
        j = begin
    return groups[::-1]


def theta_bounds(gradients: Gradients, groups: Sequence[range]) -> tuple[float, float]:
    """(low, high): lazy allreduce forms exactly `groups` if low <= theta < high.

    No theta forms them unless low < high. low: the most bytes that waited before the last gradient
    of a group. high: the fewest bytes of a group other than the last.
    """

    def nbytes(group: range) -> float:
        return sum(gradients[i][1] for i in group)

    low = max((nbytes(group[:-1]) for group in groups), default=0)
    return low, min((nbytes(group) for group in groups[:-1]), default=inf)


def compare(gradients: Gradients, line: Line) -> dict[str, float]:
    """{"greedy": step_s, "exact": step_s, "excess": greedy / exact - 1}."""
    greedy = predict(gradients, greedy_merge(gradients, line), line).step_s
    exact = predict(gradients, exact_merge(gradients, line), line).step_s
    return {"greedy": greedy, "exact": exact, "excess": greedy / exact - 1}
