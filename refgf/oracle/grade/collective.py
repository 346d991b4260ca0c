"""A student's collective on p ranks. The judge carries, matches and counts each message.

    process of rank 0 -- post, its numbers -->         <-- post --  process of rank 1
                      <-- done ---------------  judge  -- numbers -->

The ranks of oracle/foreign/ranks.py run here, one thread each; `relayed` makes a thread's body of a
process, whose calls (rank.py) it makes on the real communicator, one after the other.
"""

import json
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refgf.machine.threads import ANY_SOURCE, ANY_TAG, Request
from refgf.oracle.foreign import ranks
from refgf.oracle.foreign.process import Ended, Forged, Process, TooLate
from refgf.oracle.foreign.report import in_one_line
from refgf.oracle.grade.encoding import decoded, encoded
from refgf.oracle.grade.student_process import sentence

SECONDS = 5.0  # for a call, on all ranks too
SENTENCE = 600  # characters of what a process says of itself
MESSAGES, BYTES = 10_000, 1 << 24  # of a rank in a call
CALLS = {True: ("Send", "Isend", "Sendrecv"), False: ("Recv", "Irecv", "Sendrecv")}
MALFORMED = (ValueError, LookupError, AttributeError, TypeError, RecursionError)
UNREADABLE = (
    "gave an answer that cannot be read: does the file replace a function of Python or NumPy?"
)
OWN_FAULTS = (
    "raised",
    "ended the program",
    "ran out",
    "stopped",
    "returned",
    "left x",
)  # of one rank


class Failed(Exception):
    """Why a rank has no result: a sentence that begins with a verb, or one for all ranks."""


@dataclass
class Outcome:
    """What p ranks have in the end. error: of the lowest rank that has one, "" if none has.

    sends: of each rank, [(peer, count, bytes, offset in x or None)]. unfinished: of each rank, the
    requests never waited for. returned: what rank 0's function returned instead of changing x.
    """

    error: str
    sends: list[list[tuple]] = field(default_factory=list)
    xs: list[np.ndarray] = field(default_factory=list)
    unfinished: list[list[str]] = field(default_factory=list)
    returned: np.ndarray | None = None
    late: bool = False


def outcome(
    xs: list[np.ndarray],
    on_rank: Callable[[ranks.Comm, np.ndarray], Any],
    limit_s: float = SECONDS,
) -> Outcome:
    """on_rank: -> what the function returned; Failed."""
    returned, failures = {}, {}

    def body(comm: ranks.Comm, x: np.ndarray) -> None:
        try:
            returned[comm.rank] = on_rank(comm, x)
        except Failed as error:
            own = str(error).startswith(OWN_FAULTS)
            failures[comm.rank] = f"rank {comm.rank} {error}" if own else str(error)
            raise

    comms, failure = ranks.run(xs, body, limit_s, prints=False)
    result = returned.get(0)
    return Outcome(
        failures[min(failures)] if failures else failure or "",
        [comm.sends for comm in comms],
        [comm.x for comm in comms],
        [comm.unfinished() for comm in comms],
        result if isinstance(result, np.ndarray) else None,
        any(comm.late for comm in comms),
    )


def played(xs: list[np.ndarray], function: Callable[[ranks.Comm, np.ndarray], Any]) -> Outcome:
    """What p ranks have in the end of a function of ours, in this process."""

    def on_rank(comm: ranks.Comm, x: np.ndarray) -> Any:
        try:
            return function(comm, x)
        except ranks.AllRanksBlocked:
            raise
        except BaseException as error:  # noqa: BLE001
            raise Failed(sentence(error, "")) from error

    return outcome(xs, on_rank)


def relayed(
    processes: Sequence[Process], name: str, printed: dict[int, list[str]], limit_s: float
) -> Callable:
    """The body of each rank, whose function runs in a process.

    printed: gets what the file prints on each rank in the first run.
    """

    def on_rank(comm: ranks.Comm, x: np.ndarray) -> np.ndarray | None:
        process, calls, stopped = processes[comm.rank], Calls(comm), None
        lines = [] if comm.rank in printed else printed.setdefault(comm.rank, [])
        answer = {"collective": name, "x": encoded(x), "rank": comm.rank, "size": comm.size}
        try:
            while True:
                found = json.loads(process.ask(json.dumps(answer).encode(), limit_s))
                lines += [process.printed] * (len(lines) < MESSAGES)
                if "x" in found or "error" in found:
                    break
                try:
                    if stopped:
                        raise stopped
                    answer = calls.make(found)
                except ranks.AllRanksBlocked as error:
                    answer, stopped = {"stop": str(error)}, error
            if stopped:
                raise stopped
            if "error" in found:
                raise Failed(in_one_line(found["error"], SENTENCE))
            result, returned = decoded(found["x"]), decoded(found["returned"])
            require((result.shape, result.dtype) == (x.shape, x.dtype))
            x[...] = result
        except TooLate:
            raise Failed(f"did not end within {limit_s:g} s") from None
        except Ended as ended:
            raise Failed(how_it_ended(ended.code)) from None
        except Forged:
            raise Failed("wrote into the connection of its judge") from None
        except MALFORMED:
            raise Failed(UNREADABLE) from None
        return returned

    return on_rank


class Calls:
    """A rank's calls of its communicator, as its process asks for them."""

    def __init__(self, comm: ranks.Comm) -> None:
        self.comm, self.world = comm, comm._world
        self.requests: list[Request] = []
        self.nbytes = 0

    def make(self, asked: dict) -> dict:
        """The answer to one question of rank.py; MALFORMED for what that does not send."""
        ((call, value),) = asked.items()
        if call == "post":
            return self.post([self.posted(*words) for words in value])
        if call == "wait":
            return self.wait([self.requests[number] for number in value])
        if call == "poll":
            return {"done": self.world.poll(self.requests[value])}
        if call == "broken":
            sentence = ValueError(in_one_line(value, SENTENCE))
            self.world.broken.setdefault(self.comm.rank, sentence)
            return {}
        require(call == "barrier")
        self.comm.Barrier()
        return {}

    def posted(
        self, sends: bool, call: str, peer: int | None, tag: int | None, array: Any, place: Any
    ) -> Request:
        require(call in CALLS[sends] and (place is None or type(place) is int))
        numbers = decoded(array)
        self.nbytes += numbers.nbytes
        if self.nbytes > BYTES or len(self.requests) >= MESSAGES:
            raise Failed(f"did not end within {MESSAGES:,} messages or {BYTES >> 20} MiB of a rank")
        tag = ANY_TAG if tag is None else tag
        if not sends:
            peer = ANY_SOURCE if peer is None else peer
            return self.comm._receive(call, numbers, peer, tag)
        request = self.comm._send(call, numbers, peer, tag)
        self.comm.sends[-1] = (*self.comm.sends[-1][:3], place)
        return request

    def post(self, requests: list[Request]) -> dict:
        self.requests += requests
        self.world.post(requests)
        return {}

    def wait(self, requests: list[Request]) -> dict:
        try:
            self.world.wait(self.comm.rank, requests)
        except ValueError as error:  # a rule of MPI: of the messages that have met
            return {"raise": str(error)}
        return {"arrays": [None if r.sends else encoded(r.array) for r in requests]}


def require(holds: bool) -> None:
    if not holds:
        raise ValueError


def how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed the connection to its judge"
    if code < 0:
        return f"its process ended with {signal.Signals(-code).name}"
    guess = "os._exit, or one of Python's own functions replaced?" if code == 1 else "os._exit?"
    return f"ended its process with exit code {code} ({guess})"
