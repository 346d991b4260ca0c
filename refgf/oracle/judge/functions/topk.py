"""Top-k sparsification, flat and over nodes (T)."""

from typing import Any

import numpy as np

from refgf.oracle.judge.functions.before import (
    JudgedFunction,
    Outputs,
    node_traffic,
    select,
    steps_of,
)
from refgf.oracle.spec.case import Case


def selection(name: str, *arguments: str) -> JudgedFunction:
    """A function that chooses indices of in.x."""

    def run(module: Any, case: Case) -> Outputs:
        chosen = getattr(module, name)(case["in.x"], **select(case, *arguments))
        return {"out.chosen": np.asarray(chosen, np.int64)}

    return JudgedFunction(run, {"chosen": ("place",)})


def sparse_run(name: str, *arguments: str) -> JudgedFunction:
    """Steps with error feedback: the sum and the residual per step and rank."""
    outputs = ("x", "kept")

    def run(module: Any, case: Case) -> Outputs:
        settings = select(case, *arguments).values()
        steps = getattr(module, name)(steps_of(case["in.g"]), *settings)
        return {f"out.{key}": np.array([step[key] for step in steps]) for key in outputs}

    return JudgedFunction(run, {key: ("step", "rank", "element") for key in outputs})


def keep_count(module: Any, case: Case) -> Outputs:
    percents, n = case["in.percent"], case.arguments["n"]
    counts = [module.keep_count(n, float(percent)) for percent in percents]
    return {"out.k": np.array(counts, np.int64)}


BUDGET, BYTES = ("n", "nodes", "percent"), "messages, bytes"
FUNCTIONS = {
    "keep_count": JudgedFunction(keep_count, {"k": ("density",)}),
    "top_k": selection("top_k", "k"),
    "mstopk": selection("mstopk", "k", "start", "rounds"),
    "topk_run": sparse_run("topk_run", "percent"),
    "hitopk_run": sparse_run("hitopk_run", "nodes", "percent"),
    "hitopk_pairs_traffic": node_traffic("hitopk_pairs_traffic", *BUDGET, counts=BYTES),
    "topk_traffic": node_traffic("topk_traffic", *BUDGET, after=("hierarchical",), counts=BYTES),
}
