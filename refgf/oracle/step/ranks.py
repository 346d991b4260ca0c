"""p ranks and one, started once, for any number of judged steps; nothing is left behind.

A step that hangs, a rank that dies, an error on one rank while the others wait for it: all
processes are ended, and the next step starts new ones.
"""

import importlib.util
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from refgf.oracle.foreign.gloo import GlooRanks
from refgf.oracle.foreign.messages import pack, unpack
from refgf.oracle.step.collectives import WANTED, calls_file, difference, read_calls

POLL_S = 0.5  # how often the calls of waiting ranks are compared
GRACE_S = 0.5  # for the other ranks, when one has failed
START_S = 60.0  # at least, for importing PyTorch in a cold file system
STARTED = "did not start", "all to import PyTorch; next: run it again, or --timeout 300"
ENDED = (
    "train did not end",
    "all ranks to make the same collective calls; next: a smaller model, or --timeout",
)


class CannotJudge(ValueError):
    """No verdict: the sentence says why."""


class AllAlike(CannotJudge):
    """Every rank ended with the same error."""


class Ranks:
    """A context manager. size: number of ranks; timeout_s: for one training on all of them."""

    def __init__(self, size: int, timeout_s: float = 60.0):
        if not 2 <= size <= 16:
            raise CannotJudge(f"step: got {size} ranks; wanted 2 to 16; next: --ranks 2")
        if not 0 < timeout_s < float("inf"):
            raise CannotJudge(f"step: got {timeout_s} s; wanted seconds, more than 0")
        if importlib.util.find_spec("torch") is None:
            raise CannotJudge("step: PyTorch is not installed; next: pip install torch")
        self.size, self.timeout_s = size, timeout_s
        self.group: GlooRanks | None = None

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def run(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """What each rank recorded of the judged training."""
        return self._ask(lambda pipes: pipes[:-1], pack(request))

    def reference(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reference and the replay, from the process that trains alone."""
        return self._ask(lambda pipes: pipes[-1:], pack(request))[0]

    def _ask(self, chosen: Callable, request: bytes) -> list[dict[str, Any]]:
        try:
            if self.group is None:
                groups = self.size, 1
                self.group = GlooRanks("refgf.oracle.step.worker", groups, "refgf-step-")
                self._answers(self.group.pipes, max(START_S, self.timeout_s), STARTED)
            pipes = chosen(self.group.pipes)
            for rank in range(self.size):  # what an earlier training called
                Path(calls_file(self.group.store, rank)).unlink(missing_ok=True)
            for pipe in pipes:
                pipe.send_bytes(request)
            return self._answers(pipes, self.timeout_s, ENDED)
        except AllAlike:  # no rank waits for another: all go on
            raise
        except BaseException:
            self.close()
            raise

    def _answers(
        self, pipes: list[Connection], limit_s: float, late: tuple[str, str]
    ) -> list[dict[str, Any]]:
        group, answers, stop_s, error = self.group, {}, time.monotonic() + limit_s, ""
        who = "on one rank" if pipes[0] is group.pipes[-1] else "on rank {}"
        while len(answers) < len(pipes):
            waiting = [pipe for pipe in pipes if pipe not in answers]
            left_s = stop_s - time.monotonic()
            ready = wait(waiting, max(0.0, min(left_s, POLL_S)))
            if not ready and left_s > POLL_S:
                self._require_same_calls(answers, error)
                continue
            if not ready:
                names = [str(pipes.index(pipe)) for pipe in waiting if pipe != group.pipes[-1]]
                place = who.format(", ".join(names)) if names else "on one rank"
                late = f"step, {place} of {self.size}: {late[0]} within {limit_s:g} s", late[1]
                self._require_same_calls(pipes, error, late[0])
                raise CannotJudge(error or f"{late[0]}; wanted {late[1]}")
            for pipe in ready:
                place = who.format(pipes.index(pipe))
                try:
                    answers[pipe] = unpack(pipe.recv_bytes())
                except (EOFError, OSError):
                    self._require_same_calls(answers, error)
                    ended = f"step, {place}: {group.how_it_ended(group.pipes.index(pipe))}"
                    alone = error and "gloo" not in error  # gloo: the others miss this rank
                    raise CannotJudge(error if alone else ended) from None
                if "error" in answers[pipe] and not error:
                    error = f"step, {place}: {answers[pipe]['error']}"
                    stop_s = min(stop_s, time.monotonic() + GRACE_S)
        if error:
            self._require_same_calls(answers, error)
            alike = len({answers[pipe].get("error") for pipe in pipes}) == 1
            raise (AllAlike if alike else CannotJudge)(error)
        return [answers[pipe] for pipe in pipes]

    def _require_same_calls(
        self, ended: Iterable[Connection], error: str, place: str = "step"
    ) -> None:
        """Raises CannotJudge where ranks make other calls, and `error` is none of their own."""
        if error and "gloo" not in error:
            return
        calls = [read_calls(calls_file(self.group.store, rank)) for rank in range(self.size)]
        differs = difference(calls, {self.group.pipes.index(pipe) for pipe in ended})
        if differs:
            raise CannotJudge(f"{place}: {differs}; {WANTED}")

    def close(self) -> None:
        """End all processes."""
        if self.group is not None:
            self.group.close()
            self.group = None
