"""A student's file in processes of its own: limits on time and memory, no network, no answers.

    with Sandbox("01.py") as sandbox:
        sandbox.ask({"call": "slices", "arguments": [10, 3]})    {"result": ...} or {"error": ...}
        sandbox.printed                                          what the file has printed meanwhile

A process never learns what was wanted, so it cannot write its own marks. Hidden cases go to another
process than public ones, and `fresh` starts new ones for the next exercise, so that nothing which
the file has seen can reach a sentence that students read. One that ends or takes too long is ended
with all its children; a file whose import takes too long is not imported again.
"""

import base64
import json
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np

from refgf.oracle.foreign import view
from refgf.oracle.foreign.closure import carried
from refgf.oracle.foreign.process import Ended, Forged, Process, Server, TooLate
from refgf.oracle.foreign.report import in_one_line
from refgf.oracle.foreign.untrusted import read_bytes
from refgf.oracle.grade import student_process

SECONDS, START_S = 8.0, 15.0  # for a request; for importing the file
BYTES = 2 << 30
LARGEST_FILE = 4 << 20
SENTENCE = 600  # characters of what a process says of itself
MOST = 8  # files at once: a container may have fewer processors than it says
MESSAGES = 10_000  # of a rank in a call
OPEN_REQUEST = r"I(send to|recv from) (rank \d{1,4}|any rank)"
FORGED = {"error": "wrote into the connection of its judge"}


def workers() -> int:
    """How many files are marked at once. More would share processors, and calls would time out."""
    allowed = getattr(os, "sched_getaffinity", None)
    return min(MOST, len(allowed(0)) if allowed else os.cpu_count() or 1)


class Sandbox:
    """allowed: modules of refgf that the exercise may import."""

    def __init__(self, file: str | Path, allowed: tuple[str, ...] = (), seconds: float = SECONDS):
        if os.name != "posix":  # without process groups its children cannot be ended
            raise ValueError(
                f"marks: got the system {sys.platform}; wanted Linux or macOS, because a student's "
                "file is limited there; next: run this command in WSL 2"
            )
        path = Path(file).resolve()
        source = base64.b64encode(read_bytes(path, LARGEST_FILE)).decode()
        arguments = {"file": str(path), "source": source, "allowed": list(allowed)}
        self.server = Server(
            student_process.__name__,
            arguments | {"project": str(view.ROOT)},
            view.closed(seconds * 20, BYTES),
            carried(student_process.__name__, *allowed),
            errors=False,
            largest=student_process.LONGEST,
        )
        self.seconds, self.endless = seconds, False  # endless: its import did not end
        self.processes: dict[bool, Process] = {}  # of public and of hidden cases
        self.printed = ""

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_) -> None:
        self.fresh()

    def ask(self, request: dict, hidden: bool = False) -> dict:
        """The answer of a process, or {"error": why there is none}."""
        self.printed = ""
        if not self.endless and hidden not in self.processes:
            self._start(hidden)
        if self.endless:
            return {"error": f"cannot be imported: it did not end within {START_S:g} s"}
        process = self.processes[hidden]
        try:
            answer = checked(process.ask(json.dumps(request).encode(), self.seconds), request)
        except TooLate:
            answer = {"error": f"did not end within {self.seconds:g} s"}
        except Ended as ended:
            answer = {"error": how_it_ended(ended.code)}
        except Forged:
            answer = FORGED
        else:
            self.printed = process.printed
            return answer
        self._end(hidden)
        self.printed = process.printed
        return answer

    def fresh(self) -> None:
        """End the processes and their children; the next request starts others."""
        for hidden in list(self.processes):
            self._end(hidden)

    def _end(self, hidden: bool) -> None:
        self.processes.pop(hidden).close()

    def _start(self, hidden: bool) -> None:
        process = self.processes[hidden] = Process(self.server)
        try:
            process.begin(START_S)  # it has imported the file, or could not
        except TooLate:
            self._end(hidden)
            self.endless = True
        except (Ended, Forged):
            pass  # which the request will find


def checked(answer: bytes, request: dict) -> dict:
    """An answer that can be judged. Raises Forged for what `student_process` does not send."""
    try:
        found = json.loads(answer)  # with NaN and infinity, which a function may return
        if "error" in found:
            said = {"error": in_one_line(found["error"], SENTENCE)}
            if "sends" in found and "collective" in request:
                require_sends(found["sends"], len(request["xs"]))
                said["sends"] = found["sends"]
            return said
        if "call" in request:
            student_process.decoded(found["result"])
            return found
        require_ranks(found, student_process.decoded(request["xs"]))
        return found
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise Forged from error


def require_ranks(found: dict, xs: list[np.ndarray]) -> None:
    """ValueError unless each rank has its array, its messages and its open requests."""
    results, returned = (student_process.decoded(found[name]) for name in ("xs", "returned"))
    kinds = [[(x.shape, x.dtype) for x in arrays] for arrays in (results, xs)]
    require(kinds[0] == kinds[1] and isinstance(returned, np.ndarray | None))
    require(type(found["late"]) is bool and len(found["unfinished"]) == len(xs))
    for names in found["unfinished"]:
        require(type(names) is list and all(re.fullmatch(OPEN_REQUEST, name) for name in names))
    require_sends(found["sends"], len(xs))


def require_sends(sends: list, p: int) -> None:
    """ValueError unless each rank has its [[peer, count, bytes, offset or None], ...]."""
    require(type(sends) is list and len(sends) == p)
    for mine in sends:
        require(type(mine) is list and len(mine) <= MESSAGES)
        for peer, count, nbytes, offset in mine:
            numbers = [peer, count, nbytes, 0 if offset is None else offset]
            require(all(type(n) is int and 0 <= n < 1 << 40 for n in numbers))


def require(holds: bool) -> None:
    if not holds:
        raise ValueError


def how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed the connection to its judge"
    if code < 0:
        return f"its process ended with {signal.Signals(-code).name}"
    return f"ended its process with exit code {code} (os._exit?)"
