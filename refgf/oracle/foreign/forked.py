"""Processes of closed code, forked from a template that has imported what all of them need (Linux).

    judge ---- two descriptors ----> template: Python, NumPy, the server's modules; no wall
          <--- a number ------------ its fork, a child of the judge: keeper, wall, foreign code

Most of a start is imports, which a fork shares with the template. The template gets no settings, no
cases and no foreign code. A judge starts one when it first needs it and has one at a time. It ends
with the judge, whose end of its connection then closes. Where it cannot work, or is killed, a
process is started by itself, as those of code that is not closed.

Forks also share what Python draws once: texts have the same hash in all of them.
"""

import atexit
import os
import socket
import subprocess
import sys
import threading
import time

from refgf.oracle.foreign.closure import carried
from refgf.oracle.foreign.process import (
    START_S,
    CannotStart,
    Ended,
    Forged,
    Process,
    Program,
    Server,
    TooLate,
)


class Template(Process):
    """server: what its forks will run."""

    def __init__(self, server: Server):
        super().__init__(Server(server.name, {}, {}, carried(server.name), errors=False))

    def _program(self, remote: int, *words: str) -> Program:
        return super()._program(remote, "1")

    def fork(self, remote: int, output: int) -> int:
        """The number of a new process with these ends of its connection and of its stdout."""
        socket.send_fds(self.socket, [b"f"], [remote, output])
        return int(self.ask(b"", START_S))


class Fork(Program):
    """A child of this process that the template has made; otherwise as a Program."""

    def __init__(self, pid: int, output: int):
        """output: the end of its stdout that is read."""
        self.pid, self.stdout, self.returncode = pid, os.fdopen(output, "rb"), None
        self._is_over, self._waits = False, threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        stop_s = time.monotonic() + (timeout or 0.0)
        while True:
            with self._waits:
                if self.returncode is None:
                    self.returncode = self._ended()
            if self.returncode is not None:
                return self.returncode
            if timeout is not None and time.monotonic() > stop_s:
                raise subprocess.TimeoutExpired("a judged process", timeout)
            time.sleep(0.001)

    def _ended(self) -> int | None:
        """Its exit code. 0, as Popen has it, where the system keeps none (SIGCHLD is ignored)."""
        try:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        return os.waitstatus_to_exitcode(status) if ended else None


class Forked(Process):
    """A Process whose start takes a fork where the system has one."""

    def _program(self, remote: int, *words: str) -> Program:
        read, write = os.pipe()
        try:
            pid = _templates.fork(self.server, remote, write)
        finally:
            os.close(write)
        if pid:
            return Fork(pid, read)
        os.close(read)
        return super()._program(remote)


class Templates:
    """The one template of this process, for all its threads."""

    def __init__(self) -> None:
        self.template: Template | None = None
        self.lock, self.works = threading.Lock(), sys.platform.startswith("linux")
        atexit.register(self.end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.leave)

    def fork(self, server: Server, remote: int, output: int) -> int | None:
        """A new process. None: this system has no template. One that was killed is replaced."""
        with self.lock:
            while self.works:
                is_new = self.template is None
                try:
                    if self.template is None:
                        self.template = Template(server)
                        self.template.start()
                    return self.template.fork(remote, output)
                except (CannotStart, Ended, TooLate, Forged, OSError):
                    self.end()
                    self.works = not is_new
        return None

    def end(self) -> None:
        if self.template:
            self.template.close()
        self.template = None

    def leave(self) -> None:
        """In a fork of the judge, which starts a template of its own."""
        if self.template:
            self.template.socket.close()
            self.template.process.returncode = 0  # it is no child of this process
        self.template, self.lock = None, threading.Lock()


_templates = Templates()
