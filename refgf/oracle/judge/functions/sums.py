"""Sums over ranks: slices, ring, direct, exact sums (R, D, S)."""

from typing import Any

import numpy as np

from refgf.oracle.judge.functions.before import (
    JudgedFunction,
    Outputs,
    array_function,
    bounds_of,
    select,
    vectors,
)
from refgf.oracle.spec.calls import RANK_ELEMENT, allreduce
from refgf.oracle.spec.case import Case

PLAIN_SUMS = (
    "ring_allreduce",
    "direct_allreduce",
)  # the profiles `sum` and `agreement` apply to these


def allreduce_with_states(name: str, *arguments: str) -> JudgedFunction:
    """An allreduce whose module may have `..._states` too: all ranks' arrays after each step."""
    states_name = name.replace("allreduce", "states")
    plain = allreduce(name, *arguments)

    def run(module: Any, case: Case) -> Outputs:
        result = plain(module, case)
        states = getattr(module, states_name, None)
        if states and "state.x" in case.tensors:
            steps = states(vectors(case), **select(case, *arguments))
            result["state.x"] = np.stack([np.stack(xs) for xs in steps])
        return result

    return JudgedFunction(run, RANK_ELEMENT, (states_name,))


def traffic(name: str) -> JudgedFunction:
    """(messages, elements) that each of p ranks sends."""

    def run(module: Any, case: Case) -> Outputs:
        n, p = case.arguments["n"], case.arguments["p"]
        return {
            "out.traffic": np.array([getattr(module, name)(n, p, r) for r in range(p)], np.int64)
        }

    return JudgedFunction(run, {"traffic": ("rank", "messages, elements")})


FUNCTIONS = {
    "slice_bounds": bounds_of("slice_bounds", "n", "p", axis="slice"),
    "ring_allreduce": allreduce_with_states("ring_allreduce", "wire"),
    "ring_traffic": traffic("ring_traffic"),
    "direct_allreduce": allreduce_with_states("direct_allreduce", "wire"),
    "direct_traffic": traffic("direct_traffic"),
    "agree": array_function("agree", ["x"], [], agree=()),
    "exact_sum": array_function("exact_sum", ["x"], [], sum=("element",)),
    "summation_bound": array_function("summation_bound", ["x"], ["wire"], bound=("element",)),
}
