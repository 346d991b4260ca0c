"""A foreign module in a process of its own: a hang in C or a crash ends only that process.

    verify  ---- a case, pickled ---->  python -m refgf.oracle.judge.isolation
            <--- its Result ----------  PythonModule.run, whose own time limit names the line

If an answer does not come in time, the process and all its children are ended; the next case gets a
new process.
"""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from refgf.oracle.judge.case import Case
from refgf.oracle.judge.guard import describe
from refgf.oracle.judge.implementations import PythonModule, Result, exit_name

IMPORT_S = 60.0  # time limit of importing the module
GRACE_S = 1.0  # added to the time limit, so that Python code can report its line first
ROOT = Path(__file__).resolve().parents[3]


class IsolatedModule:
    """A PythonModule in another process. name: of a module, or a path that ends in .py"""

    def __init__(self, name: str, timeout_s: float = 60.0):
        self.name, self.timeout_s, self.process = name, timeout_s, None
        self._start()  # reports at once whether the module can be imported

    def provides(self, case: Case) -> bool:
        return True

    def run(self, case: Case) -> Result:
        if self.process is None:
            self._start()
        answer = self._answer(self.timeout_s, case)
        return Result(error=answer) if isinstance(answer, str) else answer

    def close(self) -> None:
        """End the process and its children."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and left no children
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.pipe.close()
            self.process = None

    def _start(self) -> None:
        self.pipe, remote = Pipe()
        arguments = [str(remote.fileno()), self.name, str(self.timeout_s)]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "refgf.oracle.judge.isolation", *arguments],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=[remote.fileno()],
            start_new_session=True,
        )
        remote.close()
        answer = self._answer(IMPORT_S)
        if answer is not None:
            self.close()
            prefix = "" if answer.startswith("verify:") else f"verify: importing {self.name}: "
            raise ValueError(prefix + answer)

    def _answer(self, limit_s: float, case: Case | None = None) -> Result | str | None:
        """The process's answer (to a case), or why there is none: it may have ended before."""
        try:
            if case is not None:
                self.pipe.send(case)
            if self.pipe.poll(limit_s + GRACE_S):
                return self.pipe.recv()
            answer = f"did not end within {limit_s:g} s, inside a call that Python cannot interrupt"
        except (EOFError, ConnectionError):
            answer = f"its process ended with {self._exit_name()}"
        except BaseException:  # interrupted
            self.close()
            raise
        self.close()
        return answer

    def _exit_name(self) -> str:
        try:
            return exit_name(self.process.wait(GRACE_S))
        except subprocess.TimeoutExpired:
            return "its connection closed"


def serve(pipe: Connection, name: str, timeout_s: float) -> None:
    """Answer cases until the other side closes the pipe."""
    try:
        judged = PythonModule(name, timeout_s)
    except ValueError as error:
        pipe.send(str(error))
        return
    pipe.send(None)
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        pipe.send(answered(judged, case))


def answered(judged: PythonModule, case: Case) -> Result:
    """The Result of one case, with arrays of numbers only: `verify` lacks foreign classes."""
    if not judged.provides(case):
        return Result()
    result = judged.run(case)
    try:
        outputs = {name: np.asarray(value) for name, value in (result.outputs or {}).items()}
    except ValueError as error:  # rows of different lengths
        return Result(error=describe(error, case.function))
    odd = [name for name, value in outputs.items() if value.dtype.kind not in "biuf"]
    if odd:
        got = f"got {outputs[odd[0]].dtype} as {odd[0]}"
        return Result(error=f"{case.function}: {got}; wanted numbers, as SPEC.md says")
    return Result(outputs if result.outputs is not None else None, result.error, result.trace)


if __name__ == "__main__":
    faulthandler.enable()  # a crash names its line on stderr
    sys.path[0] = "."
    serve(Connection(int(sys.argv[1])), sys.argv[2], float(sys.argv[3]))
