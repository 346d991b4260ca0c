"""Numbers on the wire, loss scaling, and the optimisers: momentum SGD and LARS (P, M)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.definitions import LARSSettings
from refgf.oracle.judge.functions.before import (
    JudgedFunction,
    Outputs,
    array_function,
    flags,
    per_step,
    select,
    steps_of,
    summing,
)
from refgf.oracle.spec.case import Case

OPTIMIZER_AXES = {"w": ("step", "element"), "v": ("step", "element")}
SCALED_AXES = {"w": ("step", "element"), "scale": ("step",), "finite": ("step",)}


def next_scale(module: Any, case: Case) -> Outputs:
    """The loss scale after each of a run of finite and non-finite steps."""
    scale, good, scales = case.arguments["scale"], 0, []
    for finite in case["in.finite"]:
        scale, good = module.next_scale(scale, good, bool(finite), case.arguments["interval"])
        scales.append(scale)
    return {"out.scale": np.array(scales, np.float64)}


def scaled_run(module: Any, case: Case) -> Outputs:
    settings = select(case, "rate", "momentum", "scale", "interval", "wire").values()
    return scaled_steps(module.scaled_run(case["in.w"].copy(), steps_of(case["in.g"]), *settings))


def scaled_lars_run(module: Any, case: Case) -> Outputs:
    settings = lars_settings(case)
    return scaled_steps(
        module.scaled_lars_run(case["in.w"].copy(), steps_of(case["in.g"]), settings)
    )


def lars_settings(case: Case) -> LARSSettings:
    """The settings of a case: what it leaves out has its default."""
    names = [name for name in LARSSettings.__dataclass_fields__ if name in case.arguments]
    sizes, decayed = tuple(case["in.sizes"].tolist()), case.tensors.get("in.decayed")
    decayed = None if decayed is None else tuple(flags(decayed).tolist())
    return LARSSettings(sizes, decayed=decayed, **select(case, *names))


def scaled_steps(steps: list[dict]) -> Outputs:
    return {"out.w": np.stack([step["w"] for step in steps]), **per_step(steps, "scale", "finite")}


def lars_partial_squares(module: Any, case: Case) -> Outputs:
    """-> (p, 2, L), the shares of all ranks"""
    p, by, decayed = case.arguments["p"], case.arguments["by"], flags(case["in.decayed"])
    arrays = case["in.w"], case["in.g"], case["in.sizes"].tolist()
    shares = [module.lars_partial_squares(*arrays, r, p, by, decayed) for r in range(p)]
    return {"out.squares": np.stack(shares)}


def momentum_step(module: Any, case: Case) -> Outputs:
    settings, decayed = select(case, "rate", "momentum", "decay"), case.tensors.get("in.decayed")
    settings["decayed"] = None if decayed is None else flags(decayed)
    return optimizer_steps(lambda w, v, g: module.momentum_step(w, v, g, **settings), case)


def lars_step(module: Any, case: Case) -> Outputs:
    settings = lars_settings(case)
    return optimizer_steps(lambda w, v, g: module.lars_step(w, v, g, settings), case)


def optimizer_steps(step: Callable, case: Case) -> Outputs:
    """Steps from w and v = 0: in.g (T, n) -> w and v after each step."""
    w, ws, vs = case["in.w"].copy(), [], []
    v = np.zeros_like(w)
    for g in case["in.g"]:
        w, v = step(w, v, g)
        ws.append(w.copy())
        vs.append(v.copy())
    return {"out.w": np.stack(ws), "out.v": np.stack(vs)}


def decayed_gradient(module: Any, case: Case) -> Outputs:
    decay, decayed = case.arguments["decay"], flags(case["in.decayed"])
    return {"out.g": module.decayed_gradient(case["in.w"], case["in.g"], decay, decayed)}


def accumulated(module: Any, case: Case) -> Outputs:
    return {"out.x": module.accumulated(list(case["in.x"]))}


def momentum_rounding(module: Any, case: Case) -> Outputs:
    apart = tuple(case[f"in.{name}_apart"] for name in "wvg")
    settings = select(case, "rate", "momentum", "decay", "unit").values()
    w, v = module.momentum_rounding(case["in.w"], case["in.v"], case["in.g"], apart, *settings)
    return {"out.w_apart": w, "out.v_apart": v}


WARMUP = ["step", "warmup_steps", "base_rate", "batch_factor"]
FUNCTIONS = {
    "on_wire": array_function("on_wire", ["x"], ["wire"], x=("element",)),
    "bfloat16_bits": array_function("bfloat16_bits", ["x"], [], bits=("element",)),
    "underflow_share": array_function("underflow_share", ["x"], ["wire"], share=()),
    "scaled_allreduce": summing("scaled_allreduce", "scale", "wire"),
    "all_finite": array_function("all_finite", ["x"], [], finite=()),
    "next_scale": JudgedFunction(next_scale, {"scale": ("step",)}),
    "working_copy": array_function("working_copy", ["w"], ["wire"], w=("element",)),
    "scaled_run": JudgedFunction(scaled_run, SCALED_AXES),
    "decayed_gradient": JudgedFunction(decayed_gradient, {"g": ("element",)}),
    "momentum_step": JudgedFunction(momentum_step, OPTIMIZER_AXES),
    "momentum_rounding": JudgedFunction(
        momentum_rounding, {"w_apart": ("element",), "v_apart": ("element",)}
    ),
    "lars_step": JudgedFunction(lars_step, OPTIMIZER_AXES),
    "lars_ratio": array_function("lars_ratio", ["w", "g"], ["trust", "decay"], ratio=()),
    "warmup_rate": array_function("warmup_rate", [], WARMUP, rate=()),
    "polynomial_rate": array_function(
        "polynomial_rate", [], ["step", "steps", "rate", "power"], rate=()
    ),
    "accumulated": JudgedFunction(accumulated, {"x": ("element",)}),
    "lars_partial_squares": JudgedFunction(
        lars_partial_squares, {"squares": ("rank", "w, g", "tensor")}
    ),
    "scaled_lars_run": JudgedFunction(scaled_lars_run, SCALED_AXES),
}
