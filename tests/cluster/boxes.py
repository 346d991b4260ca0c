"""Emulated clusters in tests: start one, look for what it left."""

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

from jobs import MARK, clean_environment, processes
from refgf.cluster import check
from refgf.launch import leftovers


@functools.cache
def why_not() -> str | None:
    """Why this machine holds no cluster."""
    try:
        check.unshare_command()
    except check.CannotRun as reason:
        return str(reason)
    return None


needs_cluster = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

# Each rank sends `count` float32 round a ring by Sendrecv, `rounds` times, and leaves a trace.
RING = """
import json, os, socket, sys
import refgf.launch
import numpy as np
from mpi4py import MPI
from refgf.comm.trace import TracedComm
comm = TracedComm(MPI.COMM_WORLD)
x, y = np.ones({count}, np.float32), np.empty({count}, np.float32)
for _ in range({rounds}):
    comm.Sendrecv(x, (comm.rank + 1) % comm.size, 0, y, (comm.rank - 1) % comm.size, 0)
comm.save(os.environ["REFGF_TRACE_DIR"])
"""


class Box:
    """A running `python -m refgf.cluster ...`, whose processes all carry a mark."""

    def __init__(self, *arguments, env: dict | None = None):
        self.mark = uuid.uuid4().hex
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  they live as long as the box
        self.process = subprocess.Popen(
            [sys.executable, "-m", "refgf.cluster", *map(str, arguments)],
            env=clean_environment(env) | {MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=self.err,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may ignore it
        )

    def wait(self, timeout: float = 120) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()  # which ends all the others
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
            assert time.monotonic() < end and self.process.poll() is None, f"{self.stdout}\n{self.stderr}"
            time.sleep(0.02)
        return found

    def left(self, patience_s: float = 5) -> list[str]:
        """What is still there so long after the end: processes (and with them their namespaces)."""
        end = time.monotonic() + patience_s
        while (pids := processes(self.mark)) and time.monotonic() < end:
            time.sleep(0.02)
        lines = [_command_line(pid) for pid in pids]
        for pid in pids:  # so that a failing test leaves nothing either
            os.kill(pid, signal.SIGKILL)
        return lines


def run(*arguments, env: dict | None = None, timeout: float = 120) -> Box:
    """Start, wait for the end, check that nothing is left."""
    box = Box(*arguments, env=env)
    box.wait(timeout)
    assert box.left() == []
    return box


def leavings() -> set[str]:
    """What a cluster could leave outside its processes: interfaces, mounts, files in the machine's memory and in /tmp."""
    links = json.loads(subprocess.check_output(["ip", "-j", "link", "show"], text=True))
    interfaces = {link["ifname"] for link in links if link["ifname"].startswith(("bridge", "cable", "eth", "trial"))}
    with open("/proc/self/mountinfo") as file:
        mounts = {line for line in file if "nsfs" in line or "refgf" in line}
    memory = {name for name in os.listdir("/dev/shm") if name.startswith(("refgf", "nodes", *leftovers.PREFIXES))}
    temporary = {name for name in os.listdir(tempfile.gettempdir()) if name.startswith(("hydra", "prte", "ompi", "refgf"))}
    return interfaces | mounts | memory | temporary


def probed(text: str) -> list[dict]:
    """The rows of `probe`: rates in Mbit/s, `share` of the rate asked for, `idle` share of the cores' time."""
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
