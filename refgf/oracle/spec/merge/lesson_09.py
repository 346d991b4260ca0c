"""Lesson 09: all groupings, the end of a step, the greedy rule of MG-WFBP, the best grouping."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise
from refgf.oracle.spec.merge.groups import (
    all_or_none,
    best_counts,
    decided,
    greedy_counts,
    groupings,
    last_group_forgotten,
    pairs_at_most,
    wait_from_ready,
    wait_from_the_first,
    waits_a_whole_call,
)
from refgf.oracle.spec.merge.times import step_times, timed

ONE_OR_NONE = "one gradient, no gradient"
ROUNDINGS = 1e-12  # the operations may be in another order: a few roundings of 1e-16


def all_groupings(count: int) -> list[list[int]]:
    return list(groupings(count))


GROUPINGS_09 = Exercise("09.1", all_groupings, "groupings")
GROUPINGS_09.part("several gradients", 1, lambda random: [(n,) for n in (2, 3, 7)])
GROUPINGS_09.part(ONE_OR_NONE, 1, lambda random: [(1,), (0,)])


# ---- the end of a step ----


def step_end(
    ready_s: list[float], nbytes: list[int], counts: list[int], a_s: float, b_s_per_byte: float
) -> float:
    """The end of the last call."""
    return step_times(ready_s, nbytes, counts, (a_s, b_s_per_byte))[1]


def ready_after(gaps: Sequence[float]) -> list[float]:
    """Gaps between ready times -> ready times, the first one 3."""
    return [3.0 + sum(gaps[:i]) for i in range(len(gaps) + 1)]


def sizes(random: np.random.Generator, count: int) -> list[int]:
    return random.integers(1, 20, count).tolist()


def few(random: np.random.Generator) -> list[Arguments]:
    """[(ready_s, nbytes)] of one gradient, none, and one that is drawn."""
    return [([5.0], [3]), ([], []), (random.uniform(2.0, 9.0, 1).tolist(), sizes(random, 1))]


def singly(gaps: tuple[int, int], slow: tuple[float, float]) -> Drawn:
    """Cases of one gradient a call; slow: a_s and b_s_per_byte."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        found = []
        for n in (3, 5, 8):
            ready_s = ready_after(random.integers(*gaps, n - 1).tolist())
            found.append((ready_s, sizes(random, n), [1] * n, *slow))
        return found

    return cases


def merged(random: np.random.Generator) -> list[Arguments]:
    """Groups of two and more; between calls the link is idle."""
    found = []
    for counts in ([2, 3], [1, 4, 2], [5]):
        n = sum(counts)
        ready_s = ready_after(random.integers(200, 300, n - 1).tolist())
        found.append((ready_s, sizes(random, n), counts, 7.0, 1.0))
    return found


END_09 = Exercise("09.2", step_end, relative=ROUNDINGS)
END_09.part("one gradient a call, the link is idle in between", 1, singly((50, 90), (10.0, 1.0)))
END_09.part("calls wait for the one before", 1, singly((1, 10), (11.0, 2.0)))
END_09.part("several gradients a call", 1, merged)
END_09.part(ONE_OR_NONE, 1, lambda random: [(*r, [1] * len(r[0]), 2.0, 0.5) for r in few(random)])


@END_09.mistake("a call starts when the last gradient of its group is ready, not the first")
def ends_from_the_first(ready_s, nbytes, counts, a_s, b_s_per_byte):
    return timed(ready_s, nbytes, counts, (a_s, b_s_per_byte), first=True)[1]


@END_09.mistake("a call cannot start before the end of the call before: they share the link")
def ends_without_a_queue(ready_s, nbytes, counts, a_s, b_s_per_byte):
    return timed(ready_s, nbytes, counts, (a_s, b_s_per_byte), queue=False)[1]


@END_09.mistake("your calls follow each other without a pause, but a call waits for its gradients")
def never_idle(ready_s, nbytes, counts, a_s, b_s_per_byte):
    start_s = ready_s[counts[0] - 1] if counts else 0.0
    return start_s + a_s * len(counts) + b_s_per_byte * sum(nbytes)


@END_09.mistake(
    "you communicate after backward, but a call starts as soon as its gradients are ready"
)
def ends_after_backward(ready_s, nbytes, counts, a_s, b_s_per_byte):
    return max(ready_s, default=0.0) + a_s * len(counts) + b_s_per_byte * sum(nbytes)


@END_09.mistake("a call pays one latency, however many gradients it sums")
def ends_with_latencies(ready_s, nbytes, counts, a_s, b_s_per_byte):
    return timed(ready_s, nbytes, counts, (a_s, b_s_per_byte), latencies=True)[1]


@END_09.mistake("every call pays a latency, not one call of the step")
def one_latency(ready_s, nbytes, counts, a_s, b_s_per_byte):
    return step_end(ready_s, nbytes, counts, 0, b_s_per_byte) + a_s * bool(counts)


# ---- the greedy rule ----


def faster(random: np.random.Generator, *cases: tuple[Any, ...]) -> list[Arguments]:
    """The cases, and all of them with times that are multiplied: no decision changes.

    A case is (ready_s, nbytes, a_s, b_s_per_byte).
    """
    return [
        ([k * t for t in ready_s], nbytes, k * a_s, k * b_s_per_byte)
        for k in (1.0, float(random.integers(2, 999)))
        for ready_s, nbytes, a_s, b_s_per_byte in cases
    ]


def of_a_line(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A function of (ready_s, nbytes, line) as one of (ready_s, nbytes, a_s, b_s_per_byte)."""
    return lambda ready_s, nbytes, a_s, b_s_per_byte: rule(ready_s, nbytes, (a_s, b_s_per_byte))


def long_and_short_gaps(random: np.random.Generator) -> list[Arguments]:
    """A latency is 10. Short gaps are shorter, but two of them longer; long ones outlast a call."""
    found = []
    for pattern in ("ssl", "lsslsl", "sllsss"):
        gaps = [int(random.integers(*((6, 10) if c == "s" else (200, 300)))) for c in pattern]
        found.append((ready_after(gaps), sizes(random, len(gaps) + 1), 10.0, 1.0))
    return found


def ties(random: np.random.Generator) -> list[Arguments]:
    a, long = float(random.integers(5, 50)), 5000
    rows = [(a,), (a, long), (long, a), (a - 2, a)]
    return [(ready_after(list(gaps)), sizes(random, len(gaps) + 1), a, 0.5) for gaps in rows]


GREEDY_09 = Exercise("09.3", of_a_line(greedy_counts), "greedy_counts")
GREEDY_09.part("each call ends before the next", 2, long_and_short_gaps)
GREEDY_09.part(
    "the link is busy with the call before",
    2,
    lambda random: faster(
        random,
        ([0, 3, 6, 9, 30], [10, 10, 10, 10, 1], 2.5, 1),
        ([2, 8, 12, 20, 22, 29], [5, 6, 9, 4, 4, 6], 4, 1),
    ),
)
GREEDY_09.part("waiting takes exactly a latency", 1, ties)
GREEDY_09.part(
    "no latency, one gradient, no gradient",
    1,
    lambda random: [
        (ready_after([100, 150, 120]), sizes(random, 4), 0.0, 1.0),
        ([4.0], [7], 2.0, 1.0),
        ([], [], 2.0, 1.0),
    ],
)


@GREEDY_09.mistake(
    "you merge when waiting takes exactly a latency; the rule says less than a latency"
)
def merges_at_a_tie(ready_s, nbytes, a_s, b_s_per_byte):
    def merges(i, start_s, end_s):
        return ready_s[i + 1] - start_s <= a_s

    return decided(ready_s, nbytes, (a_s, b_s_per_byte), 0, merges)


GREEDY_09.mistake(
    "you compare with the time when gradient i is ready, but its call may start later, because "
    "the link is busy"
)(of_a_line(wait_from_ready))
GREEDY_09.mistake("your last call is lost: after the last gradient, send what waits")(
    of_a_line(last_group_forgotten)
)
GREEDY_09.mistake(
    "you compare the waiting with the time of a whole call, but a merge saves the latency only"
)(of_a_line(waits_a_whole_call))
GREEDY_09.mistake(
    "you count the waiting from the group's first gradient; the call that ends with gradient i "
    "starts when gradient i is ready"
)(of_a_line(wait_from_the_first))


@GREEDY_09.mistake(
    "you merge where waiting costs more than a latency, and send where it costs less"
)
def merges_the_other_way(ready_s, nbytes, a_s, b_s_per_byte):
    def merges(i, start_s, end_s):
        return ready_s[i + 1] - start_s >= a_s

    return decided(ready_s, nbytes, (a_s, b_s_per_byte), 0, merges)


# ---- the best grouping ----


def end_with(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The end of a step whose groups are rule(ready_s, nbytes, line)."""

    def end(ready_s, nbytes, a_s, b_s_per_byte):
        counts = rule(ready_s, nbytes, (a_s, b_s_per_byte))
        return step_end(ready_s, nbytes, counts, a_s, b_s_per_byte)

    return end


def best_of(tried: Callable[..., Any]) -> Callable[..., Any]:
    """The end of the best of those groups that are tried."""

    def end(ready_s, nbytes, a_s, b_s_per_byte):
        found = list(filter(tried, groupings(len(ready_s)))) or [[1] * len(ready_s)]
        return min(step_end(ready_s, nbytes, counts, a_s, b_s_per_byte) for counts in found)

    return end


BEST_09 = Exercise("09.4", end_with(best_counts), "best_end", relative=ROUNDINGS)
BEST_09.part(
    "the greedy rule finds the best grouping",
    1,
    lambda random: faster(
        random,
        ([7, 11, 14, 21, 24, 28], [5, 1, 7, 9, 2, 3], 4, 1),
        ([0, 1, 2, 3], [1, 1, 1, 1], 5, 1),
        ([0, 10], [8, 1], 1, 1),
    ),
)
BEST_09.part(
    "the greedy rule misses the best grouping",
    2,
    lambda random: faster(
        random,
        ([6, 11, 16, 17, 18, 27], [7, 8, 6, 7, 6, 1], 6, 0.5),
        ([0, 3, 6, 9, 12], [40, 1, 1, 1, 1], 4, 0.5),
    ),
)
BEST_09.part(ONE_OR_NONE, 1, lambda random: [(*row, 2.0, 0.5) for row in few(random)])
BEST_09.mistake(
    "you take the greedy rule's grouping, but another one may end earlier: try them all"
)(end_with(greedy_counts))
BEST_09.mistake("you try two groupings only, one call and one call for each gradient")(
    end_with(all_or_none)
)
BEST_09.mistake("you never try one call for all gradients")(
    best_of(lambda counts: len(counts) != 1)
)
BEST_09.mistake("you never try one call for each gradient")(
    best_of(lambda counts: max(counts, default=2) > 1)
)
BEST_09.mistake("you try groups of equal size only; groups may have any sizes")(
    best_of(lambda counts: len({counts[0], *counts[:-1]}) == 1 if counts else True)
)
BEST_09.mistake("you try groups of at most two gradients")(end_with(pairs_at_most))
