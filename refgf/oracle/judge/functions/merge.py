"""The calls of a step in time, theta's groups, and merged gradients (G)."""

from typing import Any

import numpy as np

from refgf.oracle.judge.functions.before import JudgedFunction, Outputs, number, select
from refgf.oracle.spec.case import Case


def gradients(case: Case) -> tuple[list[float], list[int]]:
    """Ready times in seconds, and bytes."""
    return case["in.ready_s"].tolist(), case["in.nbytes"].tolist()


def times(calls: list, step_s: float) -> Outputs:
    """(start, end) of each call, and the end of the step."""
    return {
        "out.calls": np.array(calls, np.float64).reshape(len(calls), 2),
        "out.step_s": np.float64(step_s),
    }


def step_times(module: Any, case: Case) -> Outputs:
    a, line = case.arguments, tuple(case.arguments["line"])
    more = a["overlap"], a["compute_s"]
    return times(*module.step_times(*gradients(case), a["counts"], line, *more))


def lazy_step(module: Any, case: Case) -> Outputs:
    a, line = case.arguments, tuple(case.arguments["line"])
    counts, *timed = module.lazy_step(*gradients(case), number(a["theta_bytes"]), line)
    return {"out.counts": np.array(counts, np.int64), **times(*timed)}


def greedy_counts(module: Any, case: Case) -> Outputs:
    settings = {**select(case, "small_bytes"), "line": tuple(case.arguments["line"])}
    return {"out.counts": np.array(module.greedy_counts(*gradients(case), **settings), np.int64)}


def best_counts(module: Any, case: Case) -> Outputs:
    line = tuple(case.arguments["line"])
    return {"out.counts": np.array(module.best_counts(*gradients(case), line), np.int64)}


TIMES = {"calls": ("call", "start, end"), "step_s": ()}
FUNCTIONS = {
    "step_times": JudgedFunction(step_times, TIMES),
    "lazy_step": JudgedFunction(lazy_step, {"counts": ("group",), **TIMES}),
    "greedy_counts": JudgedFunction(greedy_counts, {"counts": ("group",)}),
    "best_counts": JudgedFunction(best_counts, {"counts": ("group",)}),
}
