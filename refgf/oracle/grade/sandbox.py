"""A student's file in a process of its own: limits on time and memory, no network, no answers.

    with Sandbox("01.py") as sandbox:
        sandbox.ask({"call": "slices", "arguments": [10, 3]})    {"result": ...} or {"error": ...}
        sandbox.printed                                          what the file has printed meanwhile

The process never learns what was wanted, so it cannot write its own marks. One that ends or takes
too long is ended with all its children, and the next request starts another; a file whose import
takes too long is not imported again.
"""

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from refgf.oracle.judge import orphans

HERE = Path(__file__).resolve().parent
SECONDS, START_S = 8.0, 15.0  # for a request; for starting and importing the file
BYTES = 2 << 30
LONGEST = 64 << 20  # bytes of an answer
PRINTED = 4096  # bytes kept of what a call prints
MOST = 8  # files at once: a container may have fewer processors than it says


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
        self.file, self.allowed, self.seconds = Path(file).resolve(), allowed, seconds
        self.process, self.endless = None, False  # endless: its import did not end
        self.printed = ""

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def ask(self, request: dict) -> dict:
        """The process's answer, or {"error": why there is none}."""
        self._output = bytearray()
        answer = self._answer(request)
        if self.process is not None:
            self._read_output()
        self.printed = self._output[:PRINTED].decode(errors="replace")
        return answer

    def _answer(self, request: dict) -> dict:
        limit_s, number = self.seconds, secrets.token_hex(8)
        if self.process is None and not self.endless:
            self._start()
        if self.endless:
            return {"error": f"cannot be imported: it did not end within {START_S:g} s"}
        try:
            self.socket.settimeout(limit_s)
            self.socket.sendall(json.dumps(request | {"id": number}).encode() + b"\n")
            line = self._line(time.monotonic() + limit_s)
        except TimeoutError:
            self.close()
            return {"error": f"did not end within {self.seconds:g} s"}
        except ConnectionError:
            line = b""
        if not line:
            error = self._ended()
            self.close()
            return {"error": error}
        try:
            answer = json.loads(line)
            if answer.pop("id") == number:
                return answer
        except (ValueError, LookupError, AttributeError, TypeError):
            pass
        self.close()
        return {"error": "wrote into the connection of its judge"}

    def close(self) -> None:
        """End the process and its children."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._read_output()
            self.socket.close()
            self.process.stdout.close()
            self.process = None

    def _start(self) -> None:
        self.socket, remote = socket.socketpair()
        script = [sys.executable, str(HERE / "student_process.py")]
        arguments = [str(remote.fileno()), str(self.file)]
        limits = [str(self.seconds * 20), str(BYTES)]
        self.process = subprocess.Popen(
            [*script, *arguments, *limits, *self.allowed],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.file.parent,
            env={"OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            pass_fds=[remote.fileno()],
            start_new_session=True,
            preexec_fn=orphans.keeper(),
        )
        remote.close()
        os.set_blocking(self.process.stdout.fileno(), False)
        self.waits_for = [self.socket, self.process.stdout]
        try:
            self._line(time.monotonic() + START_S)  # it has imported the file, or could not
        except TimeoutError:
            self.close()
            self.endless = True
        except ConnectionError:
            pass  # it has ended, which the request will find

    def _line(self, stop_s: float) -> bytes:
        """One line, or b"" at its end. TimeoutError after stop_s; too long a line ends it."""
        found = bytearray()
        while not found.endswith(b"\n"):
            left_s = stop_s - time.monotonic()
            if left_s <= 0 or len(found) > LONGEST:
                raise TimeoutError
            ready, _, _ = select.select(self.waits_for, [], [], left_s)
            if self.process.stdout in ready:
                self._read_output()
            if self.socket not in ready:
                continue
            self.socket.settimeout(left_s)
            more = self.socket.recv(1 << 20)
            if not more:
                return b""
            found += more
        return bytes(found)

    def _read_output(self) -> None:
        """Empty the pipe, so that no print waits for a reader; the first PRINTED bytes are kept."""
        with contextlib.suppress(BlockingIOError):
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            self._output += more[: PRINTED - len(self._output)]
            if not more:  # it has closed its end
                self.waits_for = [self.socket]

    def _ended(self) -> str:
        code = self.process.wait(5)
        if code < 0:
            return f"its process ended with {signal.Signals(-code).name}"
        return f"ended its process with exit code {code} (os._exit?)"
