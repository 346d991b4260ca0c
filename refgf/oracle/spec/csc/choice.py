"""C5, C6: which chunks are chosen, and how many in each step."""

import math
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, named
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source
from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- C5: the choice ----


def choose(values: np.ndarray, percent: float) -> list[int]:
    """C5: the max(1, ceil(C percent / 100)) most important of C chunks are chosen, ties to the
    lower number, at the end of a step for the next one. C percent is formed first: 28 % of 25
    chunks are 7.

    Source: a percent, e.g. 10 %, at the end of an iteration: GradientFlow by the article; rounding,
    at least one, and ties: chosen.

    -> chunk numbers, ascending
    """
    return largest(values, max(1, math.ceil(len(values) * percent / 100)))


def largest(values: np.ndarray, count: int) -> list[int]:
    return sorted(sorted(range(len(values)), key=lambda c: (-values[c], c))[:count])


C5 = Statement("C5", choose)
CHOOSE = JudgedFunction(choose, "C5", {"chosen": ("place",)}, "values")


@CHOOSE.fresh
def any_values(d: Draw) -> Given:
    """Half of the shares are whole numbers of chunks."""
    count = pick(d.rng, 25, 50, 100, 200, d.n + 1)
    return {"percent": d.integer(1, 100), "values": d.rng.integers(0, 9, count) * 1.0}


@CHOOSE.golden
def choices() -> Cases:
    why, values = "rounded up, at least one, ties to the lower number", [3.0, 5, 5, 1, 5, 0, 7]
    for percent in (1, 30, 43, 50, 100):
        yield CHOOSE.case(f"choose-{percent}", why, percent=percent, values=values)
    why = "28 % of 25 are 7, and neither 8 nor a rounding of 25 times 0.28"
    drawn = random_source("choose-whole").integers(0, 6, 25).astype(np.float64)
    case = CHOOSE.case("choose-whole-28", why, percent=28, values=drawn)
    yield case.shows(len(case["out.chosen"]) == 7, "7 of 25")


def different(*shapes: tuple[int, float]) -> Drawn:
    """No two values are equal, the last but one is the largest. shapes: (chunks, percent)."""

    def values(random: np.random.Generator, count: int) -> np.ndarray:
        found = random.permutation(count) + random.random(count) / 2
        found[-2] = count
        return found

    return lambda random: [(values(random, count), percent) for count, percent in shapes]


def equal_ones(random: np.random.Generator) -> list[Arguments]:
    """The last one is so long that a sort which is not stable moves equal values."""
    same = np.full(5 * int(random.integers(1, 5)), random.random())
    few = random.integers(0, 3, 100) / 2
    small = [(np.array([2.0, 5, 2, 9, 2]), 60), (np.array([1.0, 3, 3, 3, 0, 3]), 50)]
    return [*small, (same, 40), (few, 50)]


CHOOSE_06 = Exercise("06.3", choose)
CHOOSE_06.part(
    "percent of the chunks are a whole number",
    1,
    different((10, 30), (20, 25), (25, 28), (50, 14)),
)
CHOOSE_06.part("the number of chunks is rounded up", 1, different((10, 25), (13, 50), (43, 7)))
CHOOSE_06.part("equal values: the lower number is chosen", 1, equal_ones)
CHOOSE_06.part("one chunk, all chunks", 1, different((8, 1), (6, 100), (3, 0.1)))
C5.given("the least important chunks", values=np.negative)
CHOOSE_06.given("you choose the least important chunks", values=np.negative)
CHOOSE_06.given("you take percent as a share: divide it by 100", percent=lambda share: 100 * share)


@C5.mistake("ties go to the higher number")
@CHOOSE_06.mistake(
    "of equal values you choose the chunk with the higher number: an ascending sort puts it last"
)
def ties_to_higher(values, percent):
    count = max(1, math.ceil(len(values) * percent / 100))
    return sorted(sorted(range(len(values)), key=lambda c: (-values[c], -c))[:count])


@C5.mistake("rounded down")
def rounded_down(values, percent):
    return largest(values, max(1, math.floor(len(values) * percent / 100)))


@CHOOSE_06.mistake(
    "you round the number of chunks down, or to the nearest whole one; wanted up, and so never 0"
)
def rounded_down_to_none(values, percent):
    return largest(values, int(len(values) * percent / 100))


@C5.mistake("rounded down, and one more: too many where the product is whole")
def one_more(values, percent):
    return largest(values, int(len(values) * percent / 100) + 1)


@C5.mistake("percent is divided by 100 first: 28 % of 25 chunks is 8")
@CHOOSE_06.mistake(
    "you divide percent by 100 first, and that rounds: 25 * (28 / 100) is more than 7, so you "
    "choose a chunk too many; wanted C * percent / 100 from left to right"
)
def divided_first(values, percent):
    return largest(values, max(1, math.ceil(len(values) * (percent / 100))))


@C5.mistake("always the first chunks")
def always_the_first(values, percent):
    return list(range(len(choose(values, percent))))


@CHOOSE_06.mistake(
    "your chunks are in the order of importance; wanted ascending numbers, the order in which "
    "they are packed"
)
def in_order_of_importance(values, percent):
    return np.argsort(-values, kind="stable")[: len(choose(values, percent))].tolist()


@CHOOSE_06.mistake(
    "you choose all chunks that reach the smallest chosen value: with equal values these are too "
    "many"
)
def all_that_reach_the_last(values, percent):
    smallest = np.sort(values)[-len(choose(values, percent))]
    return np.flatnonzero(values >= smallest).tolist()


# ---- C6: the density of each step ----


def percent_of_step(
    step: int, steps_per_epoch: int, warmup_percents: list[float], percent: float
) -> tuple[float, bool]:
    """C6: density per epoch during warm-up, then constant; the first step and warm-up steps at 100
    % are dense.

    Source: that GradientFlow has a dense warm-up: the notes; its schedule, and the dense first
    step: chosen.

    step: counted from 0. There is one density per warm-up epoch, then `percent`. A dense step sends
    everything, and no list is chosen for it. -> (percent, dense)
    """
    epoch = step // steps_per_epoch
    if epoch < len(warmup_percents):
        return warmup_percents[epoch], step == 0 or warmup_percents[epoch] == 100
    return percent, step == 0


def run_percent(module: Any, case: Case) -> Outputs:
    """The density is a number of any kind: 20 and 20.0 are the same."""
    percent, dense = module.percent_of_step(**case.arguments)
    return named(("percent", "dense"), (np.float64(percent), np.uint8(bool(dense))))


C6 = Statement("C6", percent_of_step)
C6.given("warm-up one epoch too short", warmup_percents=lambda percents: percents[:-1])
DENSITY = JudgedFunction(percent_of_step, "C6", {"percent": (), "dense": ()}, run=run_percent)


@DENSITY.fresh
def any_step(d: Draw) -> Given:
    warmup = [pick(d.rng, 100, 50, 25) for _ in range(d.integer(0, 3))]
    step, epoch = d.integer(0, 20), d.integer(1, 6)
    plan = {"warmup_percents": warmup, "percent": d.integer(1, 99)}
    return {"step": step, "steps_per_epoch": epoch, **plan}


@DENSITY.golden
def density_cases() -> Cases:
    why = "100, 100 and 60 % over epochs of 4 steps"
    plan: Given = {"warmup_percents": [100, 100, 60], "percent": 20}
    for step in (0, 7, 8, 11, 12):
        yield DENSITY.case(f"percent-step-{step}", why, step=step, steps_per_epoch=4, **plan)
    why = "the first step is dense, whatever its percentage: nobody has chosen"
    for warmup in ([], [60]):
        plan = {"warmup_percents": warmup, "percent": 20}
        name = f"percent-first-step-{len(warmup)}"
        yield DENSITY.case(name, why, step=0, steps_per_epoch=4, **plan)
    why, plan = "epochs of 5 steps", {"warmup_percents": [100, 62.5], "percent": 12.5}
    for step in (4, 5, 9, 10, 15):
        yield DENSITY.case(f"percent-step-{step}-of-5", why, step=step, steps_per_epoch=5, **plan)


@C6.mistake("the first step is not dense")
def first_not_dense(step, steps_per_epoch, warmup_percents, percent):
    epoch = step // steps_per_epoch
    if epoch < len(warmup_percents):
        return warmup_percents[epoch], warmup_percents[epoch] == 100 and step > 0
    return percent, False
