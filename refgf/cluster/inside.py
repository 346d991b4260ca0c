"""Process 1 of the cluster's namespaces: builds the nodes, runs the command, accounts for the traffic.

When this process ends, for whatever reason, the kernel kills every process of the cluster, and with the last of them go
namespaces, interfaces and the memory disk. It ends when the command on the outside is gone: a pipe whose other end only
that command holds (the lifeline) then reads as closed.
"""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

from refgf.cluster import account, launcher, network
from refgf.cluster.check import CannotRun
from refgf.cluster.outside import as_shells_say
from refgf.cluster.settings import Settings

READY_S = 30  # a node that is not up by then never will be


def watch(lifeline: int) -> None:
    """End this process, and so the whole cluster, as soon as the other end of the lifeline is closed."""

    def wait_for_the_end() -> None:
        os.read(lifeline, 1)
        os._exit(137)

    threading.Thread(target=wait_for_the_end, daemon=True).start()


def build(settings: Settings) -> list[int]:
    """Build bridge, nodes and cables; return the process that holds each node."""
    private_disk(settings)
    subprocess.run(["hostname", "head"], check=True)
    holders = [holder(settings, node) for node in range(settings.nodes)]
    for node, process in enumerate(holders):
        expect(process, "isolated", node)
    pids = [process.pid for process in holders]
    batch("ip", network.bridge(settings, pids))
    cables = [line for node in range(settings.nodes) for line in network.shape(settings, node, f"cable{node}")]
    batch("tc", "".join(line.removeprefix("tc ") + "\n" for line in cables))
    for process in holders:
        process.stdin.write("cable\n")
        process.stdin.close()
    for node, process in enumerate(holders):
        expect(process, "up", node)
        process.stdout.close()
    return pids


def private_disk(settings: Settings) -> None:
    """A memory disk for the cluster in place of the machine's /dev/shm, and names for its addresses."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "refgf", "/dev/shm"], check=True)
    (launcher.PRIVATE / "traces").mkdir(parents=True)
    names = [f"{settings.address(i)} {name}" for i, name in enumerate(settings.names)]
    hosts = launcher.PRIVATE / "etc-hosts"
    hosts.write_text("\n".join(["127.0.0.1 localhost", f"{network.HEAD} head", *names, ""]))
    if os.path.exists("/etc/hosts"):
        subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)


def holder(settings: Settings, node: int) -> subprocess.Popen:
    """Start the process that holds a node's namespaces. It keeps none of the caller's files open."""
    shaping = "\n".join(network.shape(settings, node, "eth0"))
    arguments = [settings.names[node], settings.address(node), shaping]
    command = ["unshare", "--net", "--uts", "--ipc", "--mount", "sh", "-c", network.HOLDER, "holder", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, text=True, **pipes)


def expect(process: subprocess.Popen, word: str, node: int) -> None:
    """Wait until the holder says this word."""
    timer = threading.Timer(READY_S, process.kill)
    timer.start()
    told = process.stdout.readline()
    timer.cancel()
    if told.strip() != word:
        process.kill()
        raise CannotRun(f"node{node} did not come up: {(told + process.stdout.read()).strip() or 'it said nothing'}")


def batch(tool: str, commands: str) -> None:
    """Feed lines to `ip` or `tc` in one process."""
    done = subprocess.run([tool, "-batch", "-"], input=commands, capture_output=True, text=True)
    if done.returncode:
        raise CannotRun(f"{tool} refused ({' '.join(done.stderr.split())}) one of these commands:\n{commands}")


def run(settings: Settings, mpiexec: str, mpi: str, program: list[str]) -> int:
    """Build the cluster, run the program on it, account. Returns the program's exit code."""
    holders = build(settings)
    agent, hosts = launcher.write_files(settings, mpi, holders)
    command = launcher.command(settings, mpi, mpiexec, agent, hosts, program)
    before = network.counters(settings.nodes)
    # mpiexec would read the terminal on behalf of rank 0, also from the background
    done = subprocess.run(command, env=launcher.environment(settings, mpi), stdin=subprocess.DEVNULL)
    code = as_shells_say(done.returncode)
    moved = [(a - c, b - d) for (a, b), (c, d) in zip(network.counters(settings.nodes), before)]
    report = account.Account(settings, moved, account.read_traces(Path(launcher.PRIVATE, "traces")))
    with contextlib.suppress(BrokenPipeError):
        print(report.text(code), file=sys.stderr, flush=True)
    return code if code else int(bool(report.faults()) and report.complete)
