"""Process 1 of the cluster's namespaces: builds the nodes, runs the command, accounts for traffic.

When this process ends, for any reason, the kernel kills every process of the cluster. Namespaces,
interfaces and the memory disk disappear with the last of them. It ends when the command outside has
ended: only that command holds the other end of a pipe (the lifeline), which is then closed.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from refgf.cluster import account, launcher, network
from refgf.cluster.check import CannotRun
from refgf.cluster.outside import shell_code
from refgf.cluster.settings import Settings

READY_S = 30  # a node that is not up by then has failed
LINK_S = 1  # between two looks at the links


def watch(lifeline: int) -> None:
    """End this process, and so the whole cluster, once the lifeline's other end is closed."""

    def wait_for_end() -> None:
        os.read(lifeline, 1)
        os._exit(137)

    threading.Thread(target=wait_for_end, daemon=True).start()


def build(settings: Settings) -> list[int]:
    """Build bridge, nodes and cables; return the process id of each node's holder."""
    subprocess.run(["hostname", "head"], check=True)
    holders = [start_holder(settings, node) for node in range(settings.nodes)]
    for node, process in enumerate(holders):
        expect(process, "isolated", node)
    pids = [process.pid for process in holders]
    run_batch("ip", network.bridge_commands(settings, pids))
    lines = []
    for node in range(settings.nodes):
        lines += network.shaping_commands(settings, node, f"cable{node}")
    run_batch("tc", "".join(line.removeprefix("tc ") + "\n" for line in lines))
    for process in holders:
        with contextlib.suppress(BrokenPipeError):  # it has been killed: `expect` says so
            process.stdin.write("cable\n")
            process.stdin.close()
    for node, process in enumerate(holders):
        expect(process, "up", node)
        process.stdout.close()
    return pids


def mount_disk(settings: Settings) -> None:
    """Mount the cluster's own memory disk on /dev/shm, and its host names on /etc/hosts."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "refgf", "/dev/shm"], check=True)
    (launcher.PRIVATE / "traces").mkdir(parents=True)
    names = [f"{settings.address(i)} {name}" for i, name in enumerate(settings.names)]
    hosts = launcher.PRIVATE / "etc-hosts"
    hosts.write_text("\n".join(["127.0.0.1 localhost", f"{network.HEAD} head", *names, ""]))
    if os.path.exists("/etc/hosts"):
        subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)


def mount_mpi(mpiexec: str, mpi: str) -> str:
    """mpiexec, by a path that means the same to a shell: Open MPI hands it to one unquoted."""
    found = Path(os.path.realpath(mpiexec))
    if mpi != "openmpi" or re.fullmatch(r"[\w./+-]+", str(found), re.ASCII):
        return mpiexec
    mounted = launcher.PRIVATE / "mpi"
    mounted.mkdir()
    subprocess.run(["mount", "--bind", str(found.parents[1]), str(mounted)], check=True)
    return str(mounted / found.relative_to(found.parents[1]))


def start_holder(settings: Settings, node: int) -> subprocess.Popen[str]:
    """Start the process that holds a node's namespaces. It keeps no file of the caller open."""
    shaping = "\n".join(network.shaping_commands(settings, node, "eth0"))
    isolate = ["unshare", "--net", "--uts", "--ipc", "--mount"]
    script = ["sh", "-c", network.HOLDER, "holder"]
    return subprocess.Popen(
        [*isolate, *script, settings.names[node], settings.address(node), shaping],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def expect(process: subprocess.Popen[str], word: str, node: int) -> None:
    """Wait until the holder prints this word."""
    timer = threading.Timer(READY_S, process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    if line.strip() != word:
        process.kill()
        output = (line + process.stdout.read()).strip() or "no output"
        got = f"node{node}: got {output!r} from the process that holds it"
        raise CannotRun(f"{got}; wanted {word!r} within {READY_S} s; next: start the command again")


def run_batch(tool: str, commands: str) -> None:
    """Run the lines with one process of `ip` or `tc`."""
    done = subprocess.run([tool, "-batch", "-"], input=commands, capture_output=True, text=True)
    if done.returncode:
        error = " ".join(done.stderr.split())
        found = re.search(r"-:(\d+)", error)  # the number of the line that failed
        command = commands.splitlines()[int(found[1]) - 1] if found else commands.strip()
        next_step = "next: python -m refgf.cluster check"
        raise CannotRun(f"{tool}: got {error!r}; wanted it to do {command!r}; {next_step}")


def wait(command: int, holders: list[int]) -> int:
    """Wait for the command; return its code. ChildProcessError if a node or its link ends before.

    The command might wait for ever then, because the node takes its unsent bytes with it. Orphans
    of the whole cluster are children of process 1 too.
    """
    found = []

    def watch_links() -> None:
        while (node := network.find_lost_link(len(holders))) is None:
            time.sleep(LINK_S)
        found.append(node)
        with contextlib.suppress(ProcessLookupError):
            os.kill(command, signal.SIGKILL)

    threading.Thread(target=watch_links, daemon=True).start()
    while True:
        pid, status = os.wait()
        if pid == command and found:
            raise network.lost(found[0], network.LINK_LOST)
        if pid == command:
            return os.waitstatus_to_exitcode(status)
        if pid in holders:
            raise network.lost(holders.index(pid))


def run(settings: Settings, mpiexec: str, mpi: str, program: list[str]) -> int:
    """Build the cluster, run the program, print the account; return the program's exit code."""
    mount_disk(settings)
    mpiexec = mount_mpi(mpiexec, mpi)
    holders = build(settings)
    agent, hosts = launcher.write_files(settings, mpi, holders)
    command = launcher.command(settings, mpi, mpiexec, agent, hosts, program)
    before = network.counters(settings.nodes)
    # without DEVNULL mpiexec would read the terminal for rank 0, even from the background
    env = launcher.environment(settings, mpi)
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    code = shell_code(wait(process.pid, holders))
    moved = [(a - c, b - d) for (a, b), (c, d) in zip(network.counters(settings.nodes), before)]
    report = account.Account(settings, moved, account.read_traces(Path(launcher.PRIVATE, "traces")))
    with contextlib.suppress(BrokenPipeError):
        print(report.text(code), file=sys.stderr, flush=True)
    return code if code else int(bool(report.faults()) and report.complete)
