"""A process of foreign code: start it, ask it, end it with all its children.

    judge  ---- a number, a question ---->  start.py: wall, then the server, which runs the code
           <--- its number, an answer ----

A `Program` is any program; a `Process` one behind the wall that answers questions. One way for
`verify`, `reveal`, `grade` and `step`. Questions hold inputs only, never what is wanted: comparing
happens in the judge. Answers are bytes that nothing executes.
"""

import contextlib
import functools
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from refgf.oracle.foreign import orphans, start, view
from refgf.oracle.foreign.connection import HEAD, START, packed

try:
    import resource
except ImportError:  # Windows
    resource = None

PRINTED = 4096  # bytes kept of what is printed between two questions
LARGEST_ANSWER = 1 << 31
START_S = 60.0  # for Python and the wall
EXIT_S = 1.0  # at least, from the end of its connection to its own end


class TooLate(Exception):
    """No answer in time."""


class Ended(Exception):
    """The process ended before it answered. code: as Popen gives it; None if it goes on, mute."""

    def __init__(self, code: int | None):
        super().__init__(code)
        self.code = code


class CannotStart(ValueError):
    """The judge's own part of the process failed: no fault of the foreign code."""


class Forged(Exception):
    """What came is not the answer to the question."""


class Program(subprocess.Popen):
    """A program in a session of its own, without input. One of ours starts with `orphans.keep`."""

    def __init__(self, words: list[str], **options: Any):
        """options: of Popen."""
        options |= {"stdin": subprocess.DEVNULL, "start_new_session": True}
        self._is_over = False
        super().__init__(words, **options)

    def end(self) -> None:
        """End it and its children. Once: the kernel gives its number to another process later."""
        if self._is_over:
            return
        self._is_over = True
        with contextlib.suppress(ProcessLookupError):  # it has ended, and left no children
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


def limited(most_bytes: int) -> Callable[[], None] | None:
    """Popen's preexec_fn for a program that is not ours: a keeper for it, and a limit.

    most_bytes: of a file that it writes, or of what it prints. Python then copies the tables of all
    memory of this process, which a start without preexec_fn shares.
    """
    return functools.partial(_limit, most_bytes, os.getpid()) if resource else None


def _limit(most_bytes: int, command: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    most = most_bytes if hard == resource.RLIM_INFINITY else min(hard, most_bytes)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    orphans.keep(command)


@dataclass
class Server:
    """What the process runs. name: of a module with opened(**arguments), which imports the
    foreign code and returns (the first answer, the function that answers the others, or None).

    wall: from view.py. modules: see start.py. errors: is what goes to stderr kept, too?
    """

    name: str
    arguments: dict[str, Any]
    wall: dict[str, Any]
    modules: dict[str, list] | None = None
    errors: bool = True
    largest: int = LARGEST_ANSWER
    still_open: set[str] = field(default_factory=set)


class Process:
    """One process. `printed`: what came between the last question and its answer."""

    def __init__(self, server: Server):
        self.server, self.printed, self._output = server, "", bytearray()
        self.socket, remote = socket.socketpair()
        with remote:
            self.process = self._program(remote.fileno())
        self.socket.setblocking(False)
        os.set_blocking(self.process.stdout.fileno(), False)
        self._readable = [self.socket, self.process.stdout]

    def _program(self, remote: int, *words: str) -> Program:
        """remote: its end of the connection. words: more of start.py's arguments."""
        return Program(
            [sys.executable, "-P", start.__file__, str(os.getpid()), str(remote), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if self.server.errors else subprocess.DEVNULL,
            env=view.environment(self.server.modules is None),
            pass_fds=[remote],
        )

    def begin(self, limit_s: float) -> bytes:
        """The first answer, after the import of what it runs. limit_s: of the import."""
        self.start()
        return self.ask(b"", limit_s)

    def start(self) -> None:
        """Wait for Python and the wall; the foreign code is not imported yet."""
        server = self.server
        settings = {"wall": server.wall, "modules": server.modules, "server": server.name}
        settings |= {"arguments": server.arguments, **view.import_order(server.modules is None)}
        try:
            still_open = self._exchange(json.dumps(settings).encode(), START, START_S)
        except (TooLate, Ended) as error:  # of the project's own code
            raise CannotStart(
                f"got no Python for judged code ({type(error).__name__} {error}): {self.printed}; "
                f"wanted {sys.executable} with NumPy; next: python -m refgf.doctor"
            ) from error
        server.still_open |= set(json.loads(still_open))

    def ask(self, question: bytes, limit_s: float) -> bytes:
        """The answer. Raises TooLate, Ended or Forged; then nothing but `close` is left to do."""
        return self._exchange(question, secrets.token_bytes(16), limit_s)

    def close(self) -> None:
        """End the process and its children."""
        self.process.end()
        self._read_output()
        self.socket.close()
        self.process.stdout.close()

    def _exchange(self, question: bytes, number: bytes, limit_s: float) -> bytes:
        stop_s, self._output = time.monotonic() + limit_s, bytearray()
        pending, found, wanted = memoryview(packed(question, number)), bytearray(), HEAD.size
        try:
            while len(found) < wanted:
                left_s = stop_s - time.monotonic()
                if left_s <= 0:
                    raise TooLate
                writable = [self.socket] if pending else []
                ready, free, _ = select.select(self._readable, writable, [], left_s)
                if self.process.stdout in ready:
                    self._read_output()
                if free:
                    pending = pending[self.socket.send(pending[: 1 << 20]) :]
                if self.socket not in ready:
                    continue
                more = self.socket.recv(min(1 << 20, wanted - len(found)))
                if not more:
                    raise Ended(self._code(stop_s))
                found += more
                if len(found) == wanted == HEAD.size:
                    length, returned = HEAD.unpack(found)
                    if returned != number or length > self.server.largest:
                        raise Forged
                    wanted += length
        except OSError:
            raise Ended(self._code(stop_s)) from None
        finally:
            self._read_output()
            self.printed = self._output.decode(errors="backslashreplace")
        return bytes(found[HEAD.size :])

    def _read_output(self) -> None:
        """Empty the pipe, so that no print waits for a reader; the first PRINTED bytes are kept."""
        with contextlib.suppress(BlockingIOError):
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            self._output += more[: PRINTED - len(self._output)]
            if not more and self.process.stdout in self._readable:  # it has closed its end
                self._readable.remove(self.process.stdout)

    def _code(self, stop_s: float) -> int | None:
        try:
            code = self.process.wait(max(EXIT_S, stop_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        self.process.end()  # at once: now its number is free
        return code
