"""G1 to G3: the calls of a step in time, and theta's groups.

Of the golden cases ready times and latencies are multiples of 1/64, the time of a byte is 1/32 to
1/256, and all are small: every end is exact in float64, in any order of evaluation, and so is every
comparison.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, named, number
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, groups, pick, random_source
from refgf.oracle.spec.lazy.calls import lazy_calls
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

Line = tuple[float, float]
Times = list[tuple[float, float]]  # (start, end) of each call
U = 2.0**-53
FEW = {"no-gradient": [], "one-gradient": [(2.5, 7)]}  # (ready, bytes)

# ---- cases of all functions ----


def network(rng: np.random.Generator, count: int) -> tuple[Given, list[float]]:
    """Times and sizes that spread; latencies and bytes both matter. -> inputs, line"""
    gaps = rng.integers(1, 2 ** rng.integers(3, 9, count))
    nbytes = rng.integers(1, 2 ** rng.integers(2, 12, count))
    line = [int(rng.integers(1, 160)) / 64, 2.0 ** -int(rng.integers(5, 9))]
    return {"ready_s": np.cumsum(gaps) / 64, "nbytes": nbytes}, line


def inputs_of(pairs: list[tuple[float, int]]) -> Given:
    columns = zip(*pairs) if pairs else ([], [])
    ready_s, nbytes = columns
    return {"ready_s": np.array(ready_s, np.float64), "nbytes": np.array(nbytes, np.int64)}


def gradients(case: Case) -> tuple[list[float], list[int]]:
    """Ready times in seconds, and bytes."""
    return case["in.ready_s"].tolist(), case["in.nbytes"].tolist()


def times_of(calls: Times, step_s: float) -> Outputs:
    """(start, end) of each call, and the end of the step."""
    ends = np.array(calls, np.float64).reshape(len(calls), 2)
    return named(("calls", "step_s"), (ends, np.float64(step_s)))


def rounded(case: Case) -> Given:
    """The bound of SPEC.md, G: each of k calls adds at most eight roundings of a time of the step.

    No such time is larger than the step, and maxima and sums carry errors on at most as they are.
    """
    calls, step_s = case["out.calls"], float(case["out.step_s"])
    bound = 8 * (len(calls) + 1) * U * step_s
    return {"calls": bound * np.ones(calls.shape), "step_s": np.float64(bound)}


def drawn_gradients(d: Draw, largest: int = 40) -> tuple[Given, list[float]]:
    """Exact in float64, so that comparisons are. -> inputs, line"""
    return network(d.rng, 1 + d.n % largest)


# ---- G1, G2: calls in time ----


def step_times(
    ready_s: list[float],
    nbytes: list[int],
    counts: list[int],
    line: Line,
    overlap: float = 1.0,
    compute_s: float | None = None,
) -> tuple[Times, float]:
    """G1: a call sums a group of neighbours. It starts when the last gradient of its group is ready
    and the call before it has ended. The step ends with the computation or with the last call.

    Source: MG-WFBP's and PyDTNN's code.

    The computation ends by default with the last gradient. -> ([(start, end)] of each call, end of
        the step)
    """
    calls, free_s, first = Times(), 0.0, 0
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
    """G2: while a call is in flight the computation keeps the share `overlap` of its speed, between
    calls all of it; ready times are given for full speed.

    Source: chosen: 1 is full overlap, 0 none.

    -> when `work_s` seconds of computing are done
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


def run_times(module: Any, case: Case) -> Outputs:
    a, line = case.arguments, tuple(case.arguments["line"])
    more = a["overlap"], a["compute_s"]
    return times_of(*module.step_times(*gradients(case), a["counts"], line, *more))


G1 = Statement("G1", step_times)
G2 = Statement("G2", computed_at)
TIMES = {"calls": ("call", "start, end"), "step_s": ()}
STEP = JudgedFunction(step_times, "G1 G2", TIMES, "ready_s nbytes", run_times, bound=rounded)


@STEP.fresh
def any_times(d: Draw) -> Given:
    arrays, line = drawn_gradients(d)
    counts = groups(d.rng, len(arrays["nbytes"]))
    compute_s = pick(d.rng, None, float(arrays["ready_s"][-1]) * pick(d.rng, 1.0, 1.5, 4.0))
    more = {"overlap": pick(d.rng, 1.0, 0.75, 0.5, 0.25, 0.0), "compute_s": compute_s}
    return {"counts": counts, "line": line, **more, **arrays}


@STEP.golden
def time_cases() -> Cases:
    rng = random_source("step-times")
    arrays, line = network(rng, 12)
    end_s = float(arrays["ready_s"][-1])
    groupings = {"eager": [1] * 12, "merged": [3, 1, 5, 1, 2], "one-call": [12]}
    for name, counts in groupings.items():
        for overlap in (1.0, 0.5, 0.25, 0.0):
            for late, compute_s in (("", None), ("-late", 4 * end_s)):
                title = f"step-{name}-overlap-{overlap:g}{late}"
                why = f"computation keeps {overlap:g} of its speed in calls"
                why += ", and goes on after the last gradient" * bool(late)
                given: Given = {"counts": counts, "line": line, "overlap": overlap}
                yield STEP.within(STEP.case(title, why, **given, compute_s=compute_s, **arrays))
    for name, pairs in FEW.items():
        given = {"counts": [1] * len(pairs), "line": line, "overlap": 0.5, "compute_s": None}
        yield STEP.within(
            STEP.case(f"step-{name}", name.replace("-", " "), **given, **inputs_of(pairs))
        )


def timed(
    ready_s: list[float],
    nbytes: list[int],
    counts: list[int],
    line: Line,
    first: bool = False,
    queue: bool = True,
    latencies: bool = False,
) -> tuple[Times, float]:
    """G1 with other rules, without a computation. -> (calls, end of the last one)"""
    calls, free_s, i = [], 0.0, 0
    for count in counts:
        ready = ready_s[i if first else i + count - 1]
        start_s = max(free_s, ready) if queue else ready
        a_s = line[0] * (count if latencies else 1)
        calls.append((start_s, start_s + a_s + line[1] * sum(nbytes[i : i + count])))
        free_s, i = max(free_s, calls[-1][1]), i + count
    return calls, free_s


def and_computed(
    ready_s: list[float], timed: tuple[Times, float], overlap: float, compute_s: float | None
) -> tuple[Times, float]:
    """The calls, and the end of a step with a computation."""
    calls, free_s = timed
    compute_s = max(ready_s, default=0.0) if compute_s is None else compute_s
    return calls, max(free_s, computed_at(compute_s, calls, overlap))


@G1.mistake("a call starts when the first gradient of its group is ready")
def with_the_first(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    found = timed(ready_s, nbytes, counts, line, first=True)
    return and_computed(ready_s, found, overlap, compute_s)


@G1.mistake("no call waits for the call before it")
def without_a_queue(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    found = timed(ready_s, nbytes, counts, line, queue=False)
    return and_computed(ready_s, found, overlap, compute_s)


@G1.mistake("a latency for each gradient of a group, not one for the call")
def a_latency_each(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    found = timed(ready_s, nbytes, counts, line, latencies=True)
    return and_computed(ready_s, found, overlap, compute_s)


@G1.mistake("all calls come after the last gradient")
def after_backward(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    last = [max(ready_s, default=0.0)] * len(ready_s)
    return step_times(last, nbytes, counts, line, overlap, compute_s)


@G1.mistake("the step ends with the last call, even if computation goes on")
def computation_forgotten(ready_s, nbytes, counts, line, overlap=1.0, compute_s=None):
    calls, step_s = step_times(ready_s, nbytes, counts, line, overlap, compute_s)
    return calls, calls[-1][1] if calls else step_s


@G2.mistake("calls never slow the computation")
def never_slowed(work_s, calls, overlap):
    return work_s


@G2.mistake("the computation stops during calls, whatever its share")
def always_stopped(work_s, calls, overlap):
    return computed_at(work_s, calls, 0.0)


@G2.mistake("the share is what the computation loses, not what it keeps")
def share_reversed(work_s, calls, overlap):
    return computed_at(work_s, calls, 1.0 - overlap)


@G2.mistake("the computation is slowed between calls too")
def slowed_between(work_s, calls, overlap):
    return computed_at(work_s, [(calls[0][0], calls[-1][1])] if calls else [], overlap)


# ---- G3: theta's groups ----


def lazy_step(
    ready_s: list[float], nbytes: list[int], theta_bytes: float, line: Line
) -> tuple[list[int], Times, float]:
    """G3: theta's groups (L1, L2) in time: theta = 0 is wait-free backpropagation (WFBP), infinity
    one call (SyncEASGD).

    Source: follows from L1, L2, G1.

    -> (counts, calls, end of the step)
    """
    ends = list(accumulate(nbytes))
    counts = [sum(i < end <= j for end in ends) for i, j in lazy_calls(nbytes, 1, theta_bytes)]
    return counts, *step_times(ready_s, nbytes, counts, line)


def run_lazily(module: Any, case: Case) -> Outputs:
    a, line = case.arguments, tuple(case.arguments["line"])
    counts, *timed = module.lazy_step(*gradients(case), number(a["theta_bytes"]), line)
    return {"out.counts": np.array(counts, np.int64), **times_of(*timed)}


G3 = Statement("G3", lazy_step)
AXES = {"counts": ("group",), **TIMES}
LAZY_STEP = JudgedFunction(lazy_step, "G3 L1 L2", AXES, "ready_s nbytes", run_lazily, bound=rounded)


@LAZY_STEP.fresh
def any_theta(d: Draw) -> Given:
    arrays, line = drawn_gradients(d)
    first = int(arrays["nbytes"][: d.integer(1, 5)].sum())
    return {"theta_bytes": pick(d.rng, 0, "inf", first, first + 1), "line": line, **arrays}


@LAZY_STEP.golden
def theta_cases() -> Cases:
    rng = random_source("lazy-step")
    arrays, line = network(rng, 15)
    first = int(arrays["nbytes"][:4].sum())
    for theta in (0, 1, first - 1, first, first + 1, "inf"):
        why = f"theta {theta}: the first four gradients have {first} bytes"
        given: Given = {"theta_bytes": theta, "line": line}
        case = LAZY_STEP.case(f"lazy-step-theta-{theta}", why, **given, **arrays)
        counts = case["out.counts"].tolist()
        if theta in (0, "inf"):
            case.shows(counts == ([1] * 15 if theta == 0 else [15]), "one by one, or one call")
        yield LAZY_STEP.within(case)
    for name, pairs in FEW.items():
        given = {"theta_bytes": 7, "line": line, **inputs_of(pairs)}
        yield LAZY_STEP.within(
            LAZY_STEP.case(f"lazy-step-{name}", name.replace("-", " "), "G3", **given)
        )


def lazily(
    ready_s: list[float], nbytes: list[int], line: Line, is_complete: Callable[..., Any]
) -> tuple[list[int], Times, float]:
    """Groups that end where is_complete(waiting bytes, bytes of the next gradient or None)."""
    counts, waiting, count = [], 0, 0
    for size, after in zip(nbytes, [*nbytes[1:], None]):
        waiting, count = waiting + size, count + 1
        if after is None or is_complete(waiting, after):
            counts.append(count)
            waiting = count = 0
    return counts, *step_times(ready_s, nbytes, counts, line)


@G3.mistake("groups end at theta, not above it")
def ends_at_theta(ready_s, nbytes, theta_bytes, line):
    return lazily(ready_s, nbytes, line, lambda waiting, after: waiting >= theta_bytes)


@G3.mistake("the gradient that passes theta waits for the next call")
def passing_one_waits(ready_s, nbytes, theta_bytes, line):
    return lazily(ready_s, nbytes, line, lambda waiting, after: waiting + after > theta_bytes)


@G3.mistake("the last group is never sent")
def rest_never_sent(ready_s, nbytes, theta_bytes, line):
    counts, calls, step_s = lazy_step(ready_s, nbytes, theta_bytes, line)
    if counts and sum(nbytes[-counts[-1] :]) <= theta_bytes:
        counts, calls = counts[:-1], calls[:-1]
        step_s = max([*ready_s, *(end_s for _, end_s in calls)])
    return counts, calls, step_s


@G3.mistake("theta is ignored: every gradient by itself")
def theta_ignored(ready_s, nbytes, theta_bytes, line):
    return lazily(ready_s, nbytes, line, lambda waiting, after: True)
