"""Which gradients to send together: MG-WFBP's greedy rule, and the exact best merge.

Both return groups as refgf.predict.timeline takes them: ranges of consecutive gradients in the order of generation.
Merging saves a start-up, T(x) + T(y) - T(x + y) = a, and costs waiting for the later gradient. The exact merge tries,
for every gradient j, every place i at which the group that ends with j may begin:

    F(j) = min over i < j of  max(F(i), ready(j)) + T(bytes of i .. j-1)        F(0) = 0

F(j) is the earliest end of all calls up to gradient j. An earlier F(i) never makes a later one worse, so the best
prefix is enough: L (L+1) values of T at most, instead of 2**(L-1) timelines, for any T.
"""

from math import inf

from refgf.predict.timeline import predict

MARGIN = 1e-12  # of a step: far more than rounding, far less than any clock


def greedy_merge(gradients, line, small_bytes=0):
    """MG-WFBP's rule (verified in the authors' two implementations). `line` is a Line: T(bytes) = a + b bytes.

    Gradient i joins i+1 if and only if ready(i+1) - start(i) < a, where start(i) is when the call that ends with i
    would start: waiting for the next one costs less than one start-up. Decided from the first gradient generated to
    the last, never revised; the authors recompute all starts after each merge, which only moves the later ones.
    small_bytes: also merge while the group holds fewer bytes (a later variant of theirs has 8192 elements; verified).
    """
    groups, begin, waiting, start_s = [], 0, 0, 0.0
    for i, (ready_s, nbytes) in enumerate(gradients):
        start_s = max(start_s, ready_s)
        waiting += nbytes
        last = i + 1 == len(gradients)
        if not last and (gradients[i + 1][0] - start_s < line.a_s or waiting < small_bytes):
            continue
        groups.append(range(begin, i + 1))
        start_s += line(waiting)
        begin, waiting = i + 1, 0
    return groups


def exact_merge(gradients, allreduce_s):
    """The groups with the earliest end of the last call, for any function bytes -> seconds; of equals, few large ones.

    Exact for computation that communication does not slow (overlap=True): then the step ends with the last call.
    While backward is ahead many merges end equally early; on a Line this is one of those with the fewest calls.
    """
    ends_s, begins, sums = [0.0], [0], [0]  # ends_s[j] = F(j); begins[j]: first gradient of the group that ends there
    for _, nbytes in gradients:
        sums.append(sums[-1] + nbytes)
    for j, (ready_s, _) in enumerate(gradients, 1):
        found = [max(ends_s[i], ready_s) + allreduce_s(sums[j] - sums[i]) for i in range(j)]
        ends_s.append(min(found))
        begins.append(found.index(ends_s[j]))
    return few_calls(gradients, allreduce_s, ends_s, begins, sums)


def few_calls(gradients, allreduce_s, ends_s, begins, sums):
    """From the last group to the first: each as large as may be, if what is before it can still be in time for it."""
    groups, j, until_s = [], len(gradients), ends_s[-1]
    while j:
        ready_s, calls = gradients[j - 1][0], range(begins[j] + 1)
        starts_s, times_s = [max(ends_s[i], ready_s) for i in calls], [allreduce_s(sums[j] - sums[i]) for i in calls]
        begin = next(i for i in calls if starts_s[i] + times_s[i] <= until_s)
        groups.append(range(begin, j))
        # how late it may start; the margin keeps the sum of the two, rounded, below until_s
        until_s = max(starts_s[begin], until_s - times_s[begin] - MARGIN * ends_s[-1])
        j = begin
    return groups[::-1]


def theta_bounds(gradients, groups):
    """(low, high): lazy allreduce forms exactly `groups` for low <= theta < high, so for none unless low < high.

    Each group must not have fired before its last gradient (low: the most bytes that had to wait), and each but the last
    must have fired with it (high: the fewest bytes that had to go).
    """
    def nbytes(group):
        return sum(gradients[i][1] for i in group)

    low = max((nbytes(group[:-1]) for group in groups), default=0)
    return low, min((nbytes(group) for group in groups[:-1]), default=inf)


def theta_interval(gradients, groups):
    """`theta_bounds`, or None if no theta forms these groups."""
    low, high = theta_bounds(gradients, groups)
    return (low, high) if low < high else None


def compare(gradients, line):
    """{"greedy": step_s, "exact": step_s, "excess": greedy / exact - 1} for one network and one line."""
    greedy = predict(gradients, greedy_merge(gradients, line), line).step_s
    exact = predict(gradients, exact_merge(gradients, line), line).step_s
    return {"greedy": greedy, "exact": exact, "excess": greedy / exact - 1}
