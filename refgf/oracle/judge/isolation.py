"""Somebody's module in a process of its own: a hang in C or a crash ends that process, and `verify` goes on.

    verify  ---- a case, pickled ---->  python -m refgf.oracle.judge.isolation
            <--- its Result ----------  PythonModule.run, with its own time limit, which tells the line

An answer that does not come in time ends the process and all its children; the next case gets a new one.
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

from refgf.oracle.judge.guard import told
from refgf.oracle.judge.implementations import PythonModule, Result, exit_name

IMPORT_S = 60.0  # how long importing the module may take
GRACE_S = (
    1.0  # how much longer than the time limit is waited, so that Python code can tell where it was
)
ROOT = Path(__file__).resolve().parents[3]


class Isolated:
    """What `PythonModule` is, elsewhere. name: of a module, or a path that ends in .py"""

    def __init__(self, name, timeout_s=60.0):
        self.name, self.timeout_s, self.process = name, timeout_s, None
        self._start()  # whether it can be imported is told at once

    def provides(self, case):
        return True

    def run(self, case):
        if self.process is None:
            self._start()
        answer = self._answer(self.timeout_s, case)
        return Result(error=answer) if isinstance(answer, str) else answer

    def close(self):
        """End the process and its children."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and left no children
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.pipe.close()
            self.process = None

    def _start(self):
        self.pipe, there = Pipe()
        command = [
            sys.executable,
            "-m",
            "refgf.oracle.judge.isolation",
            str(there.fileno()),
            self.name,
            str(self.timeout_s),
        ]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=environment,
            pass_fds=[there.fileno()],
            start_new_session=True,
        )
        there.close()
        answer = self._answer(IMPORT_S)
        if answer is not None:
            self.close()
            raise ValueError(
                answer
                if answer.startswith("verify:")
                else f"verify: importing {self.name}: {answer}"
            )

    def _answer(self, limit_s, case=None):
        """What the process answers (to a case), or a sentence about why it does not: it may have ended since the last one."""
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

    def _exit_name(self):
        try:
            return exit_name(self.process.wait(GRACE_S))
        except subprocess.TimeoutExpired:
            return "its connection closed"


def serve(pipe, name, timeout_s):
    """Answer cases until nobody asks any more."""
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


def answered(judged, case):
    """The Result of one case: arrays of numbers only, as objects of somebody's own classes mean nothing elsewhere."""
    if not judged.provides(case):
        return Result()
    result = judged.run(case)
    try:
        outputs = {name: np.asarray(value) for name, value in (result.outputs or {}).items()}
    except ValueError as error:  # rows of different lengths
        return Result(error=told(error, case.function))
    odd = [name for name, value in outputs.items() if value.dtype.kind not in "biuf"]
    if odd:
        return Result(
            error=f"{case.function} gave {outputs[odd[0]].dtype} as {odd[0]}; wanted numbers, as SPEC.md says"
        )
    return Result(outputs if result.outputs is not None else None, result.error, result.trace)


if __name__ == "__main__":
    faulthandler.enable()  # a crash tells its line on stderr
    sys.path[0] = "."
    serve(Connection(int(sys.argv[1])), sys.argv[2], float(sys.argv[3]))
