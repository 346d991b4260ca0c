"""Lesson 08: speedup and efficiency from times, a predicted step, weak and strong scaling.

No statement asks for these.
"""

from itertools import accumulate
from typing import Any

import numpy as np

from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise

ROUNDINGS = 1e-12  # the operations may be in another order: a few roundings of 1e-16

# ---- ring_seconds(p, nbytes, alpha, beta): given in the starter ----


def ring_seconds(p: int, nbytes: float, alpha: float, beta: float) -> float:
    return 2 * (p - 1) * (alpha + beta * nbytes / p)


def links(random: np.random.Generator) -> list[Arguments]:
    rows = [(4, 1000, 0.25, 0.001), (2, 0, 1e-5, 1e-9)]
    return rows + [(int(random.integers(2, 64)), int(random.integers(10**8)), 2e-5, 8e-10)]


RING_08 = Exercise("08.1", ring_seconds, relative=ROUNDINGS)
RING_08.part("several ranks", 1, links)
RING_08.part(
    "one rank takes no time",
    1,
    lambda random: [(1, n, 1e-5, 1e-9) for n in (10**6, int(random.integers(10**8)))],
)

# ---- speedup_and_efficiency(p, one_s, all_s, weak) ----


WEAK, STRONG, ONE = "weak scaling", "strong scaling", "one rank"


def speedup_and_efficiency(p: int, one_s: float, all_s: float, weak: bool) -> tuple[float, float]:
    speedup = one_s / all_s * (p if weak else 1)
    return speedup, 100 * speedup / p


def weak_times(random: np.random.Generator) -> list[Arguments]:
    """A step takes longer on p ranks."""
    p, one_s, more_s = int(random.integers(2, 512)), *random.uniform(0.2, 3.0, 2)
    return [(4, 2.0, 2.5, True), (512, 0.02, 0.025, True), (p, one_s, one_s + more_s, True)]


def strong_times(random: np.random.Generator) -> list[Arguments]:
    """A step takes less time on p ranks, but more than a p-th."""
    p, one_s, lost = int(random.integers(4, 64)), *random.uniform(1.1, 2.0, 2)
    return [(4, 2.0, 1.0, False), (8, 2.0, 0.5, False), (p, one_s, lost * one_s / p, False)]


def one_rank(random: np.random.Generator) -> list[Arguments]:
    both = 0.5, float(random.uniform(0.2, 3.0))
    return [(1, one_s, one_s, weak) for one_s in both for weak in (True, False)]


SPEEDUP_08 = Exercise("08.2", speedup_and_efficiency, relative=ROUNDINGS)
SPEEDUP_08.part(WEAK, 2, weak_times)
SPEEDUP_08.part(STRONG, 1, strong_times)
SPEEDUP_08.part(ONE, 1, one_rank)


SPEEDUP_08.given(
    "in weak scaling p ranks compute p batches in a step: count images per second",
    weak=lambda weak: False,
)
SPEEDUP_08.given(
    "in strong scaling all ranks share one batch: p is not a factor of the speedup",
    weak=lambda weak: True,
)


@SPEEDUP_08.mistake("your ratio is upside down: more time is less speedup")
def upside_down(p, one_s, all_s, weak):
    return speedup_and_efficiency(p, all_s, one_s, weak)


@SPEEDUP_08.mistake("your efficiency is a fraction; wanted percent")
def fraction(p, one_s, all_s, weak):
    speedup, percent = speedup_and_efficiency(p, one_s, all_s, weak)
    return speedup, percent / 100


@SPEEDUP_08.mistake("your efficiency in strong scaling is 100 times the speedup: divide by p")
def not_divided_by_p(p, one_s, all_s, weak):
    speedup, _ = speedup_and_efficiency(p, one_s, all_s, weak)
    return speedup, 100 * one_s / all_s


# ---- step_seconds(p, compute_s, ready_s, nbytes, alpha, beta) ----


LATE, HIDDEN = "calls queue, the last one ends after backward", "all calls end before backward"

GAPS, EDGE = "the link waits for gradients", "one rank, no gradients"


def last_end(
    ready_s: list[float], calls_s: list[float], queue: bool = True, wait: bool = True
) -> float:
    """The recurrence of the lesson. queue, wait: what a call waits for."""
    end_s = last_s = 0.0
    for i, (ready, call) in enumerate(zip(ready_s, calls_s)):
        last_s = max(last_s if queue else 0.0, ready if wait or not i else 0.0) + call
        end_s = max(end_s, last_s)
    return end_s


def step_seconds(
    p: int,
    compute_s: float,
    ready_s: list[float],
    nbytes: list[int],
    alpha: float,
    beta: float,
    **how: bool,
) -> float:
    calls_s = [ring_seconds(p, m, alpha, beta) for m in nbytes]
    return max(compute_s, last_end(ready_s, calls_s, **how))


def drawn(
    random: np.random.Generator, shortest_s: float, longest_s: float, low: int, high: int
) -> tuple[Any, ...]:
    """5 gradients whose ready times are this far apart, of low .. high MB. -> all but compute_s"""
    ready_s = list(accumulate(random.uniform(shortest_s, longest_s, 5).tolist()))
    nbytes = (1_000_000 * random.integers(low, high, 5)).tolist()
    return int(random.choice([2, 4, 8])), ready_s, nbytes, 1e-3, 1e-8


def step(drawing: tuple[Any, ...], compute_s: float) -> tuple[Any, ...]:
    p, ready_s, nbytes, alpha, beta = drawing
    return p, compute_s, ready_s, nbytes, alpha, beta


def late(random: np.random.Generator) -> list[Arguments]:
    """Gradients come faster than they are sent."""
    drawing = drawn(random, 0.1, 0.4, 100, 300)
    rows = [(2, 10.0, [4.0, 6.0, 10.0], [4, 5, 3], 0.5, 1.0)]
    return rows + [step(drawing, drawing[1][-1])]


def hidden(random: np.random.Generator) -> list[Arguments]:
    """The same, but compute_s ends a little after the last call."""
    p, ready_s, nbytes, alpha, beta = drawing = drawn(random, 0.1, 0.4, 100, 300)
    calls_s = [ring_seconds(p, m, alpha, beta) for m in nbytes]
    rows = [(2, 12.0, [4.0, 6.0, 6.5], [2, 1, 0], 0.5, 1.0)]
    return rows + [step(drawing, last_end(ready_s, calls_s) + 0.25)]


def gaps(random: np.random.Generator) -> list[Arguments]:
    """Each call ends before the next gradient is ready, the last one after backward."""
    drawing = drawn(random, 0.5, 2.0, 1, 20)
    rows = [(2, 10.0, [4.0, 8.0, 10.0], [2, 0, 3], 0.5, 1.0)]
    return rows + [step(drawing, drawing[1][-1])]


STEP_08 = Exercise("08.3", step_seconds, relative=ROUNDINGS)
STEP_08.part(LATE, 2, late)
STEP_08.part(HIDDEN, 1, hidden)
STEP_08.part(GAPS, 2, gaps)
STEP_08.part(
    EDGE,
    1,
    lambda random: [
        (1, 2.0, [1.0, 2.0], [10**6, 10**6], 1e-3, 1e-8),
        (4, 1.5, [], [], 1e-3, 1e-8),
        (4, float(random.uniform(0.2, 5.0)), [], [], 1e-3, 1e-8),
    ],
)


@STEP_08.mistake("you add all calls to the computation: this is the step without overlap")
def without_overlap(p, compute_s, ready_s, nbytes, alpha, beta):
    return compute_s + sum(ring_seconds(p, m, alpha, beta) for m in nbytes)


@STEP_08.mistake(
    "your calls start as soon as they are ready, although the link is still busy with the "
    "call before"
)
def all_at_once(p, compute_s, ready_s, nbytes, alpha, beta):
    return step_seconds(p, compute_s, ready_s, nbytes, alpha, beta, queue=False)


@STEP_08.mistake(
    "your calls follow each other without a gap, although their gradients are not ready"
)
def back_to_back(p, compute_s, ready_s, nbytes, alpha, beta):
    return step_seconds(p, compute_s, ready_s, nbytes, alpha, beta, wait=False)


STEP_08.given(
    "a step is never shorter than its computation, even if all calls end before",
    compute_s=lambda compute_s: 0.0,
)


@STEP_08.mistake(
    "you sum all gradients in one call at the end; eager exchange makes a call for each"
)
def one_call(p, compute_s, ready_s, nbytes, alpha, beta):
    return step_seconds(p, compute_s, ready_s[-1:], [sum(nbytes)], alpha, beta)


@STEP_08.mistake("each of the 2(p-1) messages of a call pays the latency, not the call once")
def one_latency(p, compute_s, ready_s, nbytes, alpha, beta):
    calls_s = [alpha + ring_seconds(p, m, 0.0, beta) for m in nbytes]
    return max(compute_s, last_end(ready_s, calls_s))


# ---- predicted_efficiency(p, one_s, nbytes, alpha, beta, weak) ----


def predicted_efficiency(
    p: int, one_s: float, nbytes: float, alpha: float, beta: float, weak: bool
) -> float:
    compute_s = one_s if weak else one_s / p
    return 100 * compute_s / (compute_s + ring_seconds(p, nbytes, alpha, beta))


def predictions(weak: bool) -> Drawn:
    def cases(random: np.random.Generator) -> list[Arguments]:
        p, one_s = int(random.integers(2, 2048)), float(random.uniform(0.2, 5.0))
        rows = [(4, 12.0, 1000, 0.25, 0.001), (512, 0.5, 10**8, 5e-6, 1e-9)]
        rows.append((p, one_s, int(random.integers(10**7, 10**9)), 1e-5, 1e-9))
        return [(*row, weak) for row in rows]

    return cases


PREDICTED_08 = Exercise("08.4", predicted_efficiency, relative=ROUNDINGS)
PREDICTED_08.part(WEAK, 2, predictions(True))
PREDICTED_08.part(STRONG, 2, predictions(False))
PREDICTED_08.part(
    ONE,
    1,
    lambda random: [
        (1, one_s, 10**8, 1e-5, 1e-9, weak)
        for one_s in (3.0, float(random.uniform(0.2, 5.0)))
        for weak in (True, False)
    ],
)


PREDICTED_08.given(
    "in strong scaling a rank computes a p-th of the batch, not all of it", weak=lambda weak: True
)


@PREDICTED_08.mistake(
    "in strong scaling the bytes stay: there are as many gradients as weights, however "
    "small the batch"
)
def fewer_bytes(p, one_s, nbytes, alpha, beta, weak):
    return predicted_efficiency(p, one_s, nbytes if weak else nbytes / p, alpha, beta, weak)


@PREDICTED_08.mistake(
    "in weak scaling the bytes stay: p ranks sum p vectors of the same length, and a ring "
    "sends almost twice this length from each rank"
)
def more_bytes(p, one_s, nbytes, alpha, beta, weak):
    return predicted_efficiency(p, one_s, p * nbytes if weak else nbytes, alpha, beta, weak)


@PREDICTED_08.mistake("in strong scaling your result is the speedup in percent: divide it by p")
def speedup_in_percent(p, one_s, nbytes, alpha, beta, weak):
    percent = predicted_efficiency(p, one_s, nbytes, alpha, beta, weak)
    return percent if weak else p * percent


@PREDICTED_08.mistake("you take the longer of computing and exchange; without overlap they add up")
def longer_one(p, one_s, nbytes, alpha, beta, weak):
    compute_s = one_s if weak else one_s / p
    return 100 * compute_s / max(compute_s, ring_seconds(p, nbytes, alpha, beta))


@PREDICTED_08.mistake(
    "your result is the exchange's share of the step; efficiency is what is left of 100 %"
)
def exchange_share(p, one_s, nbytes, alpha, beta, weak):
    return 100 - predicted_efficiency(p, one_s, nbytes, alpha, beta, weak)
