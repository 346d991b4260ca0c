"""How a case calls a function, and what it returns as arrays.

    FUNCTIONS["ring_allreduce"].run(module, case)  ->  {"out.x": array (p, n)}

`module` is anything that has functions of the names and arguments in SPEC.md: the definitions, the
definitions with a seeded mistake, or an implementation. One array per rank becomes one array with a
first axis `rank`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from refgf.oracle.spec.case import Case

Outputs = dict[str, np.ndarray]  # {"out.NAME": array}
OVERWRITTEN = "rank.overwritten"  # next to the results: whose input is spoilt
RANK_ELEMENT = {"x": ("rank", "element")}
Run = Callable[[Any, Case], Outputs]  # (anything with functions of SPEC.md's names, case)
TRAFFIC = {"traffic": ("rank", "messages, elements")}


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Are these the same numbers, bit for bit? NaN equals any NaN, +0 differs from -0."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    same_number = (a == b) & (np.signbit(a) == np.signbit(b))
    return bool((same_number | (np.isnan(a) & np.isnan(b))).all())


def named(names: Any, values: Any) -> Outputs:
    return {f"out.{name}": np.asarray(value) for name, value in zip(names, values)}


def select(case: Case, *names: str) -> dict[str, Any]:
    """These arguments of a case, by name."""
    return {name: case.arguments[name] for name in names}


def overwritten(
    before: list[np.ndarray], after: list[np.ndarray], rows: list[np.ndarray]
) -> int | None:
    """The first rank whose input a sum over ranks spoilt, in bits.

    All inputs stay as they were, or each holds the result of its rank: that is a sum in place.
    """
    if all(a.tobytes() == b.tobytes() for a, b in zip(before, after)):
        return None
    if len(rows) == len(after) and all(map(np.array_equal, after, rows, [True] * len(rows))):
        return None
    pairs = enumerate(zip(before, after))
    return next(rank for rank, (a, b) in pairs if a.tobytes() != b.tobytes())


def allreduce(name: str, *arguments: str) -> Run:
    """A list of p arrays in, a list of p arrays out."""

    def run(module: Any, case: Case) -> Outputs:
        xs = vectors(case)
        found = getattr(module, name)(xs, **select(case, *arguments))
        if found is None:
            raise TypeError("it returned None; wanted p arrays")
        rows = list(found) if isinstance(found, Iterator) else found
        spoilt = overwritten(list(case["in.x"]), xs, rows)
        more = {} if spoilt is None else {OVERWRITTEN: np.array(spoilt, np.int64)}
        return {"out.x": np.stack(rows), **more}

    return run


def vectors(case: Case) -> list[np.ndarray]:
    """in.x as p arrays, copied because a function may add in place."""
    return [x.copy() for x in case["in.x"]]


def traffic_of(name: str) -> Run:
    """(messages, elements) that each of p ranks sends."""

    def run(module: Any, case: Case) -> Outputs:
        n, p = case.arguments["n"], case.arguments["p"]
        sent = [getattr(module, name)(n, p, rank) for rank in range(p)]
        return {"out.traffic": np.array(sent, np.int64)}

    return run


def node_traffic(name: str, *before: str, after: tuple[str, ...] = ()) -> Run:
    """(messages, elements) of every rank of some nodes; arguments go before and after the rank."""

    def run(module: Any, case: Case) -> Outputs:
        first, last = ([case.arguments[a] for a in names] for names in (before, after))
        ranks = range(sum(map(len, case.arguments["nodes"])))
        sent = [getattr(module, name)(*first, rank, *last) for rank in ranks]
        return {"out.traffic": np.array(sent, np.int64)}

    return run


def steps_of(gradients: np.ndarray) -> list[list[np.ndarray]]:
    """(T, p, n) -> T lists of p arrays (n,)"""
    return [list(step) for step in gradients]


def pairs(values: list[tuple[int, int]]) -> np.ndarray:
    """A list of (start, stop), possibly empty, as an array (k, 2)."""
    return np.array(values, np.int64).reshape(len(values), 2)


def bounds_of(name: str, *arguments: str) -> Run:
    """A function that divides elements: it returns [(start, stop)]."""

    def run(module: Any, case: Case) -> Outputs:
        return {"out.bounds": pairs(getattr(module, name)(*select(case, *arguments).values()))}

    return run


def number(value: Any) -> Any:
    """An argument of a case; JSON has no infinity, so cases write "inf"."""
    return float("inf") if value == "inf" else value


def flags(values: np.ndarray) -> np.ndarray:
    """0 and 1 of a file as bool."""
    return values.astype(bool)


def per_step(steps: list[dict[str, Any]], *names: str) -> Outputs:
    """Scalars of each step's report: "scale" and "finite"."""
    types = {"scale": np.float64, "finite": np.uint8}
    return {f"out.{name}": np.array([step[name] for step in steps], types[name]) for name in names}
