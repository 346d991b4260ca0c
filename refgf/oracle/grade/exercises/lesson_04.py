"""Lesson 04: when gradients are ready, calls with and without overlap, the exposed time.

All times of the cases are eighths of a second, so sums are exact in any order.
"""

from itertools import accumulate

import numpy as np

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part

# ---- ready_times(forward_s, layers_s): given in the starter ----


def ready_times(forward_s, layers_s):
    return [forward_s + float(backward_s) for backward_s in accumulate(layers_s)]


def eighths(random, low, high, n):
    """n ascending times; each step lasts low .. high eighths of a second."""
    return np.cumsum(random.integers(low, high + 1, n) / 8).tolist()


def no_or_one_layer(random):
    return [(3.0, []), (0.5, [0.25]), (*eighths(random, 1, 99, 1), eighths(random, 1, 99, 1))]


READY = Exercise(
    "ready_times",
    ready_times,
    (
        Part("several layers", 1, lambda random: [(3.0, eighths(random, 1, 9, 6))]),
        Part("no layer, one layer", 1, no_or_one_layer),
    ),
)

# ---- the cases of the timelines: (ready_s, call_s) ----


def queueing(random):
    """Every call but the first is ready before the one before it has ended."""
    rows = [([1.0, 1.5, 2.0], [2.0, 1.5, 3.0])]
    return rows + [(eighths(random, 1, 8, 5), (random.integers(9, 40, 5) / 8).tolist())]


def waiting(random):
    """Every call ends before the next one is ready."""
    rows = [([1.0, 3.0, 7.0], [0.5, 1.5, 1.0])]
    return rows + [(eighths(random, 10, 40, 5), (random.integers(1, 9, 5) / 8).tolist())]


def few(random):
    rows = [([], []), ([2.0], [0.5]), ([2.0, 2.0, 2.0], [0.5, 1.0, 0.25])]
    return [*rows, (eighths(random, 1, 99, 1), eighths(random, 1, 99, 1))]


QUEUE, WAIT = "calls that queue behind each other", "calls that wait for their gradients"
FEW = "no call, one call, gradients ready together"


def timeline(ready_s, call_s, queue=True, wait=True, delay=0.0):
    """The recurrence of the lesson. delay: the share of the calls by which they delay backward."""
    calls, free_s, late_s = [], 0.0, 0.0
    for i, (ready, duration) in enumerate(zip(ready_s, call_s)):
        earliest_s = ready + late_s if wait or not i else 0.0
        start_s = max(earliest_s, free_s if queue else 0.0)
        free_s = start_s + duration
        late_s += delay * duration
        calls.append((start_s, free_s))
    return calls


# ---- calls_with_overlap(ready_s, call_s) ----


def calls_with_overlap(ready_s, call_s):
    return timeline(ready_s, call_s)


def all_at_once(ready_s, call_s):
    return timeline(ready_s, call_s, queue=False)


def back_to_back(ready_s, call_s):
    return timeline(ready_s, call_s, wait=False)


def after_backward(ready_s, call_s):
    return timeline(ready_s[-1:] * len(ready_s), call_s)


def start_and_duration(ready_s, call_s):
    return [(start, end - start) for start, end in timeline(ready_s, call_s)]


OVERLAP = Exercise(
    "calls_with_overlap",
    calls_with_overlap,
    (Part(QUEUE, 2, queueing), Part(WAIT, 2, waiting), Part(FEW, 1, few)),
    (
        Mistake(
            "your calls start as soon as they are ready, although the link is still busy with the "
            "call before",
            all_at_once,
            (QUEUE, FEW),
        ),
        Mistake(
            "your calls follow each other without a gap, although their gradients are not ready",
            back_to_back,
            (WAIT,),
        ),
        Mistake(
            "your calls start when backward has ended: so nothing overlaps",
            after_backward,
            (QUEUE, WAIT),
        ),
        Mistake(
            "you return (start, duration); wanted (start, end)",
            start_and_duration,
            (QUEUE, WAIT, FEW),
        ),
    ),
)

# ---- calls_without_overlap(ready_s, call_s) ----


def calls_without_overlap(ready_s, call_s):
    return timeline(ready_s, call_s, delay=1.0)


def delayed_by_itself(ready_s, call_s):
    moved = [ready + duration for ready, duration in zip(ready_s, call_s)]
    return timeline(moved, call_s, delay=1.0)


BUSY = "backward is interrupted by each call"

SEQUENTIAL = Exercise(
    "calls_without_overlap",
    calls_without_overlap,
    (Part(BUSY, 3, lambda random: queueing(random) + waiting(random)), Part(FEW, 1, few)),
    (
        Mistake(
            "your backward goes on during a call; without overlap one thread does both, so each "
            "call makes all later gradients late by its own duration",
            calls_with_overlap,
            (BUSY,),
        ),
        Mistake(
            "your calls come after the whole backward pass; without overlap, too, a call starts "
            "once its gradients are ready, and backward stops meanwhile",
            after_backward,
            (BUSY,),
        ),
        Mistake(
            "a call is late by the calls before it, not by itself too",
            delayed_by_itself,
            (BUSY, FEW),
        ),
    ),
)

# ---- exposed_and_hidden(ready_s, call_s, compute_s) ----


def exposed_and_hidden(ready_s, call_s, compute_s):
    end_s = max((end for _, end in timeline(ready_s, call_s)), default=0.0)
    return split(call_s, max(0.0, end_s - compute_s))


def split(call_s, exposed_s):
    return exposed_s, sum(call_s, 0.0) - exposed_s


def nothing_hidden(ready_s, call_s, compute_s):
    return split(call_s, sum(call_s, 0.0))


def negative_exposed(ready_s, call_s, compute_s):
    end_s = max((end for _, end in timeline(ready_s, call_s)), default=0.0)
    return split(call_s, end_s - compute_s)


def what_can_be_hidden(ready_s, call_s, compute_s):
    left_s = compute_s - ready_s[0] if ready_s else 0.0
    return split(call_s, max(0.0, sum(call_s, 0.0) - left_s))


def communication_less_computation(ready_s, call_s, compute_s):
    return split(call_s, max(0.0, sum(call_s, 0.0) - compute_s))


def the_last_call(ready_s, call_s, compute_s):
    return split(call_s, float(call_s[-1]) if call_s else 0.0)


LATE, HIDDEN = "the last call ends after backward", "all calls end before backward does"
GAPS, NO_CALL = "the link waits between two calls", "no call"


def late(random):
    """Calls queue, and end after backward, which ends with the last gradient."""
    rows = [([1.0, 1.5, 2.0], [2.0, 1.5, 3.0], 2.0), ([4.0, 6.0], [3.0, 2.0], 8.0)]
    ready_s, call_s = queueing(random)[1]
    return rows + [(ready_s, call_s, ready_s[-1])]


def hidden(random):
    """Backward ends with the last call or later."""
    rows = [([1.0, 1.5, 2.0], [2.0, 1.5, 3.0], 8.0), ([1.0, 3.0], [0.5, 1.5], 4.5)]
    ready_s, call_s = queueing(random)[1]
    return rows + [(ready_s, call_s, ready_s[0] + sum(call_s) + 0.25)]


def gaps(random):
    """Calls wait for their gradients, and the last one ends after backward."""
    ready_s, call_s = waiting(random)[1]
    rows = [([1.0, 3.0, 7.0], [0.5, 1.5, 1.0], 7.0), ([1.0, 4.0, 4.5], [1.0, 2.0, 2.0], 5.0)]
    return rows + [(ready_s, call_s, ready_s[-1])]


EXPOSED = Exercise(
    "exposed_and_hidden",
    exposed_and_hidden,
    (
        Part(LATE, 2, late),
        Part(HIDDEN, 1, hidden),
        Part(GAPS, 2, gaps),
        Part(NO_CALL, 1, lambda random: [([], [], s) for s in (2.5, *eighths(random, 1, 99, 1))]),
    ),
    (
        Mistake(
            "you take all communication as exposed: this is the step without overlap",
            nothing_hidden,
            (LATE, HIDDEN, GAPS),
        ),
        Mistake(
            "your exposed time is negative when the calls end before backward; a step is never "
            "shorter than its computation",
            negative_exposed,
            (HIDDEN, NO_CALL),
        ),
        Mistake(
            "you compute what can be hidden at best; a call that waits for its gradients leaves "
            "the link idle, so less is hidden",
            what_can_be_hidden,
            (GAPS,),
        ),
        Mistake(
            "you subtract computation from communication, but no call can hide behind what comes "
            "before the first gradient",
            communication_less_computation,
            (LATE, GAPS),
        ),
        Mistake(
            "your exposed time is the last call; some of it may be hidden, or others exposed too",
            the_last_call,
            (LATE, HIDDEN, GAPS),
        ),
    ),
)

EXERCISES = (READY, OVERLAP, SEQUENTIAL, EXPOSED)
