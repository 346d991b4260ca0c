"""One rank of a student's collective, alone in its process; its messages go through the judge.

`Channel` stands in the place of machine/world.py's World. Each call is one question, which
collective.py answers with {}, or with what stands here, or {"raise": sentence}, {"stop": sentence}:

    {"post": [[sends, call, peer, tag, array, offset in x], ...]}
    {"wait": [numbers of requests]}     {"arrays": [what each array holds now]}
    {"poll": number of a request}       {"done": is it done?}
    {"barrier": 0}
    {"broken": a rule of MPI}

So what a file writes into the variables of this process changes no message, no count, and no other
rank's numbers. Only the rules for a rank's own arrays (no change before Wait, no overlap) are
looked after here.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from refgf.machine.threads import ANY_SOURCE, ANY_TAG, Aborted, Request, require_own_array
from refgf.oracle.foreign.ranks import offset
from refgf.oracle.grade.encoding import LONGEST, decoded, encoded

ANY = ANY_SOURCE, ANY_TAG


class Channel:
    """exchange: a message to the judge -> its answer."""

    eager_bytes = 0  # the judge decides how long a send waits

    def __init__(self, size: int, x: np.ndarray, exchange: Callable[[bytes], bytes]) -> None:
        self.size, self.x, self._exchange, self._lock = size, x, exchange, threading.Lock()
        self._numbers: dict[Request, int] = {}
        self._open: list[Request] = []

    def post(self, requests: Sequence[Request]) -> None:
        for request in requests:
            with self._remembered():
                require_own_array(request, self._open)
            self._open.append(request)
            self._numbers[request] = len(self._numbers)
        self._ask({"post": [self._posted(request) for request in requests]})

    def _posted(self, request: Request) -> list:
        peer, tag = (None if n in ANY else n for n in (request.peer, request.tag))
        array = request.array if request.before is None else request.before
        place = offset(np.asarray(request.array), self.x)
        return [request.sends, request.call, peer, tag, encoded(array), place]

    def wait(self, rank: int, operations: Sequence[Request]) -> None:
        found = self._ask({"wait": [self._numbers[operation] for operation in operations]})
        self._open = [request for request in self._open if request not in operations]
        with self._remembered():
            for operation, array in zip(operations, found["arrays"]):
                operation.message = SimpleNamespace(posted=decoded(array), rank=operation.peer)
                operation.complete()

    def poll(self, request: Request) -> bool:
        return self._ask({"poll": self._numbers[request]})["done"]

    def collect(self, rank: int, call: str, obj: None) -> None:
        self._ask({"barrier": 0})

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[None]:
        """A program may catch the error, but MPI itself would not have raised it."""
        try:
            yield
        except ValueError as error:
            self._ask({"broken": str(error)})
            raise

    def _ask(self, call: dict[str, Any]) -> dict[str, Any]:
        question = json.dumps(call).encode()
        if len(question) > LONGEST:
            raise ValueError(f"got a message of {len(question)} bytes; wanted at most {LONGEST}")
        with self._lock:
            found = json.loads(self._exchange(question))
        if "stop" in found:
            raise Aborted(found["stop"])
        if "raise" in found:
            raise ValueError(found["raise"])
        return found
