"""A foreign module in a process of its own: a hang in C or a crash ends only that process.

    verify  ---- a case, pickled ------->  python -m refgf.oracle.judge.isolation
            <--- JSON and safetensors ---  PythonModule.run, whose own time limit names the line

The foreign code holds the pipe, so it may send anything: its bytes are read as untrusted files are,
and nothing in them is executed. If an answer does not come in time, the process and all its
children are ended (orphans.py: those in another session, too); the next case gets a new process.
"""

import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from refgf.oracle.judge import orphans
from refgf.oracle.judge.case import Case
from refgf.oracle.judge.files import NAMES, little_endian, parse_tensors, tensor_bytes
from refgf.oracle.judge.guard import describe
from refgf.oracle.judge.implementations import (
    WANTED_MODULE,
    PythonModule,
    Result,
    exit_name,
)
from refgf.oracle.judge.trace import parse_event
from refgf.oracle.judge.untrusted import LARGEST_FILE, BadFile, parse_json

IMPORT_S = 60.0  # time limit of importing the module
GRACE_S = 1.0  # added to the time limit, so that Python code can report its line first
HEAD = {"error", "trace", "implemented", "general"}
ANSWER = "the answer of the judged process"
ROOT = Path(__file__).resolve().parents[3]


class IsolatedModule:
    """A PythonModule in another process. name: of a module, or a path that ends in .py

    server: the module that its process runs. command: whose errors these are.
    """

    server, command = "refgf.oracle.judge.isolation", "verify"
    more: tuple[str, ...] = ()  # arguments of the server, after name and time limit

    def __init__(self, name: str, timeout_s: float = 60.0):
        self.name, self.timeout_s, self.process = name, timeout_s, None
        self._start()  # reports at once whether the module can be imported

    def provides(self, case: Case) -> bool:
        return True

    def run(self, case: Case) -> Result:
        if self.process is None:
            self._start()
        return self._answer(self.timeout_s, case)

    def close(self) -> None:
        """End the process and its children."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and left no children
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.pipe.close()
            self.process = None
            orphans.end_children()

    def _start(self) -> None:
        self.pipe, remote = Pipe()
        arguments = [str(remote.fileno()), self.name, str(self.timeout_s), *self.more]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.server, *arguments],
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            pass_fds=[remote.fileno()],
            start_new_session=True,
            preexec_fn=orphans.keeper(),
        )
        remote.close()
        self.started = self._answer(IMPORT_S)
        error = self.started.error
        if error is not None:
            self.close()
            if error.startswith(f"{self.command}:"):
                raise ValueError(error)
            raise ValueError(
                f"{self.command}: importing {self.name}: {error}; {WANTED_MODULE}; next: import it "
                "in a Python of your own"
            )

    def _answer(self, limit_s: float, case: Any = None) -> Result:
        """The process's answer (to a case), or why there is none: it may have ended before."""
        try:
            if case is not None:
                self.pipe.send(case)
            if self.pipe.poll(limit_s + GRACE_S):
                return from_bytes(self.pipe.recv_bytes(LARGEST_FILE))
            error = f"did not end within {limit_s:g} s, inside a call that Python cannot interrupt"
        except BadFile as bad:
            error = f"{bad}; wanted what its functions return, and nothing else on its pipe"
        except (EOFError, OSError):  # OSError: a message without an end, or too long
            error = f"its process ended with {self._exit_name()}"
        except BaseException:  # interrupted
            self.close()
            raise
        self.close()
        return Result(error=error)

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
        pipe.send_bytes(as_bytes(Result(error=str(error))))
        return
    pipe.send_bytes(as_bytes(Result()))
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        pipe.send_bytes(as_bytes(answered(judged, case)))


def answered(judged: PythonModule, case: Case) -> Result:
    """The Result of one case, with arrays of numbers only: `verify` lacks foreign classes."""
    if not judged.provides(case):
        return Result()
    result = judged.run(case)
    try:
        outputs = {name: np.asarray(value) for name, value in (result.outputs or {}).items()}
    except ValueError as error:  # rows of different lengths
        return Result(error=describe(error, case.function))
    odd = [name for name, a in outputs.items() if little_endian(a).dtype.str not in NAMES]
    if odd:
        got = f"got {outputs[odd[0]].dtype} as {odd[0]}"
        return Result(error=f"{case.function}: {got}; wanted numbers, as SPEC.md says")
    outputs = outputs if result.outputs is not None else None
    return Result(outputs, result.error, result.trace, result.general)


def as_bytes(result: Result) -> bytes:
    """A line of JSON, then the outputs as safetensors."""
    head = {"error": result.error, "trace": result.trace and [vars(e) for e in result.trace]}
    head |= {"implemented": result.outputs is not None, "general": result.general}
    return json.dumps(head).encode() + b"\n" + tensor_bytes(result.outputs or {})


def from_bytes(message: bytes) -> Result:
    """What `as_bytes` made. Raises BadFile, because the other side may have sent anything."""
    line, _, tensors = message.partition(b"\n")
    head = parse_json(ANSWER, line)
    if not isinstance(head, dict) or set(head) != HEAD:
        raise BadFile(f"{ANSWER}: wanted an object with {', '.join(sorted(HEAD))}")
    error, trace = head["error"], head["trace"]
    if not isinstance(error, str | None) or not isinstance(trace, list | None):
        raise BadFile(f"{ANSWER}: wanted a text as error and a list as trace")
    events = trace and [parse_event(ANSWER, json.dumps(event)) for event in trace]
    outputs, _ = parse_tensors(ANSWER, tensors)
    return Result(outputs if head["implemented"] else None, error, events, bool(head["general"]))


if __name__ == "__main__":
    faulthandler.enable()  # a crash names its line on stderr
    sys.path[0] = "."
    serve(Connection(int(sys.argv[1])), sys.argv[2], float(sys.argv[3]))
