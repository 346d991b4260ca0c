"""`make demo` takes an emulated cluster where there can be one, and says which it took.

The Python that it starts here only notes its arguments.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OF_MAKE = "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MPI", "RANKS", "NODES", "RATE", "ARGS", "VENV"
pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="no make")


def demo(folder: Path, *arguments: str, cluster: bool) -> list[str]:
    """What `make demo` prints; cluster: whether the machine can have one."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("python", "mpiexec"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*"\ncase "$*" in *"cluster check"*) exit {int(not cluster)};; esac\n')
        program.chmod(0o755)
    (folder / ".ready-mpich").touch()  # newer than pyproject.toml: nothing to set up
    command = ["make", "-C", str(ROOT), "--no-print-directory", f"VENV={folder}", *arguments, "demo"]
    environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}  # these tests may run under make
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{folder}/bin/", "").splitlines()


CHECK = "python -m refgf.cluster check --mpiexec mpiexec"
ON_CLUSTER = "python -m refgf.cluster run --nodes {} --ranks-per-node {} --rate 1gbit --mpiexec mpiexec -- python {}"
LESSON = "lessons/03_lazy_allreduce.py"


def test_the_demo_runs_on_emulated_nodes(tmp_path):
    assert demo(tmp_path, cluster=True) == [CHECK, ON_CLUSTER.format(4, 2, LESSON)]


def test_other_numbers_and_arguments_reach_it(tmp_path):
    told = demo(tmp_path, "NODES=3", "RANKS=3", "ARGS=--quick", cluster=True)
    assert told == [CHECK, ON_CLUSTER.format(3, 1, f"{LESSON} --quick")]


def test_where_there_can_be_no_cluster_it_says_so_and_runs_in_shared_memory(tmp_path):
    told = demo(tmp_path, cluster=False)
    assert told == [CHECK, "no emulated cluster: 8 ranks in the shared memory of this machine", f"mpiexec -n 8 python {LESSON}"]


@pytest.mark.parametrize("arguments", [["NODES=1"], ["RANKS=7"]])
def test_one_node_or_ranks_that_nodes_do_not_divide_are_the_plain_run(tmp_path, arguments):
    told = demo(tmp_path, *arguments, cluster=True)
    ranks = dict(word.split("=") for word in arguments).get("RANKS", 8)
    said = f"no emulated cluster: {ranks} ranks in the shared memory of this machine"
    assert told == [said, f"mpiexec -n {ranks} python {LESSON}"]
