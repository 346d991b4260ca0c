"""Exercise step_end(ready_s, nbytes, counts, a_s, b_s_per_byte)."""

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_09.cases import FEW, few, sizes, times

IDLE, QUEUED = "one gradient a call, the link is idle in between", "calls wait for the one before"
MERGED = "several gradients a call"


def calls(ready_s, nbytes, counts):
    """[(first ready, last ready, bytes, gradients)] of each call."""
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    return [
        (ready_s[end - count], ready_s[end - 1], sum(nbytes[end - count : end]), count)
        for end, count in zip(ends, counts)
    ]


def step_end(ready_s, nbytes, counts, a_s, b_s_per_byte):
    end_s = 0.0
    for _, ready, size, _ in calls(ready_s, nbytes, counts):
        end_s = max(end_s, ready) + a_s + b_s_per_byte * size
    return end_s


def starts_with_the_first(ready_s, nbytes, counts, a_s, b_s_per_byte):
    end_s = 0.0
    for ready, _, size, _ in calls(ready_s, nbytes, counts):
        end_s = max(end_s, ready) + a_s + b_s_per_byte * size
    return end_s


def without_a_queue(ready_s, nbytes, counts, a_s, b_s_per_byte):
    ends = [
        ready + a_s + b_s_per_byte * size for _, ready, size, _ in calls(ready_s, nbytes, counts)
    ]
    return max(ends, default=0.0)


def never_idle(ready_s, nbytes, counts, a_s, b_s_per_byte):
    start_s = ready_s[counts[0] - 1] if counts else 0.0
    return start_s + a_s * len(counts) + b_s_per_byte * sum(nbytes)


def after_backward(ready_s, nbytes, counts, a_s, b_s_per_byte):
    return max(ready_s, default=0.0) + a_s * len(counts) + b_s_per_byte * sum(nbytes)


def a_latency_each(ready_s, nbytes, counts, a_s, b_s_per_byte):
    end_s = 0.0
    for _, ready, size, count in calls(ready_s, nbytes, counts):
        end_s = max(end_s, ready) + a_s * count + b_s_per_byte * size
    return end_s


def one_latency(ready_s, nbytes, counts, a_s, b_s_per_byte):
    return step_end(ready_s, nbytes, counts, 0, b_s_per_byte) + a_s * bool(counts)


def singly(gaps, slow):
    """Cases of one gradient a call; slow: a_s and b_s_per_byte."""

    def cases(random):
        found = []
        for n in (3, 5, 8):
            ready_s = times(random.integers(*gaps, n - 1).tolist())
            found.append((ready_s, sizes(random, n), [1] * n, *slow))
        return found

    return cases


def merged(random):
    """Groups of two and more; between calls the link is idle."""
    found = []
    for counts in ([2, 3], [1, 4, 2], [5]):
        n = sum(counts)
        ready_s = times(random.integers(200, 300, n - 1).tolist())
        found.append((ready_s, sizes(random, n), counts, 7.0, 1.0))
    return found


STEP_END = Exercise(
    "step_end",
    step_end,
    (
        Part(IDLE, 1, singly((50, 90), (10.0, 1.0))),
        Part(QUEUED, 1, singly((1, 10), (11.0, 2.0))),
        Part(MERGED, 1, merged),
        Part(FEW, 1, lambda random: [(*r, [1] * len(r[0]), 2.0, 0.5) for r in few(random)]),
    ),
    (
        Mistake(
            "a call starts when the last gradient of its group is ready, not the first",
            starts_with_the_first,
            (MERGED,),
        ),
        Mistake(
            "a call cannot start before the end of the call before: they share the link",
            without_a_queue,
            (QUEUED,),
        ),
        Mistake(
            "your calls follow each other without a pause, but a call waits for its gradients",
            never_idle,
            (IDLE, MERGED),
        ),
        Mistake(
            "you communicate after backward, but a call starts as soon as its gradients are ready",
            after_backward,
            (IDLE, QUEUED, MERGED),
        ),
        Mistake(
            "a call pays one latency, however many gradients it sums", a_latency_each, (MERGED,)
        ),
        Mistake("every call pays a latency, not one call of the step", one_latency, (QUEUED,)),
    ),
    relative=1e-12,  # the operations may be in another order: a few roundings of 1e-16
)
