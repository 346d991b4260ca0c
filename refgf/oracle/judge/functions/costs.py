"""The time of a collective (E): a case has many entries, and the function is called for each."""

from typing import Any

import numpy as np

from refgf.oracle.judge.functions.before import JudgedFunction, Outputs, select
from refgf.oracle.spec.case import Case

INSIDE_BETWEEN = ("itemsize", "inside", "between")


def seconds(name: str, inputs: tuple[str, ...], *settings: str) -> JudgedFunction:
    """seconds[i] = name(inputs[i] ..., settings ...). A link is passed as (alpha, beta, gamma)."""

    def run(module: Any, case: Case) -> Outputs:
        more = [as_link(value) for value in select(case, *settings).values()]
        rows = zip(*(case[f"in.{i}"].tolist() for i in inputs))
        times = [getattr(module, name)(*row, *more) for row in rows]
        return {"out.seconds": np.array(times, np.float64)}

    return JudgedFunction(run, {"seconds": ("entry",)})


def as_link(value: Any) -> Any:
    """A case's list of numbers as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def allreduce_line(module: Any, case: Case) -> Outputs:
    a = case.arguments
    sizes, link = case["in.p"].tolist(), as_link(a["link"])
    lines = [module.allreduce_line(a["algorithm"], p, link) for p in sizes]
    return {"out.line": np.array(lines, np.float64).reshape(len(sizes), 2)}


FLAT = (
    "reduce_scatter_s",
    "allgather_s",
    "ring_s",
    "direct_s",
    "tree_s",
    "recursive_doubling_s",
    "halving_doubling_s",
)
OVER_NODES = ("three_phase_s", "two_level_s", "log_phases_s")
SPARSE_OVER_NODES = ("hitopk_s", "hitopk_pairs_s")
PLACES = ("n", "nodes", "ranks_per_node")
FUNCTIONS = {
    **{name: seconds(name, ("n", "p"), "itemsize", "link") for name in FLAT},
    **{name: seconds(name, PLACES, *INSIDE_BETWEEN) for name in OVER_NODES},
    "allreduce_line": JudgedFunction(allreduce_line, {"line": ("entry", "a, b")}),
    "topk_s": seconds("topk_s", ("p", "chosen"), "itemsize", "link"),
    **{name: seconds(name, (*PLACES, "chosen"), *INSIDE_BETWEEN) for name in SPARSE_OVER_NODES},
}
