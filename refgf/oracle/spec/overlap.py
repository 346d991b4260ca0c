"""Lesson 04: when gradients are ready, calls with and without overlap, the exposed time.

No statement asks for these. All times of the cases are eighths of a second, so sums are exact in
any order.
"""

from itertools import accumulate

import numpy as np

from refgf.oracle.spec.exercise import Arguments, Exercise

Times = list[float]
Calls = list[tuple[float, float]]  # (start, end) of each call
Cases = list[Arguments]


def eighths(random: np.random.Generator, low: int, high: int, n: int) -> Times:
    """n ascending times; each step lasts low .. high eighths of a second."""
    return np.cumsum(random.integers(low, high + 1, n) / 8).tolist()


# ---- ready_times(forward_s, layers_s): given in the starter ----


def ready_times(forward_s: float, layers_s: Times) -> Times:
    return [forward_s + float(backward_s) for backward_s in accumulate(layers_s)]


def no_or_one_layer(random: np.random.Generator) -> Cases:
    return [(3.0, []), (0.5, [0.25]), (*eighths(random, 1, 99, 1), eighths(random, 1, 99, 1))]


READY_04 = Exercise("04.1", ready_times)
READY_04.part("several layers", 1, lambda random: [(3.0, eighths(random, 1, 9, 6))])
READY_04.part("no layer, one layer", 1, no_or_one_layer)

# ---- the cases of the timelines: (ready_s, call_s) ----


FEW = "no call, one call, gradients ready together"


def queueing(random: np.random.Generator) -> Cases:
    """Every call but the first is ready before the one before it has ended."""
    rows = [([1.0, 1.5, 2.0], [2.0, 1.5, 3.0])]
    return rows + [(eighths(random, 1, 8, 5), (random.integers(9, 40, 5) / 8).tolist())]


def waiting(random: np.random.Generator) -> Cases:
    """Every call ends before the next one is ready."""
    rows = [([1.0, 3.0, 7.0], [0.5, 1.5, 1.0])]
    return rows + [(eighths(random, 10, 40, 5), (random.integers(1, 9, 5) / 8).tolist())]


def few(random: np.random.Generator) -> Cases:
    rows = [([], []), ([2.0], [0.5]), ([2.0, 2.0, 2.0], [0.5, 1.0, 0.25])]
    return [*rows, (eighths(random, 1, 99, 1), eighths(random, 1, 99, 1))]


def timeline(
    ready_s: Times, call_s: Times, queue: bool = True, wait: bool = True, delay: float = 0.0
) -> Calls:
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


def calls_with_overlap(ready_s: Times, call_s: Times) -> Calls:
    return timeline(ready_s, call_s)


OVERLAP_04 = Exercise("04.2", calls_with_overlap)
OVERLAP_04.part("calls that queue behind each other", 2, queueing)
OVERLAP_04.part("calls that wait for their gradients", 2, waiting)
OVERLAP_04.part(FEW, 1, few)


@OVERLAP_04.mistake(
    "your calls start as soon as they are ready, although the link is still busy with the call "
    "before"
)
def all_at_once(ready_s, call_s):
    return timeline(ready_s, call_s, queue=False)


@OVERLAP_04.mistake(
    "your calls follow each other without a gap, although their gradients are not ready"
)
def back_to_back(ready_s, call_s):
    return timeline(ready_s, call_s, wait=False)


@OVERLAP_04.mistake("your calls start when backward has ended: so nothing overlaps")
def after_backward(ready_s, call_s):
    return timeline(ready_s[-1:] * len(ready_s), call_s)


@OVERLAP_04.mistake("you return (start, duration); wanted (start, end)")
def start_and_duration(ready_s, call_s):
    return [(start, end - start) for start, end in timeline(ready_s, call_s)]


# ---- calls_without_overlap(ready_s, call_s) ----


def calls_without_overlap(ready_s: Times, call_s: Times) -> Calls:
    return timeline(ready_s, call_s, delay=1.0)


SEQUENTIAL_04 = Exercise("04.3", calls_without_overlap)
SEQUENTIAL_04.part(
    "backward is interrupted by each call", 3, lambda random: queueing(random) + waiting(random)
)
SEQUENTIAL_04.part(FEW, 1, few)
SEQUENTIAL_04.mistake(
    "your backward goes on during a call; without overlap one thread does both, so each call makes "
    "all later gradients late by its own duration"
)(calls_with_overlap)
SEQUENTIAL_04.mistake(
    "your calls come after the whole backward pass; without overlap, too, a call starts once its "
    "gradients are ready, and backward stops meanwhile"
)(after_backward)


@SEQUENTIAL_04.mistake(
    "you take the later of ready_s and the time of the calls before it; these calls delay "
    "backward, so their time is added"
)
def later_instead_of_added(ready_s, call_s):
    starts_s = map(max, ready_s, accumulate(call_s, initial=0.0))
    return [(start, start + duration) for start, duration in zip(starts_s, call_s)]


@SEQUENTIAL_04.mistake("a call is late by the calls before it, not by itself too")
def delayed_by_itself(ready_s, call_s):
    moved = [ready + duration for ready, duration in zip(ready_s, call_s)]
    return timeline(moved, call_s, delay=1.0)


# ---- exposed_and_hidden(ready_s, call_s, compute_s) ----


def exposed_and_hidden(ready_s: Times, call_s: Times, compute_s: float) -> tuple[float, float]:
    return split(call_s, max(0.0, after_computation(ready_s, call_s, compute_s)))


def after_computation(ready_s: Times, call_s: Times, compute_s: float) -> float:
    """From the end of computation to the last call's; negative if that is earlier."""
    return max((end for _, end in timeline(ready_s, call_s)), default=0.0) - compute_s


def split(call_s: Times, exposed_s: float) -> tuple[float, float]:
    return exposed_s, sum(call_s, 0.0) - exposed_s


def late(random: np.random.Generator) -> Cases:
    """Calls queue, and end after backward, which ends with the last gradient."""
    rows = [([1.0, 1.5, 2.0], [2.0, 1.5, 3.0], 2.0), ([4.0, 6.0], [3.0, 2.0], 8.0)]
    ready_s, call_s = queueing(random)[1]
    return rows + [(ready_s, call_s, ready_s[-1])]


def hidden(random: np.random.Generator) -> Cases:
    """Backward ends with the last call or later."""
    rows = [([1.0, 1.5, 2.0], [2.0, 1.5, 3.0], 8.0), ([1.0, 3.0], [0.5, 1.5], 4.5)]
    ready_s, call_s = queueing(random)[1]
    return rows + [(ready_s, call_s, ready_s[0] + sum(call_s) + 0.25)]


def gaps(random: np.random.Generator) -> Cases:
    """Calls wait for their gradients, and the last one ends after backward."""
    ready_s, call_s = waiting(random)[1]
    rows = [([1.0, 3.0, 7.0], [0.5, 1.5, 1.0], 7.0), ([1.0, 4.0, 4.5], [1.0, 2.0, 2.0], 5.0)]
    return rows + [(ready_s, call_s, ready_s[-1])]


def no_call(random: np.random.Generator) -> Cases:
    return [([], [], compute_s) for compute_s in (2.5, *eighths(random, 1, 99, 1))]


EXPOSED_04 = Exercise("04.4", exposed_and_hidden)
EXPOSED_04.part("the last call ends after backward", 2, late)
EXPOSED_04.part("all calls end before backward does", 1, hidden)
EXPOSED_04.part("the link waits between two calls", 2, gaps)
EXPOSED_04.part("no call", 1, no_call)


@EXPOSED_04.mistake("you take all communication as exposed: this is the step without overlap")
def nothing_hidden(ready_s, call_s, compute_s):
    return split(call_s, sum(call_s, 0.0))


@EXPOSED_04.mistake(
    "your hidden time is compute_s less the exposed time; wanted the calls' time less the exposed "
    "time"
)
def hidden_of_computation(ready_s, call_s, compute_s):
    exposed_s, _ = exposed_and_hidden(ready_s, call_s, compute_s)
    return exposed_s, compute_s - exposed_s


@EXPOSED_04.mistake(
    "your exposed time is negative when the calls end before backward; a step is never shorter "
    "than its computation"
)
def negative_exposed(ready_s, call_s, compute_s):
    return split(call_s, after_computation(ready_s, call_s, compute_s))


@EXPOSED_04.mistake(
    "you compute what can be hidden at best; a call that waits for its gradients leaves the link "
    "idle, so less is hidden"
)
def what_can_be_hidden(ready_s, call_s, compute_s):
    left_s = compute_s - ready_s[0] if ready_s else 0.0
    return split(call_s, max(0.0, sum(call_s, 0.0) - left_s))


@EXPOSED_04.mistake(
    "you subtract computation from communication, but no call can hide behind what comes before "
    "the first gradient"
)
def communication_less_computation(ready_s, call_s, compute_s):
    return split(call_s, max(0.0, sum(call_s, 0.0) - compute_s))


@EXPOSED_04.mistake(
    "your exposed time is the last call; some of it may be hidden, or others exposed too"
)
def the_last_call(ready_s, call_s, compute_s):
    return split(call_s, float(call_s[-1]) if call_s else 0.0)
