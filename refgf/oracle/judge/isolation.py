"""A foreign module in a process of its own: a hang in C or a crash ends only that process.

    verify  ---- one case's inputs, JSON and safetensors ---->  PythonModule.run, whose own
            <--- JSON and safetensors ------------------------  time limit names the line

oracle/foreign says what the process can reach. It gets no result of a case, and no name, from which
a random case could be made again. Its answers are read as untrusted files are, and nothing in them
is executed. If one does not come in time, the process and all its children are ended; the next case
gets a new process.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from refgf.oracle.foreign import orphans, scratch, view
from refgf.oracle.foreign.files import NAMES, little_endian, parse_tensors, tensor_bytes
from refgf.oracle.foreign.guard import describe
from refgf.oracle.foreign.process import Ended, Forged, Process, Server, TooLate
from refgf.oracle.foreign.report import exit_name, in_one_line, shown
from refgf.oracle.foreign.untrusted import LARGEST_FILE, BadFile, parse_json
from refgf.oracle.judge.implementations import IMPORT_S, WANTED_MODULE, PythonModule, Result
from refgf.oracle.judge.trace import parse_event
from refgf.oracle.spec.case import Case

GRACE_S = 1.0  # added to the time limit, so that Python code can report its line first
HEAD = {"error", "trace", "implemented", "general"}
ANSWER = "the answer of the judged process"
QUESTION = "a case"
ONLY = "wanted what its functions return, and nothing else on its pipe"
LINES = 200  # of what it prints, over all cases


class IsolatedModule:
    """A PythonModule in another process. name: of a module, or a path that ends in .py

    server: the module that its process runs. command: whose errors these are. hidden: folders of
    cases, whose results it must not read.
    """

    server, command = "refgf.oracle.judge.isolation", "verify"

    def __init__(self, name: str, timeout_s: float = 60.0, hidden: Iterable[str] = ()):
        self.name, self.timeout_s, self.hidden = name, timeout_s, tuple(hidden)
        self.process, self.lines, self.still_open = None, 0, set()
        self.open = contextlib.ExitStack()
        self.folder = self.open.enter_context(scratch.folder("refgf-case-"))
        try:
            self._start()  # reports at once whether the module can be imported
        except BaseException:
            self.close()
            raise

    def provides(self, case: Case) -> bool:
        return True

    def run(self, case: Case) -> Result:
        return self._asked(question_of(case))

    def close(self) -> None:
        """End the process and its children."""
        self._end()
        self.open.close()

    def arguments(self) -> dict[str, Any]:
        """Of the server."""
        return {"name": self.name, "timeout_s": self.timeout_s}

    def _asked(self, question: bytes) -> Result:
        if self.process is None:
            self._start()
        return self._answer(self.process.ask, question, self.timeout_s)

    def _start(self) -> None:
        wall = view.whole(self.name, self.folder, self.hidden)
        server = Server(self.server, self.arguments(), wall, largest=LARGEST_FILE)
        self.process = Process(server)
        self.started = self._answer(self.process.begin, IMPORT_S)
        self.still_open |= server.still_open
        error = self.started.error
        if error is not None:
            self._end()
            if error.startswith(f"{self.command}:"):
                raise ValueError(error)
            raise ValueError(
                f"{self.command}: importing {self.name}: {error}; {WANTED_MODULE}; next: import it "
                "in a Python of your own"
            )

    def _end(self) -> None:
        if self.process is not None:
            self.process.close()
            self.process = None
            orphans.end_children()

    def _answer(self, ask: Any, *given: Any) -> Result:
        """What the process answers, or why it does not: it may have ended before."""
        *question, limit_s = given
        try:
            return from_bytes(ask(*question, limit_s + GRACE_S))
        except TooLate:
            error = f"did not end within {limit_s:g} s, inside a call that Python cannot interrupt"
        except Forged:
            error = f"{ANSWER}: got bytes that its judge did not ask for; {ONLY}"
        except BadFile as bad:
            error = f"{bad}; {ONLY}"
        except Ended as ended:
            closed = "its connection closed"
            error = (
                f"its process ended with {closed if ended.code is None else exit_name(ended.code)}"
            )
        except BaseException:  # interrupted
            self._end()
            raise
        finally:
            if self.process is not None:
                self._show(self.process.printed)
        self._end()
        return Result(error=error)

    def _show(self, printed: str) -> None:
        """What the judged code prints is not this command's report, and is marked as such."""
        who = in_one_line(os.path.basename(self.name))
        for line in shown(printed).splitlines():
            self.lines += 1
            if self.lines <= LINES:
                print(f"  {who} printed | {line}", file=sys.stderr)
            elif self.lines == LINES + 1:
                print(f"  {who} printed more lines, which are left out", file=sys.stderr)


def question_of(case: Case) -> bytes:
    """A case's function, arguments and inputs: nothing that it is judged by."""
    head = {"function": case.function, "arguments": case.arguments}
    return json.dumps(head).encode() + b"\n" + tensor_bytes(case.with_prefix("in"))


def case_of(question: bytes) -> Case:
    line, _, data = question.partition(b"\n")
    head, (tensors, _) = json.loads(line), parse_tensors(QUESTION, data)
    return Case("", head["function"], [], "", "", head["arguments"], tensors)


def opened(name: str, timeout_s: float) -> tuple[bytes, Callable[..., bytes] | None]:
    """What start.py runs: the module, imported, then a case's answer to each question."""
    try:
        judged = PythonModule(name, timeout_s)
    except ValueError as error:
        return as_bytes(Result(error=str(error))), None
    return as_bytes(Result()), lambda question, _: as_bytes(answered(judged, case_of(question)))


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
    error = None if error is None else in_one_line(error)
    events = trace and [parse_event(ANSWER, json.dumps(event)) for event in trace]
    outputs, _ = parse_tensors(ANSWER, tensors)
    return Result(outputs if head["implemented"] else None, error, events, bool(head["general"]))
