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
import itertools
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from refgf.oracle.foreign import view
from refgf.oracle.foreign.closure import carried
from refgf.oracle.foreign.process import Ended, Forged, Process, Server, TooLate
from refgf.oracle.foreign.report import in_one_line
from refgf.oracle.foreign.untrusted import read_bytes
from refgf.oracle.grade import encoding, student_process
from refgf.oracle.grade.collective import (
    MALFORMED,
    SENTENCE,
    Outcome,
    how_it_ended,
    outcome,
    relayed,
)
from refgf.oracle.grade.encoding import decoded

SECONDS, START_S = 8.0, 15.0  # for a request; for importing the file
BYTES = 2 << 30
LARGEST_FILE = 1 << 18  # the judge parses it: up to 900 bytes of memory for each of its own
MOST = 8  # files at once: a container may have fewer processors than it says
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
            largest=encoding.LONGEST,
        )
        self.seconds, self.endless = seconds, False  # endless: its import did not end
        # of public and of hidden cases, of each rank
        self.processes: dict[tuple[bool, int], Process] = {}
        self.printed = ""

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_) -> None:
        self.fresh()

    def ask(self, request: dict, hidden: bool = False) -> dict:
        """The answer of a process, or {"error": why there is none}."""
        self.printed = ""
        if not self._started(hidden, 1):
            return {"error": endless()}
        process = self.processes[hidden, 0]
        try:
            answer = checked(process.ask(json.dumps(request).encode(), self.seconds))
        except TooLate:
            answer = {"error": f"did not end within {self.seconds:g} s"}
        except Ended as ended:
            answer = {"error": how_it_ended(ended.code)}
        except Forged:
            answer = FORGED
        else:
            self.printed = process.printed
            return answer
        self._end(hidden, 0)
        self.printed = process.printed
        return answer

    def alone(self, request: dict) -> dict:
        """The answer of a process that is asked nothing else."""
        kept, self.processes = self.processes, {}
        try:
            return self.ask(request)
        finally:
            self.fresh()
            self.processes = kept

    def collective(self, name: str, xs: list[np.ndarray], hidden: bool = False) -> Outcome:
        """What p ranks have in the end, each in a process of its own."""
        self.printed, printed = "", {}
        if not self._started(hidden, len(xs)):
            return Outcome(endless())
        processes = [self.processes[hidden, rank] for rank in range(len(xs))]
        found = outcome(xs, relayed(processes, name, printed))
        self.printed = "".join(itertools.chain(*(printed[rank] for rank in sorted(printed))))
        if found.error:
            self.fresh()
        return found

    def fresh(self) -> None:
        """End the processes and their children; the next request starts others."""
        for hidden, rank in list(self.processes):
            self._end(hidden, rank)

    def _end(self, hidden: bool, rank: int) -> None:
        self.processes.pop((hidden, rank)).close()

    def _started(self, hidden: bool, p: int) -> bool:
        """Start the processes of ranks 0 to p - 1 that are missing. False if imports do not end."""
        missing = [(hidden, r) for r in range(p) if (hidden, r) not in self.processes]
        if not self.endless and missing:
            self.processes |= {key: Process(self.server) for key in missing}
            with ThreadPoolExecutor(p) as pool:
                imported = pool.map(begun, [self.processes[key] for key in missing])
                self.endless = not all(list(imported))
        return not self.endless


def endless() -> str:
    return f"cannot be imported: it did not end within {START_S:g} s"


def begun(process: Process) -> bool:
    """Has the import of the file ended, in whatever way?"""
    try:
        process.begin(START_S)
    except TooLate:
        return False
    except (Ended, Forged):
        pass  # which the request will find
    return True


def checked(answer: bytes) -> dict:
    """An answer that can be judged. Raises Forged for what `student_process` does not send."""
    try:
        found = json.loads(answer)  # with NaN and infinity, which a function may return
        if "error" in found:
            return {"error": in_one_line(found["error"], SENTENCE)}
        decoded(found["result"])
        return found
    except MALFORMED as error:
        raise Forged from error
