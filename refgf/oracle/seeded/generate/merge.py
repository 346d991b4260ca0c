"""Cases of calls in time, theta's groups, and merged gradients.

Ready times and latencies are multiples of 1/64, the time of a byte is 1/32 to 1/256, and all are
small: every end is exact in float64, in any order of evaluation, and so is every comparison.
"""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import best_counts, greedy_counts, step_times
from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.seeded.mistakes.merge import all_or_none, best_theta, pairs_at_most
from refgf.oracle.spec.case import Case

U = 2.0**-53
SMALLEST = [(1.0, 1), (2.0, 1), (4.0, 1)], [2.0, 1.0]  # the least that the greedy rule misses
TIE = [(1.0, 8), (3.0, 8), (4.5, 8), (20.0, 8)], [2.0, 0.125]  # waits of exactly 2


def network(rng: np.random.Generator, count: int) -> tuple[dict[str, np.ndarray], list[float]]:
    """Times and sizes that spread; latencies and bytes both matter. -> inputs, line"""
    gaps = rng.integers(1, 2 ** rng.integers(3, 9, count))
    nbytes = rng.integers(1, 2 ** rng.integers(2, 12, count))
    line = [int(rng.integers(1, 160)) / 64, 2.0 ** -int(rng.integers(5, 9))]
    return {"ready_s": np.cumsum(gaps) / 64, "nbytes": nbytes}, line


def inputs_of(pairs: list[tuple[float, int]]) -> dict[str, np.ndarray]:
    columns = zip(*pairs) if pairs else ([], [])
    ready_s, nbytes = columns
    return {"ready_s": np.array(ready_s, np.float64), "nbytes": np.array(nbytes, np.int64)}


def cases() -> Iterator[Case]:
    for group in (time_cases, theta_cases, greedy_cases, best_cases):
        yield from group()


def within(case: Case) -> Case:
    """The bound of SPEC.md, G: each of k calls adds at most eight roundings of a time of the step.

    No such time is larger than the step, and maxima and sums carry errors on at most as they are.
    """
    calls, step_s = case["out.calls"], float(case["out.step_s"])
    bound = 8 * (len(calls) + 1) * U * step_s
    case.tensors |= {"bound.calls": bound * np.ones(calls.shape), "bound.step_s": np.float64(bound)}
    return case


def time_cases() -> Iterator[Case]:
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
                arguments = {"counts": counts, "line": line, "overlap": overlap}
                arguments["compute_s"] = compute_s
                yield within(make(title, "step_times", "G1 G2", why, arguments, **arrays))
    for name, pairs in (("no-gradient", []), ("one-gradient", [(2.5, 7)])):
        arguments = {"counts": [1] * len(pairs), "line": line, "overlap": 0.5, "compute_s": None}
        why = name.replace("-", " ")
        case = make(f"step-{name}", "step_times", "G1 G2", why, arguments, **inputs_of(pairs))
        yield within(case)


def theta_cases() -> Iterator[Case]:
    rng = random_source("lazy-step")
    arrays, line = network(rng, 15)
    first = int(arrays["nbytes"][:4].sum())
    for theta in (0, 1, first - 1, first, first + 1, "inf"):
        why = f"theta {theta}: the first four gradients have {first} bytes"
        arguments = {"theta_bytes": theta, "line": line}
        case = make(f"lazy-step-theta-{theta}", "lazy_step", "G3 L1 L2", why, arguments, **arrays)
        counts = case["out.counts"].tolist()
        if theta in (0, "inf"):
            require(counts == ([1] * 15 if theta == 0 else [15]), case, "one by one, or one call")
        yield within(case)
    for name, pairs in (("no-gradient", []), ("one-gradient", [(2.5, 7)])):
        arguments, why = {"theta_bytes": 7, "line": line}, name.replace("-", " ")
        case = make(f"lazy-step-{name}", "lazy_step", "G3", why, arguments, **inputs_of(pairs))
        yield within(case)


def rule(name: str, why: str, arrays: dict, line: list[float], small_bytes: int = 0) -> Case:
    arguments = {"line": line, "small_bytes": small_bytes}
    return make(name, "greedy_counts", "G4 G5", why, arguments, **arrays)


def greedy_cases() -> Iterator[Case]:
    arrays, line = inputs_of(SMALLEST[0]), SMALLEST[1]
    yield rule("greedy-smallest", "the least network where the rule is not the best", arrays, line)
    arrays, line = inputs_of(TIE[0]), TIE[1]
    case = rule("greedy-tie", "waiting takes exactly a latency: no merge", arrays, line)
    require(case["out.counts"].tolist()[0] == 1, case, "the tie is not merged")
    yield case
    yield rule("greedy-no-latency", "nothing is saved, nothing merged", arrays, [0.0, 0.125])
    yield rule("greedy-all", "a latency longer than backward: one call", arrays, [64.0, 0.125])
    for name, pairs in (("no-gradient", []), ("one-gradient", [(2.5, 7)])):
        yield rule(f"greedy-{name}", name.replace("-", " "), inputs_of(pairs), line)
    for seed in range(4):
        rng = random_source("greedy", seed)
        arrays, line = network(rng, 40)
        case = rule(f"greedy-40-seed{seed}", "gaps, queues and merges of many", arrays, line)
        counts = case["out.counts"]
        require(1 < len(counts) < 40 and counts.max() > 2, case, "some are merged, some are not")
        yield case
        group = int(arrays["nbytes"][: counts[0]].sum())  # exactly the bytes of the first group
        why = f"groups of fewer than {group} bytes wait, whatever the rule says"
        yield rule(f"greedy-small-seed{seed}", why, arrays, line, group)


def best_cases() -> Iterator[Case]:
    function, statement = "best_counts", "G6"
    arrays, line = inputs_of(SMALLEST[0]), SMALLEST[1]
    why = "the greedy rule ends at 9, the best groups at 8"
    case = make("best-smallest", function, statement, why, {"line": line}, **arrays)
    require(case["out.counts"].tolist() == [1, 2], case, "one, then two")
    yield case
    for name, pairs in (("no-gradient", []), ("one-gradient", [(2.5, 7)])):
        why, arguments = name.replace("-", " "), {"line": line}
        yield make(f"best-{name}", function, statement, why, arguments, **inputs_of(pairs))
    arrays = inputs_of([(float(i), 8) for i in range(1, 9)])
    why = "backward is far ahead: many groupings end equally early, and any of them is right"
    case = make("best-many", function, statement, why, {"line": [0.125, 0.03125]}, **arrays)
    yield case
    for count in (7, 9, 10):
        yield hard_case(count)


def hard_case(count: int) -> Case:
    """None of the simpler ways finds these groups' end."""
    for seed in range(1000):
        arrays, line = network(random_source(f"best-{count}", seed), count)
        found = arrays["ready_s"].tolist(), arrays["nbytes"].tolist(), tuple(line)
        ways = (best_counts, greedy_counts, all_or_none, pairs_at_most, best_theta)
        best_s, *others_s = (step_times(*found[:2], way(*found), line)[1] for way in ways)
        if all(other_s > best_s for other_s in others_s):
            break
    why = "neither the greedy rule nor any theta, neither pairs nor one call end as early"
    case = make(f"best-{count}", "best_counts", "G6", why, {"line": line}, **arrays)
    require(seed < 999, case, "simpler ways end later")
    return case
