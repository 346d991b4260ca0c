"""`make demo` takes an emulated cluster where there can be one; an interrupted setup is repaired.

The Python that `make demo` starts here only notes its arguments.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OF_MAKE = (
    "MAKEFLAGS",
    "MFLAGS",
    "MAKELEVEL",
    "MPI",
    "RANKS",
    "NODES",
    "RATE",
    "ARGS",
    "LIKE",
    "VENV",
)
pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="no make")


def demo(folder: Path, *arguments: str, cluster: bool) -> list[str]:
    """What `make demo` prints; cluster: whether the machine can have one."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("python", "mpiexec"):
        program = programs / name
        program.write_text(
            f'#!/bin/sh\necho "{name} $*"\n'
            f'case "$*" in *"cluster check"*) exit {int(not cluster)};; esac\n'
        )
        program.chmod(0o755)
    (folder / ".ready-mpich").touch()  # newer than pyproject.toml: nothing to set up
    command = [
        "make",
        "-C",
        str(ROOT),
        "--no-print-directory",
        f"VENV={folder}",
        *arguments,
        "demo",
    ]
    # these tests may run under make
    environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(f"{folder}/bin/", "").splitlines()


CHECK = "python -m refgf.cluster check --mpiexec mpiexec"
ON_CLUSTER = "python -m refgf.cluster run {} --mpiexec mpiexec -- python {}"
LESSON = "lessons/03_lazy_allreduce.py"
LIKE = "--like v100-10gbe"  # what lesson 03 says


def test_the_demo_runs_on_emulated_nodes_like_the_lessons_cluster(tmp_path):
    assert demo(tmp_path, cluster=True) == [CHECK, ON_CLUSTER.format(LIKE, LESSON)]


def test_other_numbers_and_arguments_reach_it(tmp_path):
    told = demo(tmp_path, "NODES=3", "RANKS=3", "ARGS=--quick", cluster=True)
    shape = f"{LIKE} --nodes 3 --ranks-per-node 1"
    assert told == [CHECK, ON_CLUSTER.format(shape, f"{LESSON} --quick")]


@pytest.mark.parametrize(
    "like, shape",
    [
        ("v100-56gbit", "--like v100-56gbit"),
        ("this-machine", "--nodes 4 --ranks-per-node 2 --rate 1gbit"),
    ],
)
def test_another_cluster(tmp_path, like, shape):
    told = demo(tmp_path, f"LIKE={like}", cluster=True)
    assert told == [CHECK, ON_CLUSTER.format(shape, LESSON)]


def test_where_there_can_be_no_cluster_it_says_so_and_runs_in_shared_memory(tmp_path):
    told = demo(tmp_path, cluster=False)
    assert told == [
        CHECK,
        "no emulated cluster: 8 ranks in the shared memory of this machine",
        f"mpiexec -n 8 python {LESSON}",
    ]


@pytest.mark.parametrize("arguments", [["NODES=1"], ["RANKS=7"]])
def test_one_node_or_ranks_that_nodes_do_not_divide_are_the_plain_run(tmp_path, arguments):
    told = demo(tmp_path, *arguments, cluster=True)
    ranks = dict(word.split("=") for word in arguments).get("RANKS", 8)
    said = f"no emulated cluster: {ranks} ranks in the shared memory of this machine"
    assert told == [said, f"mpiexec -n {ranks} python {LESSON}"]


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """make with a copy of the Makefile in `folder`; instead of installing it prints pip's path."""
    for file in ("Makefile", "pyproject.toml"):
        shutil.copy2(ROOT / file, folder)  # with its time: what is ready stays ready
    kept = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    settings = [f"PYTHON={sys.executable}", "INSTALL=-c 'import pip; print(pip.__file__)'"]
    command = ["make", "-C", str(folder), "--no-print-directory", *settings, *arguments]
    return subprocess.run(command, env=kept, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("target, venv", [("setup", ".venv"), (".venv-openmpi", ".venv-openmpi")])
def test_an_interrupted_setup_is_repaired(tmp_path, target, venv):
    """Ctrl-C while `python -m venv` installed pip: bin/python is there, pip is not."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / venv], check=True)
    repaired = make(tmp_path, target)
    assert repaired.returncode == 0, repaired.stderr
    assert f"{venv} is not complete: repairing it" in repaired.stdout
    assert f"{tmp_path}/{venv}/lib" in repaired.stdout
    assert "import pip" not in make(tmp_path, target).stdout  # ready: nothing to do


def test_a_python_without_venv_is_told_and_nothing_is_deleted(tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "thesis.tex").touch()
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *venv*) exit 1;; esac\n')
    python.chmod(0o755)
    failed = make(tmp_path, "setup", f"PYTHON={python}")
    assert failed.returncode and "sudo apt-get install python3-venv" in failed.stdout
    assert (tmp_path / ".venv" / "thesis.tex").exists()
