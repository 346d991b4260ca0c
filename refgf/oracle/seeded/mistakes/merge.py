"""Mistakes in calls in time, theta's groups, and merged gradients."""

from refgf.oracle.definitions import (
    computed_at,
    greedy_counts,
    lazy_step,
    step_times,
)
from refgf.oracle.seeded.mistakes.registry import mistake


def timed(ready_s, nbytes, counts, line, first=False, queue=True, latencies=False):
    """G1 with other rules, where computation has its full speed."""
    calls, free_s, i = [], 0.0, 0
    for count in counts:
        ready = ready_s[i if first else i + count - 1]
        start_s = max(free_s, ready) if queue else ready
        a_s = line[0] * (count if latencies else 1)
        calls.append((start_s, start_s + a_s + line[1] * sum(nbytes[i : i + count])))
        free_s, i = max(free_s, calls[-1][1]), i + count
    return calls, free_s


def ended(ready_s, calls, free_s, overlap, compute_s):
    """The calls, and the end of a step."""
    compute_s = max(ready_s, default=0.0) if compute_s is None else compute_s
    return calls, max(free_s, computed_at(compute_s, calls, overlap))


@mistake("G1", "step_times", "a call starts when the first gradient of its group is ready")
def with_the_first(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    calls, free_s = timed(ready_s, nbytes, counts, line, first=True)
    return ended(ready_s, calls, free_s, overlap, compute_s)


@mistake("G1", "step_times", "no call waits for the call before it")
def without_a_queue(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    calls, free_s = timed(ready_s, nbytes, counts, line, queue=False)
    return ended(ready_s, calls, free_s, overlap, compute_s)


@mistake("G1", "step_times", "a latency for each gradient of a group, not one for the call")
def a_latency_each(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    calls, free_s = timed(ready_s, nbytes, counts, line, latencies=True)
    return ended(ready_s, calls, free_s, overlap, compute_s)


@mistake("G1", "step_times", "all calls come after the last gradient")
def after_backward(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    last = [max(ready_s, default=0.0)] * len(ready_s)
    return step_times(last, nbytes, counts, line, overlap, compute_s)


@mistake("G1", "step_times", "the step ends with the last call, even if computation goes on")
def computation_forgotten(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    calls, step_s = step_times(ready_s, nbytes, counts, line, overlap, compute_s)
    return calls, calls[-1][1] if calls else step_s


@mistake("G2", "computed_at", "calls never slow the computation")
def never_slowed(work_s, calls, overlap):
    return work_s


@mistake("G2", "computed_at", "the computation stops during calls, whatever its share")
def always_stopped(work_s, calls, overlap):
    return computed_at(work_s, calls, 0.0)


@mistake("G2", "computed_at", "the share is what the computation loses, not what it keeps")
def share_reversed(work_s, calls, overlap):
    return computed_at(work_s, calls, 1.0 - overlap)


@mistake("G2", "computed_at", "the computation is slowed between calls too")
def slowed_between(work_s, calls, overlap):
    return computed_at(work_s, [(calls[0][0], calls[-1][1])] if calls else [], overlap)


def lazily(ready_s, nbytes, line, is_complete):
    """Groups that end where is_complete(waiting bytes, bytes of the next gradient or None)."""
    counts, waiting, count = [], 0, 0
    for size, after in zip(nbytes, [*nbytes[1:], None]):
        waiting, count = waiting + size, count + 1
        if after is None or is_complete(waiting, after):
            counts.append(count)
            waiting = count = 0
    return counts, *step_times(ready_s, nbytes, counts, line)


@mistake("G3", "lazy_step", "groups end at theta, not above it")
def ends_at_theta(ready_s, nbytes, theta_bytes, line):
    return lazily(ready_s, nbytes, line, lambda waiting, after: waiting >= theta_bytes)


@mistake("G3", "lazy_step", "the gradient that passes theta waits for the next call")
def passing_one_waits(ready_s, nbytes, theta_bytes, line):
    return lazily(ready_s, nbytes, line, lambda waiting, after: waiting + after > theta_bytes)


@mistake("G3", "lazy_step", "the last group is never sent")
def rest_never_sent(ready_s, nbytes, theta_bytes, line):
    counts, calls, step_s = lazy_step(ready_s, nbytes, theta_bytes, line)
    if counts and sum(nbytes[-counts[-1] :]) <= theta_bytes:
        counts, calls = counts[:-1], calls[:-1]
        step_s = max([*ready_s, *(end_s for _, end_s in calls)])
    return counts, calls, step_s


@mistake("G3", "lazy_step", "theta is ignored: every gradient by itself")
def theta_ignored(ready_s, nbytes, theta_bytes, line):
    return lazily(ready_s, nbytes, line, lambda waiting, after: True)


def greedily(ready_s, nbytes, small_bytes, a_s, starts_s):
    """Decisions with starts of calls that are not computed anew."""
    counts, waiting = [], 1
    for i in range(len(ready_s) - 1):
        group_bytes = sum(nbytes[i + 1 - waiting : i + 1])
        if ready_s[i + 1] - starts_s[i] < a_s or group_bytes < small_bytes:
            waiting += 1
        else:
            counts.append(waiting)
            waiting = 1
    return [*counts, waiting] if ready_s else []


@mistake("G4", "greedy_counts", "the wait counts from when the gradient is ready: queues forgotten")
def wait_from_ready(ready_s, nbytes, line, small_bytes=0):
    return greedily(ready_s, nbytes, small_bytes, line[0], ready_s)


@mistake("G4", "greedy_counts", "starts of calls are not computed anew after a merge")
def starts_of_eager(ready_s, nbytes, line, small_bytes=0):
    calls, _ = step_times(ready_s, nbytes, [1] * len(ready_s), line)
    return greedily(ready_s, nbytes, small_bytes, line[0], [start_s for start_s, _ in calls])


@mistake("G4", "greedy_counts", "waits for any gradient that is ready before the call would end")
def waits_a_whole_call(ready_s, nbytes, line, small_bytes=0):
    counts, waiting = [], 1
    for i in range(len(ready_s) - 1):
        calls, _ = step_times(ready_s[: i + 1], nbytes[: i + 1], [*counts, waiting], line)
        group_bytes = sum(nbytes[i + 1 - waiting : i + 1])
        if ready_s[i + 1] < calls[-1][1] or group_bytes < small_bytes:
            waiting += 1
        else:
            counts.append(waiting)
            waiting = 1
    return [*counts, waiting] if ready_s else []


@mistake("G4", "greedy_counts", "the wait counts from when the group's first gradient is ready")
def wait_from_the_first(ready_s, nbytes, line, small_bytes=0):
    counts, first, free_s = [], 0, 0.0
    for i in range(len(ready_s) - 1):
        group_bytes = sum(nbytes[first : i + 1])
        wait_s = ready_s[i + 1] - max(free_s, ready_s[first])
        if wait_s >= line[0] and group_bytes >= small_bytes:
            free_s = max(free_s, ready_s[i]) + line[0] + line[1] * group_bytes
            counts.append(i + 1 - first)
            first = i + 1
    return [*counts, len(ready_s) - first] if ready_s else []


@mistake("G4", "greedy_counts", "the last group is lost")
def last_group_forgotten(ready_s, nbytes, line, small_bytes=0):
    return greedy_counts(ready_s, nbytes, line, small_bytes)[:-1]


@mistake("G5", "joins", "merges where waiting takes exactly a latency")
def merges_at_a_tie(wait_s, a_s, group_bytes, small_bytes):
    return wait_s <= a_s or group_bytes < small_bytes


@mistake("G5", "joins", "small groups do not wait: small_bytes is ignored")
def small_ignored(wait_s, a_s, group_bytes, small_bytes):
    return wait_s < a_s


@mistake("G5", "joins", "a group of exactly small_bytes waits too")
def small_or_equal(wait_s, a_s, group_bytes, small_bytes):
    return wait_s < a_s or group_bytes <= small_bytes


@mistake("G5", "joins", "large groups are never merged, however short the wait")
def small_alone(wait_s, a_s, group_bytes, small_bytes):
    return group_bytes < small_bytes if small_bytes else wait_s < a_s


@mistake("G6", "best_counts", "the greedy rule, which is not the best")
def trusts_the_rule(ready_s, nbytes, line):
    return greedy_counts(ready_s, nbytes, line)


@mistake("G6", "best_counts", "one call or one for each gradient, whichever ends first")
def all_or_none(ready_s, nbytes, line):
    pair = ([1] * len(ready_s), [len(ready_s)] if ready_s else [])
    return min(pair, key=lambda counts: step_times(ready_s, nbytes, counts, line)[1])


@mistake("G6", "best_counts", "groups of at most two gradients")
def pairs_at_most(ready_s, nbytes, line):
    found = [[]]
    for _ in ready_s:
        longer = [[*counts[:-1], 2] for counts in found if counts and counts[-1] == 1]
        found = [[*counts, 1] for counts in found] + longer
    return min(found, key=lambda counts: step_times(ready_s, nbytes, counts, line)[1])


@mistake("G6", "best_counts", "the best theta: groups that no theta forms are not tried")
def best_theta(ready_s, nbytes, line):
    thetas = [0, *(sum(nbytes[i:j]) for j in range(len(nbytes) + 1) for i in range(j))]
    steps = [lazy_step(ready_s, nbytes, theta, line) for theta in thetas]
    return min(steps, key=lambda step: step[2])[0]
