"""The black box in a process of its own: a crash or a hang in C ends only that process.

    reveal  ---- p arrays, safetensors ---->  PythonFunction
            <--- JSON and safetensors ------

One process for all calls. judge/isolation.py says how it ends and how its answers are read.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.foreign.files import parse_tensors, tensor_bytes
from refgf.oracle.judge.implementations import Result
from refgf.oracle.judge.isolation import IsolatedModule, as_bytes
from refgf.oracle.reveal.sources import PythonFunction

NEXT = "wanted the sum of all ranks; next: call it in a Python of your own"
QUESTION = "the ranks' arrays"


class IsolatedFunction(IsolatedModule):
    """A PythonFunction in another process. function: its name, None to look for one."""

    server, command = "refgf.oracle.reveal.isolation", "reveal"

    def __init__(self, module: str, function: str | None, dtype: str, timeout_s: float = 60.0):
        self.dtype, self.wanted = dtype, function or ""
        super().__init__(module, timeout_s)
        self.function = next(iter(self.started.outputs or {}), self.wanted)
        self.other_types = ""

    def arguments(self) -> dict[str, Any]:
        return super().arguments() | {"dtype": self.dtype, "function": self.wanted}

    def __call__(self, xs: list[np.ndarray]) -> list[np.ndarray]:
        result = self._asked(tensor_bytes({str(i): x for i, x in enumerate(xs)}))
        if result.error is not None:
            own = result.error.startswith(f"{self.command}:")
            error = result.error if own else f"{self.command}: {self.function}: {result.error}"
            raise ValueError(error if "; wanted " in error else f"{error}; {NEXT}")
        others = [name for name in result.outputs if not name.isdecimal()]
        self.other_types = "".join(others)
        names = set(result.outputs) - set(others)
        return [result.outputs[name] for name in sorted(names, key=int)]


def opened(
    name: str, timeout_s: float, dtype: str, function: str
) -> tuple[bytes, Callable[..., bytes] | None]:
    """What start.py runs. The first answer names the function.

    An array that is named by no number names the types of results that have not the inputs' type.
    """
    try:
        box = PythonFunction(name, function or None, dtype, timeout_s)
    except ValueError as error:
        return as_bytes(Result(error=str(error))), None
    return as_bytes(Result({box.name: np.empty(0)})), lambda question, _: as_bytes(
        answered(box, parse_tensors(QUESTION, question)[0])
    )


def answered(box: PythonFunction, tensors: dict[str, np.ndarray]) -> Result:
    xs = [tensors[str(i)].copy() for i in range(len(tensors))]
    try:
        rows = {str(i): row for i, row in enumerate(box(xs))}
        return Result(rows | ({box.other_types: np.empty(0)} if box.other_types else {}))
    except ValueError as error:
        return Result(error=str(error))
