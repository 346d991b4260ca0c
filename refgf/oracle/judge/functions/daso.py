"""Asynchronous sums between nodes: DASO (A)."""

from typing import Any

import numpy as np

from refgf.oracle.definitions import DASOSettings
from refgf.oracle.judge.case import Case
from refgf.oracle.judge.functions.judged import (
    JudgedFunction,
    Outputs,
    array_function,
    select,
    steps_of,
)


def daso_settings(case: Case) -> DASOSettings:
    fields = [name for name in DASOSettings.__dataclass_fields__ if name in case.arguments]
    return DASOSettings(**select(case, *fields))


def daso_run(module: Any, case: Case) -> Outputs:
    """Parameters and velocity per batch and rank."""
    phases = [tuple(phase) for phase in case.arguments["phases"]]
    w, g = case["in.w"].copy(), steps_of(case["in.g"])
    states = module.daso_run(w, g, daso_settings(case), phases)
    return {f"out.{name}": np.array([state[name] for state in states]) for name in "wv"}


def daso_phases(module: Any, case: Case) -> Outputs:
    settings = select(case, "epochs", "warmup", "cooldown", "largest")
    phases = module.daso_phases(case["in.losses"].tolist(), **settings)
    return {"out.phases": np.array(phases, np.int64)}


def daso_traffic(module: Any, case: Case) -> Outputs:
    settings = select(case, "n", "p", "nodes", "batches").values()
    phase, chunk = tuple(case.arguments["phase"]), case.arguments["chunk"]
    return {"out.traffic": np.array(module.daso_traffic(*settings, phase, chunk), np.int64)}


FUNCTIONS = {
    "daso_merge": array_function("daso_merge", ["w", "total"], ["nodes", "waited"], w=("element",)),
    "daso_phases": JudgedFunction(daso_phases, {"phases": ("epoch", "B, L, W")}),
    "daso_traffic": JudgedFunction(daso_traffic, {"traffic": ("rank", "messages, bytes")}),
    "daso_run": JudgedFunction(daso_run, {name: ("step", "rank", "element") for name in "wv"}),
}
