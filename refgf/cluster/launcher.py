"""Starts ranks on the nodes with MPI's own mpiexec and a private agent that replaces ssh.

The agent gets the arguments of ssh (options, a node, a command line) and enters that node's
namespaces. Between nodes MPI uses TCP.
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

ROOT = Path(__file__).resolve().parents[2]  # the folder of `refgf`
PRIVATE = Path("/dev/shm/refgf")  # on the cluster's own memory disk, visible to head and nodes
PYTHON = [sys.executable, "-P"]  # imports no module from the folder where the user stands

MPICH = {
    "UCX_TLS": "tcp,self",  # between nodes; inside a node MPICH has its own shared memory
    "UCX_NET_DEVICES": "eth0",
    "UCX_RNDV_SCHEME": "am",  # UCX's default over TCP loses 7 ms a message from 4 MiB up
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    # without it a killed Hydra leaves a file in /tmp
    "HWLOC_XMLFILE": str(PRIVATE / "none"),
}
OPENMPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",  # every user is root inside a user namespace, and only there
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,sm,self",
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "OMPI_MCA_coll_hcoll_enable": "0",
}


def find_mpiexec(given: str | None) -> str:
    """--mpiexec, else the one next to this Python, else PATH's."""
    own = Path(sys.executable).with_name("mpiexec")
    found = str(own) if own.exists() and not given else shutil.which(given or "mpiexec")
    if not found:
        raise ValueError(
            f"mpiexec: got {given or 'none'}, which does not exist; wanted MPICH's (Hydra) or "
            "Open MPI's; next: pip install mpich, or name one with --mpiexec"
        )
    return found


def family(mpiexec: str) -> str:
    """'mpich' or 'openmpi'; ValueError for a launcher that takes no agent."""
    command = [mpiexec, "--version"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        output = done.stdout + done.stderr
    except OSError as error:  # not a program
        output = str(error)
    if "HYDRA build details" in output:
        return "mpich"
    version = re.search(r"Open MPI\) (\d+)", output)
    if version and int(version[1]) >= 5:
        return "openmpi"
    first = (output.strip().splitlines() or ["nothing"])[0]
    raise ValueError(
        f"mpiexec: got {mpiexec}, which prints {first!r}; wanted MPICH's Hydra or Open MPI from 5 "
        "on, which take an agent; next: pip install mpich, or name another with --mpiexec"
    )


def environment(settings: Settings, mpi: str) -> dict[str, str]:
    """The environment of mpiexec and the ranks; the user's MPI variables take precedence."""
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    ours = {
        "REFGF_RANKS_ON_MACHINE": str(settings.ranks),
        "REFGF_PROGRESS": str(PRIVATE / "progress"),
        "REFGF_TRACE_DIR": str(PRIVATE / "traces"),
        # `python` means the Python that runs the cluster, even if no environment is activated
        "PYTHONPATH": python_path(),
        "PATH": os.pathsep.join(path),
    }
    return (MPICH if mpi == "mpich" else OPENMPI) | os.environ | ours


def python_path() -> str:
    """PYTHONPATH of all children: the folder of `refgf`, then the user's."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def command(
    settings: Settings, mpi: str, mpiexec: str, agent: str, hosts: str, program: list[str]
) -> list[str]:
    """mpiexec's command line."""
    n, each = str(settings.ranks), settings.ranks_per_node
    if mpi == "mpich":
        options = ["-localhost", HEAD, "-launcher", "ssh", "-launcher-exec", agent, "-f", hosts]
        return [mpiexec, *options, "-n", n, *program]
    options = ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", agent, "--hostfile", hosts]
    options += ["--prtemca", "prte_if_include", "10.77.0.0/16"]
    options += ["--prtemca", "prte_tmpdir_base", "/dev/shm"]
    options += ["--map-by", f"ppr:{each}:node:OVERSUBSCRIBE", "--bind-to", "none"]
    return [mpiexec, *options, "-n", n, *program]


def write_files(settings: Settings, mpi: str, holders: list[int]) -> tuple[str, str]:
    """Write agent and host list; return their paths."""
    hosts, agent = PRIVATE / "hosts", PRIVATE / "agent"
    slots = f":{settings.ranks_per_node}" if mpi == "mpich" else f" slots={settings.ranks_per_node}"
    hosts.write_text("".join(f"{name}{slots}\n" for name in settings.names))
    agent.write_text(agent_script(settings, mpi, holders))
    agent.chmod(0o755)
    return str(agent), str(hosts)


def agent_script(settings: Settings, mpi: str, holders: list[int]) -> str:
    """A shell script: `agent [-options] node1 command...` runs the command on node 1.

    Hydra's command is words, the first in quotes that ssh's shell would remove: no shell reads
    them here. Open MPI's is a shell's text.
    """
    lines = [
        "#!/bin/sh",
        'while [ "${1#-}" != "$1" ]; do shift; done',
        "node=$1; shift",
        'case "$node" in',
    ]
    for node, pid in enumerate(holders):
        names = f"{settings.names[node]}|{settings.address(node)}"
        lines.append(f"{names}) pid={pid} cores={cores_of(settings, node)}")
        description = shlex.quote(json.dumps(settings.for_ranks(node, mpi)))
        lines.append(f"  export REFGF_CLUSTER={description} ;;")
    lines += ['*) echo "no such node: $node" >&2; exit 1 ;;', "esac"]
    limit = 'taskset -c "$cores" ' if settings.cpus_per_node else ""
    start = f'exec {limit}nsenter -t "$pid" -n -u -i -m'
    if mpi == "openmpi":
        return "\n".join([*lines, f'{start} sh -c "$*"']) + "\n"
    lines += ['proxy=${1#\\"}; proxy=${proxy%\\"}; shift']
    return "\n".join([*lines, f'{start} "$proxy" "$@"']) + "\n"


def cores_of(settings: Settings, node: int) -> str:
    """The cores of a node for `taskset -c`; nodes share them in turn if the machine has too few."""
    usable = sorted(os.sched_getaffinity(0))
    each = settings.cpus_per_node or len(usable)
    if each > len(usable):
        raise ValueError(
            f"--cpus-per-node: got {each}; wanted at most the {len(usable)} cores of this machine; "
            f"next: try {len(usable)}"
        )
    return ",".join(str(usable[(node * each + i) % len(usable)]) for i in range(each))
