"""How far rounding may move a step of momentum SGD (N13)."""

from typing import Any

from refgf.oracle.judge.functions.before import JudgedFunction, Outputs, select
from refgf.oracle.spec.case import Case


def momentum_rounding(module: Any, case: Case) -> Outputs:
    apart = tuple(case[f"in.{name}_apart"] for name in "wvg")
    settings = select(case, "rate", "momentum", "decay", "unit").values()
    w, v = module.momentum_rounding(case["in.w"], case["in.v"], case["in.g"], apart, *settings)
    return {"out.w_apart": w, "out.v_apart": v}


FUNCTIONS = {
    "momentum_rounding": JudgedFunction(
        momentum_rounding, {"w_apart": ("element",), "v_apart": ("element",)}
    ),
}
