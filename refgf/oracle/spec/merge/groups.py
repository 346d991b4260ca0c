"""G4 to G6: which gradients are sent together: the greedy rule of MG-WFBP, and the best groups."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source
from refgf.oracle.spec.merge.times import (
    FEW,
    Line,
    drawn_gradients,
    gradients,
    inputs_of,
    lazy_step,
    network,
    step_times,
)
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

SMALLEST = [(1.0, 1), (2.0, 1), (4.0, 1)], [2.0, 1.0]  # the least that the greedy rule misses
TIE = [(1.0, 8), (3.0, 8), (4.5, 8), (20.0, 8)], [2.0, 0.125]  # waits of exactly 2

# ---- G4, G5: the greedy rule ----


def greedy_counts(
    ready_s: list[float], nbytes: list[int], line: Line, small_bytes: int = 0
) -> list[int]:
    """G4: greedy rule: from the first gradient on, gradient i joins gradient i + 1 if ready(i+1) -
    start < a, where start (G1) is that of the call that would end with i, after the groups formed
    so far; no decision is revised.

    Source: MG-WFBP's code (`_generate_groups_mgwfbp`).

    -> counts
    """
    counts, waiting = list[int](), 1
    for i in range(len(ready_s) - 1):
        calls, _ = step_times(ready_s[: i + 1], nbytes[: i + 1], [*counts, waiting], line)
        group_bytes = sum(nbytes[i + 1 - waiting : i + 1])
        if joins(ready_s[i + 1] - calls[-1][0], line[0], group_bytes, small_bytes):
            waiting += 1
        else:
            counts.append(waiting)
            waiting = 1
    return [*counts, waiting] if ready_s else []


def joins(wait_s: float, a_s: float, group_bytes: int, small_bytes: int) -> bool:
    """G5: a wait of exactly a is not worth it; with `small_bytes` a group of fewer bytes always
    waits.

    Source: MG-WFBP's code; small groups: its authors' later code (ddl-benchmarks).
    """
    return wait_s < a_s or group_bytes < small_bytes


def run_greedily(module: Any, case: Case) -> Outputs:
    settings = {**select(case, "small_bytes"), "line": tuple(case.arguments["line"])}
    return {"out.counts": np.array(module.greedy_counts(*gradients(case), **settings), np.int64)}


G4 = Statement("G4", greedy_counts)
G5 = Statement("G5", joins)
COUNTS, INPUTS = {"counts": ("group",)}, "ready_s nbytes"
GREEDY = JudgedFunction(greedy_counts, "G4 G5", COUNTS, INPUTS, run_greedily)


@GREEDY.fresh
def any_network(d: Draw) -> Given:
    arrays, line = drawn_gradients(d)
    small_bytes = pick(d.rng, 0, int(arrays["nbytes"][:2].sum()))
    return {"line": line, "small_bytes": small_bytes, **arrays}


@GREEDY.golden
def greedy_cases() -> Cases:
    def case_of(name, why, arrays, line, small_bytes=0):
        return GREEDY.case(name, why, line=line, small_bytes=small_bytes, **arrays)

    arrays, line = inputs_of(SMALLEST[0]), SMALLEST[1]
    why = "the least network where the rule is not the best"
    yield case_of("greedy-smallest", why, arrays, line)
    arrays, line = inputs_of(TIE[0]), TIE[1]
    case = case_of("greedy-tie", "waiting takes exactly a latency: no merge", arrays, line)
    yield case.shows(case["out.counts"].tolist()[0] == 1, "the tie is not merged")
    yield case_of("greedy-no-latency", "nothing is saved, nothing merged", arrays, [0.0, 0.125])
    yield case_of("greedy-all", "a latency longer than backward: one call", arrays, [64.0, 0.125])
    for name, pairs in FEW.items():
        yield case_of(f"greedy-{name}", name.replace("-", " "), inputs_of(pairs), line)
    for seed in range(4):
        rng = random_source("greedy", seed)
        arrays, line = network(rng, 40)
        case = case_of(f"greedy-40-seed{seed}", "gaps, queues and merges of many", arrays, line)
        counts = case["out.counts"]
        some = 1 < len(counts) < 40 and counts.max() > 2
        yield case.shows(some, "some are merged, some are not")
        group = int(arrays["nbytes"][: counts[0]].sum())  # exactly the bytes of the first group
        why = f"groups of fewer than {group} bytes wait, whatever the rule says"
        yield case_of(f"greedy-small-seed{seed}", why, arrays, line, group)


def decided(
    ready_s: list[float],
    nbytes: list[int],
    line: Line,
    small_bytes: int,
    merges: Callable[..., Any],
) -> list[int]:
    """G4 with another rule. merges: (i, start and end of the call that would end with i) -> bool"""
    counts, waiting = list[int](), 1
    for i in range(len(ready_s) - 1):
        calls, _ = step_times(ready_s[: i + 1], nbytes[: i + 1], [*counts, waiting], line)
        if merges(i, *calls[-1]) or sum(nbytes[i + 1 - waiting : i + 1]) < small_bytes:
            waiting += 1
        else:
            counts.append(waiting)
            waiting = 1
    return [*counts, waiting] if ready_s else []


@G4.mistake("the wait counts from when the gradient is ready: queues forgotten")
def wait_from_ready(ready_s, nbytes, line, small_bytes=0):
    def merges(i, start_s, end_s):
        return ready_s[i + 1] - ready_s[i] < line[0]

    return decided(ready_s, nbytes, line, small_bytes, merges)


@G4.mistake("starts of calls are not computed anew after a merge")
def starts_of_eager(ready_s, nbytes, line, small_bytes=0):
    eager, _ = step_times(ready_s, nbytes, [1] * len(ready_s), line)

    def merges(i, start_s, end_s):
        return ready_s[i + 1] - eager[i][0] < line[0]

    return decided(ready_s, nbytes, line, small_bytes, merges)


@G4.mistake("waits for any gradient that is ready before the call would end")
def waits_a_whole_call(ready_s, nbytes, line, small_bytes=0):
    def merges(i, start_s, end_s):
        return ready_s[i + 1] < end_s

    return decided(ready_s, nbytes, line, small_bytes, merges)


@G4.mistake("the wait counts from when the group's first gradient is ready")
def wait_from_the_first(ready_s, nbytes, line, small_bytes=0):
    counts, first, free_s = [], 0, 0.0
    for i in range(len(ready_s) - 1):
        group_bytes = sum(nbytes[first : i + 1])
        wait_s = ready_s[i + 1] - max(free_s, ready_s[first])
        if wait_s >= line[0] and group_bytes >= small_bytes:
            free_s = max(free_s, ready_s[i]) + line[0] + line[1] * group_bytes
            counts.append(i + 1 - first)
            first = i + 1
    return [*counts, len(ready_s) - first] if ready_s else []


@G4.mistake("the last group is lost")
def last_group_forgotten(ready_s, nbytes, line, small_bytes=0):
    return greedy_counts(ready_s, nbytes, line, small_bytes)[:-1]


@G5.mistake("merges where waiting takes exactly a latency")
def merges_at_a_tie(wait_s, a_s, group_bytes, small_bytes):
    return wait_s <= a_s or group_bytes < small_bytes


@G5.mistake("small groups do not wait: small_bytes is ignored")
def small_ignored(wait_s, a_s, group_bytes, small_bytes):
    return wait_s < a_s


@G5.mistake("a group of exactly small_bytes waits too")
def small_or_equal(wait_s, a_s, group_bytes, small_bytes):
    return wait_s < a_s or group_bytes <= small_bytes


@G5.mistake("large groups are never merged, however short the wait")
def small_alone(wait_s, a_s, group_bytes, small_bytes):
    return group_bytes < small_bytes if small_bytes else wait_s < a_s


# ---- G6: the best groups ----


def best_counts(ready_s: list[float], nbytes: list[int], line: Line) -> list[int]:
    """G6: best groups: no others have a last call that ends earlier. Any that end as early are
    right.

    Source: ours.

    All 2^(L-1) are tried, so L should be small. -> counts
    """
    return min(
        groupings(len(ready_s)),
        key=lambda counts: step_times(ready_s, nbytes, counts, line)[1],
    )


def groupings(count: int) -> Iterator[list[int]]:
    """All ways to cut `count` gradients into groups of neighbours."""
    if count == 0:
        yield []
    for first in range(1, count + 1):
        for rest in groupings(count - first):
            yield [first, *rest]


def run_best(module: Any, case: Case) -> Outputs:
    line = tuple(case.arguments["line"])
    return {"out.counts": np.array(module.best_counts(*gradients(case), line), np.int64)}


G6 = Statement("G6", best_counts)
BEST = JudgedFunction(best_counts, "G6", COUNTS, INPUTS, run_best)


@BEST.fresh
def any_small_network(d: Draw) -> Given:
    arrays, line = drawn_gradients(d, largest=9)
    return {"line": line, **arrays}


@BEST.golden
def best_cases() -> Cases:
    arrays, line = inputs_of(SMALLEST[0]), SMALLEST[1]
    why = "the greedy rule ends at 9, the best groups at 8"
    case = BEST.case("best-smallest", why, line=line, **arrays)
    yield case.shows(case["out.counts"].tolist() == [1, 2], "one, then two")
    for name, pairs in FEW.items():
        yield BEST.case(f"best-{name}", name.replace("-", " "), line=line, **inputs_of(pairs))
    arrays = inputs_of([(float(i), 8) for i in range(1, 9)])
    why = "backward is far ahead: many groupings end equally early, and any of them is right"
    yield BEST.case("best-many", why, line=[0.125, 0.03125], **arrays)
    for count in (7, 9, 10):
        yield hard_case(count)


def hard_case(count: int) -> Case:
    """None of the simpler ways finds these groups' end."""
    for seed in range(1000):
        arrays, line = network(random_source(f"best-{count}", seed), count)
        found = arrays["ready_s"].tolist(), arrays["nbytes"].tolist(), (line[0], line[1])
        ways = (best_counts, greedy_counts, all_or_none, pairs_at_most, best_theta)
        best_s, *others_s = (step_times(*found[:2], way(*found), found[2])[1] for way in ways)
        if all(other_s > best_s for other_s in others_s):
            break
    why = "neither the greedy rule nor any theta, neither pairs nor one call end as early"
    case = BEST.case(f"best-{count}", why, line=line, **arrays)
    return case.shows(seed < 999, "simpler ways end later")


@G6.mistake("the greedy rule, which is not the best")
def trusts_the_rule(ready_s, nbytes, line):
    return greedy_counts(ready_s, nbytes, line)


@G6.mistake("one call or one for each gradient, whichever ends first")
def all_or_none(ready_s, nbytes, line):
    pair = ([1] * len(ready_s), [len(ready_s)] if ready_s else [])
    return min(pair, key=lambda counts: step_times(ready_s, nbytes, counts, line)[1])


@G6.mistake("groups of at most two gradients")
def pairs_at_most(ready_s, nbytes, line):
    found: list[list[int]] = [[]]
    for _ in ready_s:
        longer = [[*counts[:-1], 2] for counts in found if counts and counts[-1] == 1]
        found = [[*counts, 1] for counts in found] + longer
    return min(found, key=lambda counts: step_times(ready_s, nbytes, counts, line)[1])


@G6.mistake("the best theta: groups that no theta forms are not tried")
def best_theta(ready_s, nbytes, line):
    thetas = [0, *(sum(nbytes[i:j]) for j in range(len(nbytes) + 1) for i in range(j))]
    steps = [lazy_step(ready_s, nbytes, theta, line) for theta in thetas]
    return min(steps, key=lambda step: step[2])[0]
