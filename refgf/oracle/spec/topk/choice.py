"""T1, T2: how many elements are sent, and which."""

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, Run, select
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.draw import Draw, random_source
from refgf.oracle.spec.exercise import Arguments, Exercise
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- T1: how many ----


def keep_count(n: int, percent: float) -> int:
    """T1: of n elements ceil(n percent / 100) are sent, at least 1, none of 0; percent is taken in
    decimal.

    Source: chosen.
    """
    return min(n, max(1, ceil(n * Fraction(str(percent)) / 100)))


def run_count(module: Any, case: Case) -> Outputs:
    percents, n = case["in.percent"], case.arguments["n"]
    counts = [module.keep_count(n, float(percent)) for percent in percents]
    return {"out.k": np.array(counts, np.int64)}


T1 = Statement("T1", keep_count)
COUNT = JudgedFunction(keep_count, "T1", {"k": ("density",)}, "percent", run_count)
COUNT.fresh(lambda d: {"n": d.n, "percent": d.rng.integers(1, 1001, 9) / 10})


@COUNT.golden
def count_cases() -> Cases:
    why, percents = "rounded up, at least 1, none of 0; 1.1 % of 1000 is 11", [0.01, 0.1, 1, 1.1]
    for n in (0, 1, 7, 1000, 3000, 62_378_344):
        yield COUNT.case(f"keep-count-{n}", why, n=n, percent=[*percents, 10, 33, 100])


def ends(random: np.random.Generator) -> list[Arguments]:
    return [(0, 10), (5, 0.1), (9, 100), (int(random.integers(10, 9999)), 100)]


COUNT_12 = Exercise("12.1", keep_count)
COUNT_12.part(
    "a whole number",
    1,
    lambda random: [(int(random.integers(1, 90)) * 100, 1), (1000, 1.1), (50, 2)],
)
COUNT_12.part("rounded up", 1, lambda random: [(int(random.integers(9)) * 100 + 1, 1), (999, 0.1)])
COUNT_12.part("no elements, at least one, all", 1, ends)


@T1.mistake("rounded down")
def rounded_down(n, percent):
    return min(n, max(1, int(n * percent / 100)))


@COUNT_12.mistake("you round k down; wanted up, and so never 0")
def rounded_down_to_none(n, percent):
    return int(n * percent / 100)


@T1.mistake("rounded up from a float, so that 1.1 % of 1000 is 12")
@COUNT_12.mistake(
    "1.1 / 100 is rounded, and so 1.1 % of 1000 come out as 12: compute with a Fraction"
)
def float_ceiling(n, percent):
    return min(n, max(1, int(np.ceil(n * (percent / 100)))))


@T1.mistake("rounded down, and one more: too many where the product is whole")
def one_more(n, percent):
    return min(n, int(n * percent / 100) + 1)


# ---- T2: which ----


def top_k(x: np.ndarray, k: int) -> np.ndarray:
    """T2: the largest magnitudes are chosen, of equal ones the first; indices ascend.

    Source: ties chosen.
    """
    return np.array(sorted(sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))[:k]), np.int64)


def selection(name: str, *arguments: str) -> Run:
    """A function that chooses indices of in.x."""

    def run(module: Any, case: Case) -> Outputs:
        chosen = getattr(module, name)(case["in.x"], **select(case, *arguments))
        return {"out.chosen": np.asarray(chosen, np.int64)}

    return run


T2 = Statement("T2", top_k)
TOP_K = JudgedFunction(top_k, "T2", {"chosen": ("place",)}, "x", selection("top_k", "k"))
TOP_K.fresh(lambda d: {"k": d.integer(0, d.n), "x": often_equal(d, d.n)})


def often_equal(d: Draw, *shape: int) -> np.ndarray:
    """Magnitudes that are often equal, of both signs."""
    x = d.normal(*shape)
    return np.where(d.rng.random(shape) < 0.3, np.float32(0.5) * np.sign(x), x)


def heavy_tail(name: str, n: int) -> np.ndarray:
    """Numbers of both signs, with ties."""
    x = random_source(name).standard_normal(n).astype(np.float32) ** 3
    x[1::5] = np.where(np.arange(len(x[1::5])) % 2, 0.5, -0.5)
    return x


@TOP_K.golden
def choice_cases() -> Cases:
    why = "magnitudes of both signs, and many that are equal"
    for n, k in ((0, 0), (1, 1), (40, 0), (40, 7), (40, 21), (40, 40)):
        name = f"top-k-{k}-of-{n}"
        case = TOP_K.case(name, why, k=k, x=heavy_tail(name, n))
        if k == 21:
            size = np.abs(case["in.x"])
            case.shows((size >= np.sort(size)[-k]).sum() > k, "a tie is cut")
        yield case


def different(random: np.random.Generator, n: int) -> np.ndarray:
    """n numbers of different magnitudes. The largest are negative; the very largest is the last."""
    size = random.permutation(n) + 1 + random.random(n) / 2
    size[-1:] = n + 1
    return np.where(size > n / 2, -size, size)


def with_ties(random: np.random.Generator) -> list[Arguments]:
    n = int(random.integers(6, 12))
    signs = random.choice([-1.0, 1.0], n)
    long = random.choice([-1.0, 1.0], 100) * random.integers(1, 4, 100)  # for unstable sorts
    return [
        (np.array([2.0, -2, 5, 2, -2, 1]), 3),
        (signs * 3, 3),
        (signs * ([1, 4, 4, 4] + [2] * (n - 4)), 2),
        (long, 50),
    ]


TOP_K_12 = Exercise("12.2", top_k)
TOP_K_12.part(
    "different magnitudes",
    2,
    lambda random: [(different(random, n), k) for n, k in ((9, 3), (40, 7))],
)
TOP_K_12.part("equal magnitudes", 1, with_ties)
TOP_K_12.part(
    "k = 0, k = n, no elements",
    1,
    lambda random: [(different(random, n), k) for n, k in ((7, 0), (6, 6), (0, 0))],
)


@T2.mistake("the largest values, not magnitudes")
@TOP_K_12.mistake("you choose the largest values: a large negative gradient matters as much")
def by_value(x, k):
    return np.array(sorted(sorted(range(len(x)), key=lambda i: (-x[i], i))[:k]), np.int64)


@T2.mistake("of equal magnitudes the last")
def last_of_equals(x, k):
    return np.array(sorted(sorted(range(len(x)), key=lambda i: (-abs(x[i]), -i))[:k]), np.int64)


@T2.mistake("not sorted by index")
@TOP_K_12.mistake("your indices are in the order of magnitude; wanted ascending")
def by_size(x, k):
    return np.array(sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))[:k], np.int64)


@TOP_K_12.mistake(
    "you take the end of an ascending sort: of equal magnitudes that is the last, not the "
    "first, and [-k:] is everything for k = 0"
)
def last_of_an_ascending_sort(x, k):
    return np.sort(np.argsort(np.abs(x), kind="stable")[-k:])


@TOP_K_12.mistake(
    "you take all elements that reach the k-th magnitude: with equal ones these are more than k"
)
def all_that_reach(x, k):
    return np.flatnonzero(np.abs(x) >= np.sort(np.abs(x))[x.size - k]) if k else np.arange(0)


@TOP_K_12.mistake(
    "you take the elements above the next magnitude: with equal ones these are fewer than k"
)
def all_above(x, k):
    size = np.abs(x)
    return np.flatnonzero(size > np.sort(size)[x.size - k - 1]) if k < x.size else np.arange(k)


@TOP_K_12.mistake("you return values; wanted their indices")
def values_for_indices(x, k):
    return x[top_k(x, k)]
