"""The black box in a process of its own: a crash or a hang in C ends only that process.

    reveal  ---- p arrays, pickled ------->  python -m refgf.oracle.reveal.isolation
            <--- JSON and safetensors -----  PythonFunction

One process for all calls. judge/isolation.py says how it ends and how its answers are read.
"""

import faulthandler
import sys
from multiprocessing.connection import Connection

import numpy as np

from refgf.oracle.judge.implementations import Result
from refgf.oracle.judge.isolation import IsolatedModule, as_bytes
from refgf.oracle.reveal.sources import PythonFunction

NEXT = "wanted the sum of all ranks; next: call it in a Python of your own"


class IsolatedFunction(IsolatedModule):
    """A PythonFunction in another process. function: its name, None to look for one."""

    server, command = "refgf.oracle.reveal.isolation", "reveal"

    def __init__(self, module: str, function: str | None, dtype: str, timeout_s: float = 60.0):
        self.more = dtype, function or ""
        super().__init__(module, timeout_s)
        (self.function,) = self.started.outputs
        self.other_types = ""

    def __call__(self, xs: list[np.ndarray]) -> list[np.ndarray]:
        result = self.run(xs)
        if result.error is not None:
            own = result.error.startswith(f"{self.command}:")
            error = result.error if own else f"{self.command}: {self.function}: {result.error}"
            raise ValueError(error if "; wanted " in error else f"{error}; {NEXT}")
        others = [name for name in result.outputs if not name.isdecimal()]
        self.other_types = "".join(others)
        names = set(result.outputs) - set(others)
        return [result.outputs[name] for name in sorted(names, key=int)]


def serve(pipe: Connection, module: str, timeout_s: float, dtype: str, name: str) -> None:
    """Answer calls until the other side closes the pipe; the first answer names the function.

    An array that is named by no number names the types of results that have not the inputs' type.
    """
    try:
        box = PythonFunction(module, name or None, dtype, timeout_s)
    except ValueError as error:
        pipe.send_bytes(as_bytes(Result(error=str(error))))
        return
    pipe.send_bytes(as_bytes(Result({box.name: np.empty(0)})))
    while True:
        try:
            xs = pipe.recv()
        except EOFError:
            return
        pipe.send_bytes(as_bytes(answered(box, xs)))


def answered(box: PythonFunction, xs: list[np.ndarray]) -> Result:
    try:
        rows = {str(i): row for i, row in enumerate(box(xs))}
        return Result(rows | ({box.other_types: np.empty(0)} if box.other_types else {}))
    except ValueError as error:
        return Result(error=str(error))


if __name__ == "__main__":
    faulthandler.enable()  # a crash names its line on stderr
    sys.path[0] = "."
    descriptor, module, limit, dtype, name = sys.argv[1:]
    serve(Connection(int(descriptor)), module, float(limit), dtype, name)
