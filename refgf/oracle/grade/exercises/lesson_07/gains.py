"""Exercise gains(off_s, steps_s, order)."""

from itertools import combinations
from math import prod

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_07.cases import ROUNDINGS

SORTED, OTHER = "techniques in the alphabet's order", "techniques in another order"
COSTS, NONE = "a technique that costs time", "no technique"


def key(techniques):
    return "".join(sorted(techniques))


def steps_in(steps_s, order):
    return [steps_s[key(order[:i])] for i in range(len(order) + 1)]


def rows(off_s, gained, steps):
    return [(gain_s, 100 * off_s / step_s) for gain_s, step_s in zip(gained, steps[1:])]


def gains(off_s, steps_s, order):
    steps = steps_in(steps_s, order)
    return rows(off_s, [before - after for before, after in zip(steps, steps[1:])], steps)


def always_sorted(off_s, steps_s, order):
    return gains(off_s, steps_s, key(order))


def each_by_itself(off_s, steps_s, order):
    return rows(off_s, [steps_s[""] - steps_s[t] for t in order], steps_in(steps_s, order))


def all_so_far(off_s, steps_s, order):
    steps = steps_in(steps_s, order)
    return rows(off_s, [steps[0] - step_s for step_s in steps[1:]], steps)


def never_negative(off_s, steps_s, order):
    return [(max(0.0, gain_s), percent) for gain_s, percent in gains(off_s, steps_s, order)]


def stacks(random, techniques):
    """The step of each set of techniques. Each shortens it by a factor."""
    factors = dict(zip(techniques, random.uniform(0.4, 0.9, len(techniques)).tolist()))
    sets = [chosen for k in range(len(techniques) + 1) for chosen in combinations(techniques, k)]
    return {key(chosen): 8.0 * prod(factors[t] for t in chosen) for chosen in sets}


EXAMPLE = {"": 10.0, "H": 6.0, "O": 8.0, "HO": 5.0}


def in_order(random):
    return [(3.0, EXAMPLE, "HO"), (0.125, stacks(random, "CHLO"), "CHLO")]


def in_another_order(random):
    order = str(random.choice(["OLHC", "HOCL", "LCOH", "OHLC"]))
    return [(3.0, EXAMPLE, "OH"), (0.125, stacks(random, "CHLO"), order)]


def longer(random):
    step_s, more_s = random.uniform(3.0, 9.0, 2).tolist()
    return [(2.0, {"": 4.0, "L": 5.0}, "L"), (2.0, {"": step_s, "L": step_s + more_s}, "L")]


def nothing(random):
    return [(2.0, {"": step_s}, "") for step_s in (4.0, float(random.uniform(3.0, 9.0)))]


GAINS = Exercise(
    "gains",
    gains,
    (
        Part(SORTED, 1, in_order),
        Part(OTHER, 1, in_another_order),
        Part(COSTS, 1, longer),
        Part(NONE, 1, nothing),
    ),
    (
        Mistake(
            "you switch techniques on in the alphabet's order, whatever order is given",
            always_sorted,
            (OTHER,),
        ),
        Mistake(
            "you measure each technique by itself; wanted what it adds to those before it",
            each_by_itself,
            (SORTED, OTHER),
        ),
        Mistake(
            "your gain is that of all techniques so far, not of the last one",
            all_so_far,
            (SORTED, OTHER),
        ),
        Mistake(
            "a technique that makes the step longer has a negative gain, not 0",
            never_negative,
            (COSTS,),
        ),
    ),
    relative=ROUNDINGS,
)
