"""T3: MSTopK, which finds nearly the largest magnitudes without sorting."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.case import Given
from refgf.oracle.spec.exercise import Arguments, Exercise, quarters
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement
from refgf.oracle.spec.topk.choice import heavy_tail, selection, top_k


def mstopk(x: np.ndarray, k: int, start: float = 0.0, rounds: int = 30) -> np.ndarray:
    """T3: MSTopK: exactly k, by bisection between the mean (0 if fewer than k reach it) and the
    maximum, `rounds` times or until k are found; the missing ones are neighbours among the next
    candidates, where `start` is the share of these to skip.

    Source: Shi et al. 2021 by public code of others; the cases of few above the mean and of no
    threshold that 1 to k reach, the end, and the last place of `start`: chosen.

    The interval begins as mean .. maximum. Each round tests its midpoint. If more than k elements
    reach that threshold, the upper half remains. If at most k reach it, the lower half remains, and
    the largest such set so far is certain. The missing elements are neighbours among those that
    reach the last threshold of more than k; `start` is where they begin, as a share of that list.
    """
    size = np.abs(x)
    if k == 0:
        return np.arange(0)
    low, high = float(size.mean(dtype=np.float64)), float(size.max())
    low = low if np.sum(size >= low) >= k else 0.0
    left, right, certain, possible = 0.0, 1.0, np.zeros(len(x), bool), np.ones(len(x), bool)
    for _ in range(rounds):
        ratio = left + (right - left) / 2
        reach = size >= low + ratio * (high - low)
        if reach.sum() > k:
            left, possible = ratio, reach
        else:
            right = ratio
            certain = reach if reach.sum() > certain.sum() else certain
        if certain.sum() == k:
            break
    between, missing = np.flatnonzero(possible & ~certain), k - int(certain.sum())
    first = int(start * (len(between) - missing + 1))
    return np.sort(np.concatenate([np.flatnonzero(certain), between[first : first + missing]]))


T3 = Statement("T3", mstopk)
MSTOPK = JudgedFunction(
    mstopk, "T3", {"chosen": ("place",)}, "x", selection("mstopk", "k", "start", "rounds")
)


@MSTOPK.golden
def bisection_cases() -> Cases:
    why = {
        30: "30 halvings find nearly the k largest",
        3: "3 halvings leave much to the neighbours",
    }
    for rounds in (30, 3):
        for k in (0, 1, 25, 160, 300):
            x = heavy_tail(f"mstopk-{k}-rounds-{rounds}", 300)
            for start in (0.0, 0.6):
                name = f"mstopk-{k}-rounds-{rounds}-start-{start:g}"
                case = MSTOPK.case(name, why[rounds], k=k, start=start, rounds=rounds, x=x)
                chosen = case["out.chosen"]
                case.shows(len(chosen) == k, "exactly k")
                if rounds == 3 and k == 25:
                    case.shows(not np.array_equal(chosen, top_k(x, k)), "not the k largest")
                    other = mstopk(x, k, 0.6 - start, 3)
                    case.shows(not np.array_equal(other, chosen), "the start counts")
                yield case


EDGES = [  # magnitudes, k, start, rounds
    ([-5, -6, 5, -1, -6, 0, -2, -1, -1, -2, 0, 0], 8, 0.9, 3, "fewer than k reach the mean"),
    ([-6, 1, -1, -6, 1, 4, 3, 6, 0, 1, 6, -2], 7, 0.3, 1, "a threshold that elements just reach"),
    ([6, 0, 1, 2, 6, -1, 4, -3, 4, -5, 5, -2], 6, 0.3, 1, "exactly k reach the mean"),
    ([-1, -2, 2, -2, 1, 0, -2, 0, -3, -4, 1, 6], 5, 0.3, 3, "some just reach the mean"),
]


@MSTOPK.golden
def edge_cases() -> Cases:
    """Each was a change of the definition that no other case saw."""
    for number, (x, k, start, rounds, why) in enumerate(EDGES):
        given: Given = {"k": k, "start": start, "rounds": rounds, "x": np.array(x, np.float32)}
        yield MSTOPK.case(f"mstopk-edge-{number}", why, **given)


T3.given("`start` is ignored: the neighbours are always the first ones", start=lambda start: 0.0)


@T3.mistake("all elements above the last threshold, more than k")
def too_many(x, k, start=0.0, rounds=30):
    size = np.abs(x)
    return np.flatnonzero(size >= (np.sort(size)[-k] * 0.99 if k else np.inf))


@T3.mistake("exact top-k in its place")
def exact(x, k, start=0.0, rounds=30):
    return top_k(x, k)


# ---- exercise: the threshold ----


def bisected(
    x: np.ndarray,
    k: int,
    rounds: int,
    size: Callable[..., Any] = np.abs,
    first: Callable[..., Any] | None = None,
    reaches: Callable[..., Any] = np.greater_equal,
    up: Callable[..., Any] = np.greater,
) -> tuple[float, float]:
    """MSTopK's interval as in the lesson; the keywords make its typical mistakes."""
    magnitude = size(x)
    low, high = 0.0, float(magnitude.max())
    tested = float(magnitude.mean()) if first is None else first(x)
    for _ in range(rounds):
        if up(np.count_nonzero(reaches(magnitude, tested)), k):
            low = tested
        else:
            high = tested
        tested = (low + high) / 2
    return low, high


def threshold(x: np.ndarray, k: int, rounds: int) -> tuple[float, float]:
    return bisected(x, k, rounds)


def searched(random: np.random.Generator) -> list[Arguments]:
    """20 rounds meet thresholds that exactly k magnitudes reach."""
    ks = random.integers(3, 11, 3).tolist()
    small = [(quarters(random, 6), 2, rounds) for rounds in (2, 3, 4)]
    return [
        *small,
        *[(random.standard_normal(40), k, rounds) for k, rounds in zip(ks, (4, 20, 20))],
    ]


def reached(random: np.random.Generator) -> list[Arguments]:
    """The means are 3 and 2, the midpoint of 2 and 8 is 5. Factors of 2 keep all of it exact."""
    factor = 2.0 ** int(random.integers(-3, 6))
    rows = [([8, -3, 1, 0], 1, 2), ([8, -5, 1, -1, 1, 0, 0, 0], 1, 3)]
    return [(factor * random.permutation(np.array(x, float)), k, r) for x, k, r in rows]


THRESHOLD_12 = Exercise("12.3", threshold, relative=1e-12)  # the mean may be added in any order
THRESHOLD_12.part("random numbers", 3, searched)
THRESHOLD_12.part("a magnitude that is exactly a threshold", 1, reached)
THRESHOLD_12.part(
    "no rounds, one element, only equal magnitudes",
    1,
    lambda random: [
        (random.standard_normal(9), 2, 0),
        (np.array([3.0]), 1, 5),
        (np.array([-2.0, 2, 2, 2]) * int(random.integers(1, 9)), 3, 3),
    ],
)


@THRESHOLD_12.mistake("you compare signed numbers: magnitudes are to reach the threshold")
def signed_numbers(x, k, rounds):
    return bisected(x, k, rounds, size=np.array)


@THRESHOLD_12.mistake(
    "your first threshold is the mean of the signed numbers, which is about 0; wanted the mean "
    "magnitude"
)
def signed_mean(x, k, rounds):
    return bisected(x, k, rounds, first=lambda x: float(x.mean()))


@THRESHOLD_12.mistake(
    "your first threshold is half the largest magnitude; wanted the mean magnitude"
)
def begins_in_the_middle(x, k, rounds):
    return bisected(x, k, rounds, first=lambda x: float(np.abs(x).max()) / 2)


@THRESHOLD_12.mistake("when exactly k magnitudes reach the threshold, it becomes high, not low")
def up_at_exactly_k(x, k, rounds):
    return bisected(x, k, rounds, up=np.greater_equal)


@THRESHOLD_12.mistake("a magnitude equal to the threshold reaches it too: >=, not >")
def above_the_threshold(x, k, rounds):
    return bisected(x, k, rounds, reaches=np.greater)


@THRESHOLD_12.mistake(
    "you go on in the wrong half: when more than k reach the threshold, it is too low"
)
def wrong_half(x, k, rounds):
    return bisected(x, k, rounds, up=np.less_equal)


@THRESHOLD_12.mistake("you make one round too few: the mean is the first one")
def one_round_too_few(x, k, rounds):
    return bisected(x, k, max(0, rounds - 1))
