"""A Python function of all ranks' arrays, or of one rank's, as the black box.

isolation.py runs it in a process of its own.
"""

import inspect
from collections.abc import Callable

import numpy as np

from refgf.oracle.foreign import ranks
from refgf.oracle.foreign.guard import ENDS, contained, describe
from refgf.oracle.judge.implementations import load_module
from refgf.oracle.spec.calls import overwritten

NAMES = ("allreduce", "ring_allreduce", "direct_allreduce", "reduce_scatter")
OVERWRITES = "overwritten-"  # and a rank, in the place of another type
Array = np.ndarray


class NothingReturned(Exception):
    """None instead of sums."""


class PythonFunction:
    """A function as `verify` takes it: (xs, wire=None) -> list of p arrays, or (comm, x) in place.

    One that returns None must have summed into xs; one array is the sum on every rank. One whose
    name begins with reduce_scatter returns the p slices of one sum. bfloat16 is given as SPEC.md
    says, in float32 with wire="bfloat16", to a function that takes `wire`; otherwise as arrays of
    ml_dtypes.
    """

    def __init__(self, module: str, name: str | None, dtype: str, timeout_s: float = 60.0):
        try:
            loaded = load_module(module)
        except ValueError as error:
            raise ValueError(str(error).replace("verify:", "reveal:", 1)) from error
        self.name = name or next((n for n in NAMES if hasattr(loaded, n)), None)
        self.function = getattr(loaded, self.name or "", None)
        if not callable(self.function):
            raise ValueError(
                f"reveal: got {module} without {name or 'any of ' + ', '.join(NAMES)}; wanted a "
                "function of all ranks' arrays, or (comm, x); next: --function NAME"
            )
        self.given, self.timeout_s = parameters(self.function), timeout_s
        wired = dtype == "bfloat16" and "wire" in self.given
        self.options = {"wire": "bfloat16"} if wired else {}
        self.type = np.dtype(np.float32) if wired else numpy_type(dtype)
        self.unchanged, self.in_place = 0, False  # calls that returned None and left xs as it was
        self.other_types = ""  # of results that have not the inputs' type, and what else is odd

    def __call__(self, xs: list[Array]) -> list[Array]:
        xs = [x.astype(self.type) for x in xs]
        try:
            with np.errstate(all="ignore"), contained(self.timeout_s):
                rows = self.sum_of(xs)
                rows = [np.asarray(row) for row in rows]
                rows = [row.astype(row.dtype.newbyteorder("=")) for row in rows]
                types = dict.fromkeys(r.dtype.name for r in rows if r.dtype != self.type)
                self.other_types = self.other_types or "-".join(types)
                rows = [row.astype(np.float64) for row in rows]
        except NothingReturned as error:
            raise ValueError(f"reveal: {self.name} {error}") from error
        except ENDS as error:  # foreign code may raise anything
            raise ValueError(f"reveal: {self.name} {describe(error, self.name)}") from error
        return [np.concatenate(rows)] if self.name.startswith("reduce_scatter") else rows

    def sum_of(self, xs: list[Array]) -> list[Array]:
        if self.given[:1] != ["comm"]:
            before = [x.copy() for x in xs]
            result = self.function(xs, **self.options)
            if result is None:
                self.require_in_place(before, xs)
                result = xs
            rows = [result] if getattr(result, "ndim", 0) == 1 else list(result)
            rank = overwritten(before, xs, rows)
            if rank is not None:
                self.other_types = self.other_types or f"{OVERWRITES}{rank}"
            return rows
        comms, failure = ranks.run(xs, self.function, self.timeout_s)
        if failure:
            raise RuntimeError(failure)
        return [comm.x for comm in comms]

    def require_in_place(self, before: list[Array], xs: list[Array]) -> None:
        """A sum onto one rank leaves xs as it was if only that rank contributes, but p do here."""
        self.in_place |= any(a.tobytes() != x.tobytes() for a, x in zip(before, xs))
        self.unchanged += 1
        if self.unchanged == len(xs) and not self.in_place:
            raise NothingReturned(
                "returned None and left xs as it was; wanted a list of p arrays, or the sum in "
                "each array of xs; next: return the sums"
            )


def parameters(function: Callable) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def numpy_type(dtype: str) -> np.dtype:
    """A type of NumPy, or of ml_dtypes for bfloat16."""
    if dtype != "bfloat16":
        return np.dtype(dtype)
    try:
        import ml_dtypes
    except ImportError:
        raise ValueError(
            "reveal: got bfloat16, which NumPy lacks; wanted ml_dtypes, or a function with an "
            "argument wire; next: pip install ml_dtypes"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)
