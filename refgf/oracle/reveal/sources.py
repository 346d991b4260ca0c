"""The black box in this process: a Python function of all ranks' arrays, or of one rank's."""

import inspect
from collections.abc import Callable

import numpy as np

from refgf.oracle.judge import ranks
from refgf.oracle.judge.guard import ENDS, contained, describe
from refgf.oracle.judge.implementations import load_module

NAMES = ("allreduce", "ring_allreduce", "direct_allreduce", "reduce_scatter")
Array = np.ndarray


class PythonFunction:
    """A function as `verify` takes it: (xs, wire=None) -> list of p arrays, or (comm, x) in place.

    One that returns nothing has summed into xs; one array is the sum on every rank. One whose name
    begins with reduce_scatter returns the p slices of one sum. bfloat16 is given as SPEC.md says,
    in float32 with wire="bfloat16", to a function that takes `wire`; otherwise as arrays of
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

    def __call__(self, xs: list[Array]) -> list[Array]:
        xs = [x.astype(self.type) for x in xs]
        try:
            with np.errstate(all="ignore"), contained(self.timeout_s):
                rows = self.sum_of(xs)
                rows = [np.asarray(row).astype(np.float64) for row in rows]
        except ENDS as error:  # foreign code may raise anything
            raise ValueError(f"reveal: {self.name} {describe(error, self.name)}") from error
        return [np.concatenate(rows)] if self.name.startswith("reduce_scatter") else rows

    def sum_of(self, xs: list[Array]) -> list[Array]:
        if self.given[:1] != ["comm"]:
            result = self.function(xs, **self.options)
            result = xs if result is None else result
            return [result] if getattr(result, "ndim", 0) == 1 else list(result)
        comms, failure = ranks.run(xs, self.function, self.timeout_s)
        if failure:
            raise RuntimeError(failure)
        return [comm.x for comm in comms]

    def close(self) -> None:
        """Nothing is open between two calls."""


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
