"""What the judge knows of a function: how a case calls it, what its results' indices mean."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refgf.oracle.spec.case import Case

Outputs = dict[str, np.ndarray]  # {"out.NAME": array}


@dataclass(frozen=True)
class JudgedFunction:
    """run(module, case) -> {"out.NAME": array}.

    axes: {"NAME": what each index means}, where "messages, bytes" says what index 0 and 1 count;
    also: definitions that `run` calls besides its namesake.
    """

    run: Callable[[Any, Case], Outputs]
    axes: dict[str, tuple[str, ...]]
    also: tuple[str, ...] = ()


def array_function(
    name: str, inputs: list[str], settings: list[str], **axes: tuple
) -> JudgedFunction:
    """A function of arrays, then named settings, that returns the results that `axes` lists."""

    def run(module: Any, case: Case) -> Outputs:
        arrays = (case[f"in.{i}"] for i in inputs)
        result = getattr(module, name)(*arrays, **select(case, *settings))
        return named(axes, result if len(axes) > 1 else [result])

    return JudgedFunction(run, axes)


def named(names: Any, values: Any) -> Outputs:
    return {f"out.{name}": np.asarray(value) for name, value in zip(names, values)}


def select(case: Case, *names: str) -> dict:
    """These arguments of a case, by name."""
    return {name: case.arguments[name] for name in names}


def overwritten(before: list[np.ndarray], after: list[np.ndarray], rows: list) -> int | None:
    """The first rank whose input a sum over ranks spoilt, in bits.

    All inputs stay as they were, or each holds the result of its rank: that is a sum in place.
    """
    if all(a.tobytes() == b.tobytes() for a, b in zip(before, after)):
        return None
    if len(rows) == len(after) and all(map(np.array_equal, after, rows, [True] * len(rows))):
        return None
    pairs = enumerate(zip(before, after))
    return next(rank for rank, (a, b) in pairs if a.tobytes() != b.tobytes())


def vectors(case: Case) -> list[np.ndarray]:
    """in.x as p arrays, copied because a function may add in place."""
    return [x.copy() for x in case["in.x"]]


def steps_of(gradients: np.ndarray) -> list[list[np.ndarray]]:
    """(T, p, n) -> T lists of p arrays (n,)"""
    return [list(step) for step in gradients]


def pairs(values: list) -> np.ndarray:
    """A list of (start, stop), possibly empty, as an array (k, 2)."""
    return np.array(values, np.int64).reshape(len(values), 2)


def bounds_of(name: str, *arguments: str, axis: str) -> JudgedFunction:
    """A function that divides elements: it returns [(start, stop)]."""

    def run(module: Any, case: Case) -> Outputs:
        bounds = getattr(module, name)(*(case.arguments[a] for a in arguments))
        return {"out.bounds": pairs(bounds)}

    return JudgedFunction(run, {"bounds": (axis, "start, stop")})


def node_traffic(
    name: str, *before: str, after: tuple[str, ...] = (), counts: str = "messages, elements"
) -> JudgedFunction:
    """Traffic of every rank of some nodes; arguments are passed before and after the rank."""

    def run(module: Any, case: Case) -> Outputs:
        first, last = ([case.arguments[a] for a in names] for names in (before, after))
        ranks = range(sum(map(len, case.arguments["nodes"])))
        traffic = [getattr(module, name)(*first, r, *last) for r in ranks]
        return {"out.traffic": np.array(traffic, np.int64)}

    return JudgedFunction(run, {"traffic": ("rank", counts)})


def number(value: float | str) -> float:
    """A case's number; JSON has no infinity, so cases write "inf"."""
    return float("inf") if value == "inf" else value


def flags(values: np.ndarray) -> np.ndarray:
    """0 and 1 of a file as bool."""
    return values.astype(bool)


def per_step(steps: list[dict], *names: str) -> Outputs:
    """Scalars of each step's report: "scale" and "finite"."""
    types = {"scale": np.float64, "finite": np.uint8}
    return {f"out.{name}": np.array([step[name] for step in steps], types[name]) for name in names}
