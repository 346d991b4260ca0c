"""A student's file in processes of its own: limits on time and memory, no network, no answers.

    with Sandbox("01.py") as sandbox:
        sandbox.ask({"call": "slices", "arguments": [10, 3]})    {"result": ...} or {"error": ...}
        sandbox.printed                                          what the file has printed meanwhile

A process never learns what was wanted, so it cannot write its own marks. Hidden cases go to another
process than public ones, and `fresh` starts new ones for the next exercise, so that nothing which
the file has seen can reach a sentence that students read. One that ends or takes too long is ended
with all its children; a file whose import takes too long is not imported again. All imports and
calls of a file share FILE_S; each gets half of what is left, so that others still get some.
"""

import base64
import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from refgf.oracle.foreign import view
from refgf.oracle.foreign.closure import carried
from refgf.oracle.foreign.forked import Forked
from refgf.oracle.foreign.process import Ended, Forged, Server, TooLate
from refgf.oracle.foreign.report import in_one_line
from refgf.oracle.foreign.untrusted import read_bytes
from refgf.oracle.grade import encoding, student_process
from refgf.oracle.grade.collective import (
    MALFORMED,
    SECONDS,
    SENTENCE,
    UNREADABLE,
    Outcome,
    how_it_ended,
    outcome,
    relayed,
)
from refgf.oracle.grade.encoding import decoded

FILE_S = 12.0  # for all imports and calls of a file, where nobody else computes
BUSIEST = 4.0  # times as long, at most
BYTES = 2 << 30
LARGEST_FILE = 1 << 18  # the judge parses it: up to 900 bytes of memory for each of its own
MOST = 8  # files at once: a container may have fewer processors than it says
NO_TIME = (
    f"no time left: a file has {FILE_S:g} s for all its imports and calls (more where others "
    "compute), and each gets at most half of what is left; next: mend an endless loop, or make "
    "what is slow faster"
)
FORGED = {"error": "wrote into the connection of its judge"}


def busy() -> float:
    """How many times as long everything takes, because other programs compute, too: 1 to BUSIEST.

    A minute's mean: what a file itself computes in FILE_S hardly changes it.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return min(max(1.0, load / (os.cpu_count() or 1)), BUSIEST)


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
        self.seconds, self.left_s = seconds, FILE_S
        self.allowed_s = seconds  # for the last call or import, where nobody else computes
        self.endless = ""  # why its import is not tried again
        # of public and of hidden cases, of each rank
        self.processes: dict[tuple[bool, int], Forked] = {}
        self.printed = ""

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_) -> None:
        self.fresh()

    def ask(self, request: dict, hidden: bool = False) -> dict:
        """The answer of a process, or {"error": why there is none}."""
        self.printed = ""
        if not self._started(hidden, 1):
            return {"error": self.endless}
        process = self.processes[hidden, 0]
        try:
            with self._limited() as limit_s:
                found = process.ask(json.dumps(request).encode(), limit_s)
            answer = checked(found)
        except TooLate:
            answer = {"error": self._late()}
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
            return Outcome(self.endless)
        processes = [self.processes[hidden, rank] for rank in range(len(xs))]
        with self._limited() as limit_s:
            found = outcome(xs, relayed(processes, name, printed, limit_s), limit_s)
        if found.error == f"did not end within {limit_s:g} s":
            found.error = self._late()
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
            self.processes |= {key: Forked(self.server) for key in missing}
            started = [self.processes[key] for key in missing]
            with ThreadPoolExecutor(p) as pool:
                list(pool.map(Forked.start, started))
                with self._limited() as limit_s:
                    ended = list(pool.map(imported, started, itertools.repeat(limit_s)))
            if not all(ended):
                late = self._late()
                self.endless = late if late == NO_TIME else f"cannot be imported: it {late}"
        return not self.endless

    @contextlib.contextmanager
    def _limited(self) -> Iterator[float]:
        """The seconds for a call or an import; what it takes is taken from what is left."""
        start_s, slower = time.monotonic(), busy()
        self.allowed_s = min(self.seconds, self.left_s / 2)
        try:
            yield self.allowed_s * slower
        finally:
            self.left_s = max(0.0, self.left_s - (time.monotonic() - start_s) / slower)

    def _late(self) -> str:
        """The same on a busy machine."""
        return (
            NO_TIME if self.allowed_s < self.seconds else f"did not end within {self.seconds:g} s"
        )


def imported(process: Forked, limit_s: float) -> bool:
    """Has the import of the file ended, in whatever way?"""
    try:
        process.ask(b"", limit_s)
    except TooLate:
        return False
    except (Ended, Forged):
        pass  # which the request will find
    return True


def checked(answer: bytes) -> dict:
    """An answer that can be judged, or an error for what `student_process` does not send."""
    try:
        found = json.loads(answer)  # with NaN and infinity, which a function may return
        if "error" in found:
            return {"error": in_one_line(found["error"], SENTENCE)}
        decoded(found["result"])
        return found
    except RecursionError:
        return {"error": encoding.DEEP}
    except MALFORMED:
        return {"error": UNREADABLE}
