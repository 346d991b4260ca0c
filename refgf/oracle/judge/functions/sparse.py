"""Coarse-grained sparse communication: chunks, their importance and choice, whole runs (C)."""

from typing import Any

import numpy as np

from refgf.oracle.definitions import CSCRunSettings, WarmupPlan, chunk_bounds
from refgf.oracle.judge.functions.judged import (
    JudgedFunction,
    Outputs,
    array_function,
    bounds_of,
    number,
    per_step,
    select,
    steps_of,
)
from refgf.oracle.spec.case import Case


def importance(module: Any, case: Case) -> Outputs:
    return {"out.importance": module.importance(list(case["in.x"]), case.arguments["chunk"])}


def percent_of_step(module: Any, case: Case) -> Outputs:
    """The density is a number of any kind: 20 and 20.0 are the same."""
    percent, dense = module.percent_of_step(**select(case, *WARMUP))
    return {"out.percent": np.float64(percent), "out.dense": np.uint8(bool(dense))}


def csc_settings(case: Case) -> CSCRunSettings:
    """The settings of a case: what it leaves out has its default."""
    a = case.arguments
    given = {k: number(a[k]) for k in CSCRunSettings.__dataclass_fields__ if k in a}
    sizes, decayed = tuple(case["in.sizes"].tolist()), case.tensors.get("in.decayed")
    return CSCRunSettings(sizes, decayed=None if decayed is None else tuple(decayed), **given)


def csc_percents(case: Case) -> list[tuple]:
    """(percent, dense) of each step and of the one after the last (C6)."""
    return [tuple(pair) for pair in case.arguments["percents"]]


def csc_run(module: Any, case: Case, lists: list | None = None) -> Outputs:
    """w, the residual and the chosen chunks (1 or 0) per step and rank; scale and finite per step.

    lists: chunks to send in each step instead of the chosen ones.
    """
    s, w = csc_settings(case), case["in.w"]
    more = {} if lists is None else {"lists": lists}
    steps = module.csc_run(w.copy(), steps_of(case["in.g"]), s, csc_percents(case), **more)
    return csc_outputs(steps, len(chunk_bounds(len(w), s.chunk)))


def sparse_warmup_run(module: Any, case: Case) -> Outputs:
    """The outputs of csc_run."""
    s, w = csc_settings(case), case["in.w"]
    plan = WarmupPlan(**select(case, *WarmupPlan.__dataclass_fields__))
    steps = module.sparse_warmup_run(w.copy(), steps_of(case["in.g"]), s, plan)
    return csc_outputs(steps, len(chunk_bounds(len(w), s.chunk)))


def csc_outputs(steps: list[dict], chunks: int) -> Outputs:
    """The reports of T steps as arrays."""
    result = {
        "out.w": np.array([step["w"] for step in steps]),
        **per_step(steps, "scale", "finite"),
    }
    result["out.chosen"] = np.array([[mask(c, chunks) for c in step["chosen"]] for step in steps])
    for name in steps[0]["kept"][0]:
        result[f"out.{name}"] = np.array([[kept[name] for kept in step["kept"]] for step in steps])
    return result


def mask(chosen: list[int] | None, chunks: int) -> np.ndarray:
    """1 for each chosen chunk; all of them in a dense step (None)."""
    return np.array([chosen is None or c in chosen for c in range(chunks)], np.uint8)


CSC_AXES = {name: ("step", "rank", "element") for name in ("w", "u", "v", "h")}
CSC_AXES |= {"chosen": ("step", "rank", "chunk"), "scale": ("step",), "finite": ("step",)}
WARMUP = ["step", "steps_per_epoch", "warmup_percents", "percent"]
PAYLOAD = ["chosen", "n", "chunk", "dtype", "wire"]
FUNCTIONS = {
    "chunk_bounds": bounds_of("chunk_bounds", "n", "chunk", axis="chunk"),
    "importance": JudgedFunction(importance, {"importance": ("chunk",)}),
    "choose": array_function("choose", ["values"], ["percent"], chosen=("place",)),
    "percent_of_step": JudgedFunction(percent_of_step, {"percent": (), "dense": ()}),
    "csc_payload_bytes": array_function("csc_payload_bytes", [], PAYLOAD, bytes=()),
    "csc_run": JudgedFunction(csc_run, CSC_AXES),
    "sparse_warmup_run": JudgedFunction(sparse_warmup_run, CSC_AXES),
}
