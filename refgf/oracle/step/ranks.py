"""p ranks and one, started once, for any number of judged steps; nothing is left behind.

A step that hangs, a rank that dies, an error on one rank while the others wait for it: all
processes are ended, and the next step starts new ones. A keeper (judge/orphans.py) ends what
foreign code started in a session of its own, and everything if this process is killed.
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from refgf.oracle.judge import orphans, scratch
from refgf.oracle.judge.implementations import exit_name
from refgf.oracle.step.collectives import WANTED, calls_file, difference, read_calls
from refgf.oracle.step.messages import exit_file, pack, unpack

ROOT = Path(__file__).resolve().parents[3]
POLL_S = 0.5  # how often the calls of waiting ranks are compared
GRACE_S = 0.5  # for the other ranks, when one has failed
START_S = 60.0  # importing PyTorch in a cold file system


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
        self.size, self.timeout_s, self.process = size, timeout_s, None
        self.pipes: list[Connection] = []

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def run(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """What each rank recorded of the judged training."""
        return self._ask(self.pipes_of_ranks, pack(request))

    def reference(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reference and the replay, from the process that trains alone."""
        return self._ask(lambda: self.pipes[-1:], pack(request))[0]

    def pipes_of_ranks(self) -> list[Connection]:
        return self.pipes[:-1]

    def _ask(self, chosen: Any, request: bytes) -> list[dict[str, Any]]:
        try:
            if self.process is None:
                self._start()
                self._answers(self.pipes, START_S, "did not start")
            pipes = chosen()
            for rank in range(self.size):  # what an earlier training called
                Path(calls_file(self.store, rank)).unlink(missing_ok=True)
            for pipe in pipes:
                pipe.send_bytes(request)
            return self._answers(pipes, self.timeout_s, "train did not end")
        except AllAlike:  # no rank waits for another: all go on
            raise
        except BaseException:
            self.close()
            raise

    def _answers(self, pipes: list[Connection], limit_s: float, late: str) -> list[dict[str, Any]]:
        answers, stop_s, error = {}, time.monotonic() + limit_s, ""
        who = "on one rank" if pipes[0] is self.pipes[-1] else "on rank {}"
        while len(answers) < len(pipes):
            waiting = [pipe for pipe in pipes if pipe not in answers]
            left_s = stop_s - time.monotonic()
            ready = wait(waiting, max(0.0, min(left_s, POLL_S)))
            if not ready and left_s > POLL_S:
                self._require_same_calls(answers, error)
                continue
            if not ready:
                names = ", ".join(str(pipes.index(pipe)) for pipe in waiting)
                late = f"step, {who.format(names)} of {self.size}: {late} within {limit_s:g} s"
                self._require_same_calls(pipes, error, late)
                raise CannotJudge(
                    error
                    or f"{late}; wanted all ranks to make the same collective calls; next: a "
                    "smaller model, or --timeout"
                )
            for pipe in ready:
                place = who.format(pipes.index(pipe))
                try:
                    answers[pipe] = unpack(pipe.recv_bytes())
                except (EOFError, OSError):
                    self._require_same_calls(answers, error)
                    ended = f"step, {place}: {self._end_of(pipe)}"
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

    def _end_of(self, pipe: Connection) -> str:
        """How a process has ended: its parent hears it a little later."""
        file, stop_s = exit_file(self.store, self.pipes.index(pipe)), time.monotonic() + GRACE_S
        while time.monotonic() < stop_s:
            with contextlib.suppress(OSError, ValueError):
                return f"its process ended with {exit_name(int(file.read_text()))}"
            time.sleep(GRACE_S / 50)
        return "its process ended"

    def _require_same_calls(
        self, ended: Iterable[Connection], error: str, place: str = "step"
    ) -> None:
        """Raises CannotJudge where ranks make other calls, and `error` is none of their own."""
        if error and "gloo" not in error:
            return
        calls = [read_calls(calls_file(self.store, rank)) for rank in range(self.size)]
        differs = difference(calls, {self.pipes.index(pipe) for pipe in ended})
        if differs:
            raise CannotJudge(f"{place}: {differs}; {WANTED}")

    def _start(self) -> None:
        self.open = contextlib.ExitStack()
        self.folder = self.open.enter_context(scratch.folder("refgf-step-"))
        self.store = str(Path(self.folder) / "store")
        pairs = [Pipe() for _ in range(self.size + 1)]
        self.pipes, remote = [list(side) for side in zip(*pairs)]
        files = [str(pipe.fileno()) for pipe in remote]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        environment |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}  # gloo, on the CPU
        if sys.platform.startswith("linux"):
            environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        arguments = [self.store, *files]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "refgf.oracle.step.worker", *arguments],
            stdin=subprocess.DEVNULL,
            env=environment,
            pass_fds=[pipe.fileno() for pipe in remote],
            start_new_session=True,
            preexec_fn=orphans.keeper(),
        )
        for pipe in remote:
            pipe.close()

    def close(self) -> None:
        """End all processes."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for pipe in self.pipes:
                pipe.close()
            self.process = None
            orphans.end_children()
            self.open.close()
