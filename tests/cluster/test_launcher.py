"""The launchers that take an agent, the agent's work, and the ranks' environment."""

import json
import os
import subprocess
from dataclasses import replace

import pytest

from refgf.cluster import launcher
from refgf.cluster.settings import Settings

VERSIONS = {
    "HYDRA build details:\n    Version: 5.0.2": "mpich",
    "mpiexec (Open MPI) 5.0.11": "openmpi",
    "mpirun (Open MPI) 6.1.0": "openmpi",
}
REFUSED = [
    "mpirun (Open MPI) 4.1.8",
    "Usage: mpiexec -usize <universesize>",
    "Microsoft MPI Startup Program",
    "",
]


def fake_mpiexec(tmp_path, version: str) -> str:
    path = tmp_path / "mpiexec"
    path.write_text(f"#!/bin/sh\nprintf '%s' '{version}'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("version", VERSIONS)
def test_launchers_we_know(tmp_path, version):
    assert launcher.family(fake_mpiexec(tmp_path, version)) == VERSIONS[version]


@pytest.mark.parametrize("version", REFUSED)
def test_a_launcher_that_takes_no_agent_is_refused(tmp_path, version):
    with pytest.raises(ValueError, match="wanted MPICH's Hydra or .*next: pip install mpich"):
        launcher.family(fake_mpiexec(tmp_path, version))


def test_a_launcher_that_is_no_program_is_refused(tmp_path):
    path = tmp_path / "mpiexec"
    path.write_bytes(b"\0no program")
    path.chmod(0o755)
    with pytest.raises(ValueError, match="which prints .*Exec format error.*wanted MPICH"):
        launcher.family(str(path))


def test_an_mpiexec_that_does_not_exist():
    with pytest.raises(ValueError, match="got /nowhere/mpiexec, which does not exist"):
        launcher.find_mpiexec("/nowhere/mpiexec")


SETTINGS = Settings(nodes=3, ranks_per_node=2, slow={"node1": 1e6})


def call(tmp_path, script: str, *arguments) -> subprocess.CompletedProcess:
    """Run the agent with a replacement for nsenter that prints its arguments."""
    show = 'for a in "$@"; do printf "<%s>" "$a"; done; echo; echo "$REFGF_CLUSTER"'
    (tmp_path / "nsenter").write_text(f"#!/bin/sh\n{show}\n")
    (tmp_path / "nsenter").chmod(0o755)
    agent = tmp_path / "agent"
    agent.write_text(script)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", str(agent), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


ODD = '/d$HOME `touch pwned` q\'s "x";(1)/proxy'
PASSED_ON = {  # Hydra's words stay words, Open MPI's text is for a shell
    "mpich": ([f'"{ODD}"', "--port", "$(id)", "'a b'"], f"<{ODD}><--port><$(id)><'a b'>"),
    "openmpi": (["A=/x;prted --port 1", "'a b'"], "<sh><-c><A=/x;prted --port 1 'a b'>"),
}


@pytest.mark.parametrize("host", ["node1", "10.77.0.2"])
@pytest.mark.parametrize("mpi", PASSED_ON)
def test_the_agent_drops_sshs_options_and_enters_the_node(tmp_path, host, mpi):
    words, wanted = PASSED_ON[mpi]
    script = launcher.agent_script(SETTINGS, mpi, [101, 202, 303])
    done = call(tmp_path, script, "-x", "-oBatchMode=yes", host, *words)
    arguments, description = done.stdout.splitlines()
    assert arguments == f"<-t><202><-n><-u><-i><-m>{wanted}"
    assert json.loads(description) == SETTINGS.for_ranks(1, mpi)


def test_the_agent_refuses_other_hosts(tmp_path):
    script = launcher.agent_script(SETTINGS, "mpich", [101, 202, 303])
    done = call(tmp_path, script, "node3", "proxy")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no such node: node3\n")


def test_nodes_get_consecutive_cores_while_there_are_enough(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3, 5, 7}, raising=False)
    one, two = replace(SETTINGS, cpus_per_node=1), replace(SETTINGS, cpus_per_node=2)
    assert [launcher.cores_of(one, node) for node in range(5)] == ["2", "3", "5", "7", "2"]
    assert [launcher.cores_of(two, node) for node in range(3)] == ["2,3", "5,7", "2,3"]
    with pytest.raises(ValueError, match="got 5; wanted at most the 4 cores of this machine"):
        launcher.cores_of(replace(SETTINGS, cpus_per_node=5), 0)


def test_the_users_mpi_variables_win_but_not_those_of_the_cluster(monkeypatch):
    monkeypatch.setenv("UCX_TLS", "all")
    monkeypatch.setenv("REFGF_RANKS_ON_MACHINE", "99")
    environment = launcher.environment(SETTINGS, "mpich")
    assert environment["UCX_TLS"] == "all"
    assert environment["REFGF_RANKS_ON_MACHINE"] == "6"


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_wrong_variant_without_forced_tcp_is_seen(mpi):
    forced = {"mpich": ("UCX_TLS", "tcp,self"), "openmpi": ("OMPI_MCA_btl", "tcp,sm,self")}
    name, value = forced[mpi]
    assert launcher.environment(SETTINGS, mpi)[name] == os.environ.get(name, value)
