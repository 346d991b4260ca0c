"""Runs parts of the run on a GPU. One that fails, hangs or cannot run is a row of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.gpu.measure import benchmark
from tests.gpu.parts import FOLDER, RATIOS, ROOT, Part
from tests.gpu.usable import why_no_mpi

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
PATIENCE_S = 5  # between asking a command to end, and ending it
SHORTEST_S = 1  # with less time left nothing is started
POLL_S = 0.05


def perform(parts: list[Part], mpiexec: str, end_s: float, at_a_time: int = 1) -> Iterator[dict]:
    """A row for each part, as soon as it has ended. end_s: when all have to (time.monotonic).

    What still runs when the caller leaves, by an interrupt too, is ended.
    """
    waiting, running = list(parts), []
    try:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                part, left_s = waiting.pop(0), end_s - time.monotonic()
                reason = missing(part, mpiexec) if left_s > SHORTEST_S else "no time was left"
                if reason:
                    yield row(part, SKIPPED, reason)
                    continue
                running.append(Job(part, mpiexec, left_s))
            for job in [job for job in running if job.is_over()]:
                running.remove(job)
                yield job.row()
            time.sleep(POLL_S if running else 0)
    finally:
        for job in running:
            job.end()


def missing(part: Part, mpiexec: str) -> str | None:
    """Why the part cannot run here; None if it can, be it on threads."""
    no_mpi = why_no_mpi(mpiexec) if part.ranks and not part.on_threads else None
    return no_mpi or part.missing(mpiexec)


def row(part: Part, outcome: str, reason: str, seconds: float = 0.0, **more) -> dict:
    return (
        {
            "name": part.name,
            "outcome": outcome,
            "reason": reason,
            "seconds": round(seconds, 1),
            "command": " ".join(["python", *part.arguments]),
            "environment": part.environment,
            "ranks": part.ranks,
        }
        | {"output": "", "ratios": [], "records": {}}
        | more
    )


class Job:
    """A part that runs: its processes, its output and its folder."""

    def __init__(self, part: Part, mpiexec: str, left_s: float) -> None:
        self.part, self.limit_s = part, min(part.limit_s, left_s)
        self.reason, self.start_s = "", time.monotonic()
        # not a pipe, which would wait for every process that holds it
        self.output = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.folder = tempfile.TemporaryDirectory(prefix="refgf-gpu-")
        on_threads = part.on_threads if part.on_threads and why_no_mpi(mpiexec) else ()
        start = [mpiexec, "-n", str(part.ranks)] if part.ranks and not on_threads else []
        arguments = [self.own(argument) for argument in [*part.arguments, *on_threads]]
        try:
            self.process = subprocess.Popen(
                [*start, sys.executable, *arguments],
                cwd=ROOT,
                env=os.environ | part.environment,
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=benchmark.tied(),
            )
        except OSError as error:  # no mpiexec
            self.process, self.reason = None, f"could not start: {error}"

    def own(self, argument: str) -> str:
        """The argument, with this part's folder."""
        return argument.replace(FOLDER, self.folder.name)

    def is_over(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            return True
        if self.seconds() < self.limit_s:
            return False
        self.reason = f"ended after {self.limit_s:.0f} s, its limit"
        self.end()
        return True

    def seconds(self) -> float:
        return time.monotonic() - self.start_s

    def end(self) -> None:
        """End the command and what it started.

        mpiexec passes SIGTERM on to ranks, which have process groups of their own.
        """
        if self.process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_S)

    def row(self) -> dict:
        self.output.seek(0)
        output, reason = self.output.read(), self.reason
        if not reason and self.process.returncode:
            reason = f"exit code {self.process.returncode}"
        found = {} if reason else self.written()  # else it may be half written
        ratios = found.pop(Path(RATIOS).stem, {"rows": []})["rows"]
        if not reason and RATIOS in self.part.arguments and not ratios:
            reason = "no ratios were written"
        self.output.close()
        self.folder.cleanup()
        outcome, more = FAILED if reason else OK, {"output": output, "ratios": ratios}
        return row(self.part, outcome, reason, self.seconds(), records=found, **more)

    def written(self) -> dict:
        """The JSON files in this part's folder, by their names."""
        files = Path(self.folder.name).glob("*.json")
        return {file.stem: json.loads(file.read_text()) for file in files}
