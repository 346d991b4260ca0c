"""Comparing a result with a case: where is the first difference, and how large is it?"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from refgf.oracle.definitions import bfloat16_bits, bfloat16_values
from refgf.oracle.judge.phases import in_words as phases_in_words
from refgf.oracle.spec.calls import Outputs
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.statement import FUNCTIONS

LARGEST_TABLE = 40  # numbers that are printed where one of them is wrong


@dataclass(frozen=True)
class Failure:
    """where: {"step": 3, "rank": 1, "element": 17, "chunk": 2}, as far as the output has them.

    ulp: distance in units in the last place, None where that has no meaning.
    table: all numbers, got and wanted, of a small table of counts.
    phases: what a count of messages, elements or bytes consists of.
    """

    message: str
    output: str | None = None
    where: dict[str, int] | None = None
    got: str | None = None
    wanted: str | None = None
    ulp: float | None = None
    table: str | None = None
    phases: str = ""

    def __str__(self) -> str:
        numbers = f": got {self.got}, wanted {self.wanted}" if self.got is not None else ""
        distance = f" ({self.ulp:g} ulp)" if self.ulp is not None else ""
        table = f"; the whole table: {self.table}" if self.table is not None else ""
        return f"{self.message}{in_words(self.where or {})}{numbers}{distance}{self.phases}{table}"

    def as_dict(self) -> dict:
        return asdict(self)


def in_words(where: dict[str, int]) -> str:
    """A place: " at step 3, rank 1"; of the axis "messages, elements": " in elements of rank 2"."""
    place = ", ".join(f"{axis} {index}" for axis, index in where.items() if ", " not in axis)
    for axis, index in where.items():
        counted = axis.split(", ")
        if 1 < len(counted) > index:
            return f" in {counted[index]} of {place}"
    return f" at {place}" if place else ""


def judge_bits(case: Case, got: Outputs) -> Failure | None:
    """The first failure of a result. Intermediate states are judged where they are given."""
    failures = [compare(case, name, got, case[name]) for name in wanted_outputs(case, got)]
    found = [failure for failure in failures if failure]
    if found and all(failure.output.startswith("state.") for failure in found):
        return replace(found[0], message=found[0].message + ", the result is right")
    return earliest(found)


def earliest(failures: Iterable[Failure | None]) -> Failure | None:
    """The first failure by step; in one step a cause comes before its consequence.

    Causes are the chosen chunks, then whether all is finite; the consequence is w.
    """
    order = {"out.chosen": 0, "out.finite": 1, "out.w": 3, "out.scale": 3}

    def key(failure: Failure) -> tuple[float, int]:
        return (failure.where or {}).get("step", math.inf), order.get(failure.output, 2)

    return min((failure for failure in failures if failure), key=key, default=None)


def wanted_outputs(case: Case, got: Outputs) -> list[str]:
    """States first, because they precede the result."""
    return [name for name in case.with_prefix("state") if name in got] + [*case.with_prefix("out")]


def compare(case: Case, name: str, got: Outputs, wanted: np.ndarray) -> Failure | None:
    """One output against the wanted one: bit for bit, or within the bound if the case has one."""
    if name not in got:
        return Failure(f"{name} is missing", name)
    value = like(got[name], wanted)
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        shapes = (f"{a.dtype} {a.shape}" for a in (value, wanted))
        return Failure(f"{name} has another shape or type", name, None, *shapes)
    bound = case.tensors.get("bound." + name.removeprefix("out."))
    if bound is None:
        numbers = (value, wanted)
        if case.function == "bfloat16_bits":  # all bits of a NaN are right
            numbers = map(bfloat16_values, numbers)
        return first_failure(case, name, (value, wanted), differs(*numbers), "differs")
    wrong = outside(value, wanted, bound)
    return first_failure(case, name, (value, wanted), wrong, "is outside its bound")


def like(value: Any, wanted: np.ndarray) -> np.ndarray:
    """A result as an array. Counts may be any integers, a bool 0 or 1, a float one integer."""
    value = np.asarray(value)
    counts = wanted.dtype.kind in "iu" or wanted.ndim == 0
    if counts and value.dtype.kind in "iub":
        return value.astype(wanted.dtype)
    return value


def differs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays of one shape are not the same numbers: R4's comparison, by element."""
    if a.dtype.kind != "f":
        return a != b
    same = (a == b) & (np.signbit(a) == np.signbit(b))
    return ~(same | (np.isnan(a) & np.isnan(b)))


def outside(value: np.ndarray, wanted: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Where a value is farther from the wanted one than its bound; an infinite bound allows all."""
    with np.errstate(invalid="ignore"):
        near = np.abs(value.astype(np.float64) - wanted) <= bound
    same = ~differs(value.astype(np.float64), np.asarray(wanted, np.float64))
    return ~(near | same | np.isinf(bound))


def first_failure(
    case: Case,
    name: str,
    values: tuple[np.ndarray, np.ndarray],
    wrong: np.ndarray,
    verb: str,
) -> Failure | None:
    """The first element where `wrong` is True. values: got and wanted, of one shape."""
    if not np.any(wrong):
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    value, wanted = (array[index] for array in values)
    kind = "bfloat16" if name in case.bfloat16 else value.dtype.name
    distance = ulps(value, wanted, kind) if value.dtype == wanted.dtype else None
    numbers = repr(value.item()), repr(wanted.item())
    where = place(case, name, index)
    rows = values[0].dtype.kind in "iu" and any(", " in axis for axis in where)
    table = "got {}, wanted {}".format(*(a.tolist() for a in values))
    table = table if rows and values[0].size <= LARGEST_TABLE else None
    phases = phases_in_words(case, values, index) if name == "out.traffic" else ""
    return Failure(f"{name} {verb}", name, where, *numbers, distance, table, phases)


def place(case: Case, name: str, index: tuple[int, ...]) -> dict[str, int]:
    """{"step": 3, "rank": 1, ...} of an index of an output, and its chunk if there are chunks."""
    short = name.split(".", 1)[1]
    axes = FUNCTIONS[case.function].axes.get(short) or [f"axis {i}" for i in range(len(index))]
    if len(index) == len(axes) + 1:  # a state: one per step
        axes = ("step", *axes)
    where = dict(zip(axes, index))
    if "element" in where and "chunk" in case.arguments:
        where["chunk"] = where["element"] // case.arguments["chunk"]
    return where


def ulps(a: np.generic, b: np.generic, kind: str) -> float | None:
    """How many numbers of a type lie between two of them; None for NaN and for integers."""
    if np.asarray(a).dtype.kind != "f" or math.isnan(a) or math.isnan(b):
        return None
    return float(abs(_position(a, kind) - _position(b, kind)))


def _position(value: np.generic, kind: str) -> int:
    """The number's rank among all numbers of its type; zero has rank 0."""
    if kind == "bfloat16":
        bits, half = int(bfloat16_bits(np.float32(value))), 1 << 15
    else:
        size = np.dtype(kind).itemsize
        bits, half = int(np.asarray(value, kind).view(f"u{size}")), 1 << (8 * size - 1)
    return half - bits if bits >= half else bits
