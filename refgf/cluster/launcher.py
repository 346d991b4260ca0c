"""How an MPI's own mpiexec starts ranks on the nodes: a private agent in place of ssh, and TCP between nodes.

The agent gets what ssh would get (options, a node, a command line) and enters that node's namespaces.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from refgf.cluster.network import HEAD
from refgf.cluster.settings import Settings

ROOT = Path(__file__).resolve().parents[2]  # the folder in which `refgf` lies
PRIVATE = Path("/dev/shm/refgf")  # on the cluster's own memory disk, seen by head and nodes alike

MPICH = {
    "UCX_TLS": "tcp,self",  # between nodes; inside a node MPICH has its own shared memory
    "UCX_NET_DEVICES": "eth0",
    "UCX_RNDV_SCHEME": "am",  # its default over TCP loses 7 ms a message from 4 MiB up
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    "HWLOC_XMLFILE": str(PRIVATE / "none"),  # else Hydra writes one to /tmp, which stays there when it is killed
}
OPENMPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",  # everyone is root inside a user namespace, and only there
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,sm,self",
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "OMPI_MCA_coll_hcoll_enable": "0",
}


def find_mpiexec(given: str | None) -> str:
    """--mpiexec, else the one beside this Python, else PATH's."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = shutil.which(given) if given else str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise ValueError(
            f"mpiexec: got {given or 'none'}, which is not there; wanted MPICH's (Hydra) or Open MPI's; "
            f"next: pip install mpich, or name one with --mpiexec"
        )
    return found


def family(mpiexec: str) -> str:
    """'mpich' or 'openmpi'; ValueError for a launcher that takes no agent."""
    try:
        done = subprocess.run([mpiexec, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        told = done.stdout + done.stderr
    except OSError as error:  # not a program
        told = str(error)
    if "HYDRA build details" in told:
        return "mpich"
    version = re.search(r"Open MPI\) (\d+)", told)
    if version and int(version[1]) >= 5:
        return "openmpi"
    first = (told.strip().splitlines() or ["nothing"])[0]
    raise ValueError(
        f"mpiexec: got {mpiexec}, which says {first!r}; wanted a launcher whose agent we know: MPICH's Hydra or Open MPI "
        f"from 5 on; next: pip install mpich, or name another with --mpiexec"
    )


def environment(settings: Settings, mpi: str) -> dict:
    """What mpiexec and every rank get beside the user's environment; what the user set wins."""
    ours = {
        "REFGF_RANKS_ON_MACHINE": str(settings.ranks),
        "REFGF_TRACE_DIR": str(PRIVATE / "traces"),
        # `python` means the Python that runs the cluster, also where no environment is activated
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
    return (MPICH if mpi == "mpich" else OPENMPI) | os.environ | ours


def command(settings: Settings, mpi: str, mpiexec: str, agent: str, hosts: str, program: list[str]) -> list[str]:
    """mpiexec's command line."""
    n, each = str(settings.ranks), settings.ranks_per_node
    if mpi == "mpich":
        options = ["-localhost", HEAD, "-launcher", "ssh", "-launcher-exec", agent, "-f", hosts]
        return [mpiexec, *options, "-n", n, *program]
    options = ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", agent, "--hostfile", hosts]
    options += ["--prtemca", "prte_if_include", "10.77.0.0/16", "--prtemca", "prte_tmpdir_base", "/dev/shm"]
    options += ["--map-by", f"ppr:{each}:node:OVERSUBSCRIBE", "--bind-to", "none"]
    return [mpiexec, *options, "-n", n, *program]


def write_files(settings: Settings, mpi: str, holders: list[int]) -> tuple[str, str]:
    """Write agent and host list; return their paths."""
    hosts, agent = PRIVATE / "hosts", PRIVATE / "agent"
    slots = ":{}" if mpi == "mpich" else " slots={}"
    hosts.write_text("".join(name + slots.format(settings.ranks_per_node) + "\n" for name in settings.names))
    agent.write_text(agent_script(settings, mpi, holders))
    agent.chmod(0o755)
    return str(agent), str(hosts)


def agent_script(settings: Settings, mpi: str, holders: list[int]) -> str:
    """A shell script: `agent [-options] node1 command...` runs the command in node 1's namespaces."""
    lines = ["#!/bin/sh", 'while [ "${1#-}" != "$1" ]; do shift; done', "node=$1; shift", 'case "$node" in']
    for node, pid in enumerate(holders):
        told = shlex.quote(json.dumps(settings.for_ranks(node, mpi)))
        lines.append(f"{settings.names[node]}|{settings.address(node)}) pid={pid} cores={cores(settings, node)}")
        lines.append(f"  export REFGF_CLUSTER={told} ;;")
    lines += ['*) echo "no such node: $node" >&2; exit 1 ;;', "esac"]
    limit = 'taskset -c "$cores" ' if settings.cpus_per_node else ""
    return "\n".join([*lines, f'exec {limit}nsenter -t "$pid" -n -u -i -m sh -c "$*"']) + "\n"


def cores(settings: Settings, node: int) -> str:
    """The cores of a node, as `taskset -c` takes them: nodes share them in turn where the machine has too few."""
    usable = sorted(os.sched_getaffinity(0))
    each = settings.cpus_per_node or len(usable)
    if each > len(usable):
        raise ValueError(f"--cpus-per-node: got {each}; wanted at most {len(usable)}, the cores of this machine")
    return ",".join(str(usable[(node * each + i) % len(usable)]) for i in range(each))
