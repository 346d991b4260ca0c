"""Asynchronous sums between nodes: DASO (A), and its form `heat`."""

from typing import Any

import numpy as np

from refgf.oracle.definitions import DASOSettings
from refgf.oracle.judge.functions.before import (
    JudgedFunction,
    Outputs,
    array_function,
    select,
    steps_of,
)
from refgf.oracle.spec.case import Case


def daso_settings(case: Case) -> DASOSettings:
    fields = [name for name in DASOSettings.__dataclass_fields__ if name in case.arguments]
    return DASOSettings(**select(case, *fields))


def run_of(name: str) -> JudgedFunction:
    """Parameters and velocity per batch and rank."""

    def run(module: Any, case: Case) -> Outputs:
        phases = [tuple(phase) for phase in case.arguments["phases"]]
        w, g = case["in.w"].copy(), steps_of(case["in.g"])
        states = getattr(module, name)(w, g, daso_settings(case), phases)
        return {f"out.{key}": np.array([state[key] for state in states]) for key in "wv"}

    return JudgedFunction(run, {key: ("step", "rank", "element") for key in "wv"})


def phases_of(name: str) -> JudgedFunction:
    def run(module: Any, case: Case) -> Outputs:
        settings = select(case, "epochs", "warmup", "cooldown", "largest")
        phases = getattr(module, name)(case["in.losses"].tolist(), **settings)
        return {"out.phases": np.array(phases, np.int64)}

    return JudgedFunction(run, {"phases": ("epoch", "B, L, W")})


def traffic_of(name: str) -> JudgedFunction:
    def run(module: Any, case: Case) -> Outputs:
        settings = select(case, "n", "p", "nodes", "batches").values()
        phase, chunk = tuple(case.arguments["phase"]), case.arguments["chunk"]
        traffic = getattr(module, name)(*settings, phase, chunk)
        return {"out.traffic": np.array(traffic, np.int64)}

    return JudgedFunction(run, {"traffic": ("rank", "messages, bytes")})


FUNCTIONS = {}
for form in ("daso", "heat"):
    merge = f"{form}_merge"
    FUNCTIONS |= {
        merge: array_function(merge, ["w", "total"], ["nodes", "waited"], w=("element",)),
        f"{form}_phases": phases_of(f"{form}_phases"),
        f"{form}_traffic": traffic_of(f"{form}_traffic"),
        f"{form}_run": run_of(f"{form}_run"),
    }
