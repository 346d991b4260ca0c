"""Emulated clusters in tests: start one, list what it left behind."""

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import pytest

from refgf.cluster import check
from refgf.launch import leftovers
from tests.speed import benchmark
from tests.support.jobs import MARK, clean_environment, processes

FOLLOW = benchmark.tied()


@functools.cache
def why_not() -> str | None:
    """Why this machine can run no cluster."""
    try:
        check.unshare_command()
    except check.CannotRun as reason:
        return str(reason)
    return None


needs_cluster = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

# Each rank sends `count` float32 along a ring by Sendrecv, `rounds` times, and saves a trace.
RING = """
import json, os, socket, sys
import refgf.launch
import numpy as np
from mpi4py import MPI
from refgf.machine.trace import TracedComm
comm = TracedComm(MPI.COMM_WORLD)
x, y = np.ones({count}, np.float32), np.empty({count}, np.float32)
for _ in range({rounds}):
    comm.Sendrecv(x, (comm.rank + 1) % comm.size, 0, y, (comm.rank - 1) % comm.size, 0)
comm.save(os.environ["REFGF_TRACE_DIR"])
"""


class Box:
    """A running `python -m refgf.cluster ...`; a mark identifies its processes."""

    def __init__(self, *arguments, env: dict | None = None, cwd: object = None):
        self.mark = uuid.uuid4().hex
        self.out = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the box
        self.err = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "refgf.cluster", *map(str, arguments)],
            env=clean_environment(env) | {MARK: self.mark},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.err,
            preexec_fn=FOLLOW,
        )

    def wait(self, timeout: float = 120) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()  # this ends all other processes
            raise

    @property
    def stdout(self) -> str:
        return _read(self.out)

    @property
    def stderr(self) -> str:
        return _read(self.err)

    def pids(self, word: str = "") -> list[int]:
        """Its processes whose command line contains the word."""
        return [pid for pid in processes(self.mark) if word in _command_line(pid)]

    def wait_for(self, word: str, count: int = 1, timeout: float = 60) -> list[int]:
        """Wait until so many of its processes have the word in their command line."""
        end = time.monotonic() + timeout
        while len(found := self.pids(word)) < count:
            runs = time.monotonic() < end and self.process.poll() is None
            assert runs, f"{self.stdout}\n{self.stderr}"
            time.sleep(0.02)
        return found

    def left(self, wait_s: float = 5) -> list[str]:
        """Processes (and with them namespaces) that still exist wait_s after the end."""
        end = time.monotonic() + wait_s
        while (pids := processes(self.mark)) and time.monotonic() < end:
            time.sleep(0.02)
        lines = [_command_line(pid) for pid in pids]
        for pid in pids:  # a failing test leaves nothing behind either
            os.kill(pid, signal.SIGKILL)
        return lines


def run(*arguments, timeout: float = 120, **started) -> Box:
    """Start a cluster, wait for its end, check that nothing is left."""
    box = Box(*arguments, **started)
    box.wait(timeout)
    assert box.left() == []
    return box


def leavings() -> set[str]:
    """What a cluster could leave outside its processes: interfaces, mounts, files in memory."""
    links = json.loads(subprocess.check_output(["ip", "-j", "link", "show"], text=True))
    names = [link["ifname"] for link in links]
    interfaces = {n for n in names if n.startswith(("bridge", "cable", "eth", "trial"))}
    with open("/proc/self/mountinfo") as file:
        mounts = {line for line in file if "nsfs" in line or "refgf" in line}
    prefixes = ("refgf", "nodes", *leftovers.PREFIXES)
    memory = {name for name in os.listdir("/dev/shm") if name.startswith(prefixes)}
    prefixes = ("hydra", "prte", "ompi", "refgf")
    temporary = {name for name in os.listdir(tempfile.gettempdir()) if name.startswith(prefixes)}
    return interfaces | mounts | memory | temporary


def read_table(text: str) -> list[dict]:
    """The rows of `probe`: rates in Mbit/s, `share` of the rate asked for, `idle` processors."""
    names = ("asked", "raw", "link", "share", "idle", "alpha_us")
    lines = [line.split() for line in text.splitlines() if line[:1].isdigit()]
    return [dict(zip(names, map(float, line[1:7]))) | {"mpi": float(line[8])} for line in lines]


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _read(file) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
