"""`make demo` takes an emulated cluster where there can be one; an interrupted setup is repaired.

Nonsense is refused before anything starts; what has started ends with make. The Python and the
mpiexec that make starts here only note their arguments, or sleep.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.jobs import MARK, command_line, processes, wait_for

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


def stubs(folder: Path, body: str) -> list[str]:
    """The command that starts make with a python and an mpiexec that print their arguments."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("python", "mpiexec"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*"\n{body}\n')
        program.chmod(0o755)
    for ready in (".ready-mpich", ".ready-mutation"):  # newer than pyproject.toml
        (folder / ready).touch()
    return ["make", "-C", str(ROOT), "--no-print-directory", f"VENV={folder}"]


def environment() -> dict[str, str]:
    """Without what make hands on: these tests may run under make."""
    return {name: value for name, value in os.environ.items() if name not in OF_MAKE}


def told(command: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=60, errors="replace"
    )


def demo(folder: Path, *arguments: str, cluster: bool) -> list[str]:
    """What `make demo` prints; cluster: whether the machine can have one."""
    command = stubs(folder, f'case "$*" in *"cluster check"*) exit {int(not cluster)};; esac')
    done = told([*command, *arguments, "demo"])
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.replace(f"{folder}/bin/", "").splitlines()
    assert last == "next: look at the figure, then: source activate; mpiexec -n 2 python " + FIRST
    return printed


NONSENSE = [
    "setup MPI=banana",
    "setup MPI=",
    "demo MPI=mpich_site",
    "lesson-01 RANKS=abc",
    "lesson-01 RANKS=0",
    "demo RANKS=-1",
    "demo RANKS=08",
    "demo RANKS=99999999999999999999",
    "demo NODES=0",
    "demo NODES=",
    "demo RATE=banana",
    "figures SIZE=banana",
    "figures RANKS=7",
    "cluster-lesson-07 RANKS=7",
    "lesson-1",
    "lesson-abc",
    "cluster-lesson-99",
]


@pytest.mark.parametrize("arguments", NONSENSE)
def test_nonsense_is_one_sentence_before_anything_starts(tmp_path, arguments):
    words = [word.replace("_", " ") for word in arguments.split()]
    command = stubs(tmp_path, "")
    (tmp_path / ".ready-mpich").unlink()  # nothing is installed either
    done = told([*command, *words])
    assert done.returncode == 2 and done.stdout == "", done.stdout
    (sentence,) = done.stderr.splitlines()
    assert "wanted " in sentence and "; next: " in sentence
    assert words[-1] in sentence


@pytest.mark.parametrize("python", ["nonexistent", ""])
def test_a_python_that_does_not_exist_is_one_sentence(tmp_path, python):
    shutil.copy2(ROOT / "Makefile", tmp_path)
    done = told(["make", "-C", str(tmp_path), "setup", f"PYTHON={python}"])
    sentence = f"PYTHON={python}: no such program; next: PYTHON=python3"
    assert done.returncode == 2 and done.stderr.count(sentence) == 1
    assert len(done.stderr.splitlines()) == 1


def test_python_keeps_what_it_has_compiled(tmp_path):
    """Else each of the thousands of processes of the tests compiles the project again."""
    command = stubs(tmp_path, 'echo "kept: ${PYTHONDONTWRITEBYTECODE-yes}"')
    given = environment() | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*command, "lesson-00"], env=given, capture_output=True, text=True)
    assert "kept: yes" in done.stdout, done.stderr


def follows() -> bool:
    """Can a process here ask for a signal when its parent ends?"""
    if not shutil.which("setpriv"):
        return False
    return subprocess.run(["setpriv", "--pdeathsig", "TERM", "true"]).returncode == 0


@pytest.mark.skipif(not follows(), reason="no setpriv that sets the parent's death signal")
@pytest.mark.parametrize("name", ["TERM", "KILL", "INT", "HUP"])
@pytest.mark.parametrize(
    "target, cluster", [("demo", True), ("demo", False), ("lesson-00", False), ("test", False)]
)
def test_what_make_started_ends_with_make(tmp_path, target, cluster, name):
    """On a cluster, in shared memory, in a plain recipe, and in a recipe with a loop.

    INT and HUP go to make's whole process group, as from a terminal: make alone waits for its
    recipe, as the Makefile says.
    """
    body = f'case "$0 $*" in *"cluster check"*) exit {int(not cluster)};; '
    body += '*"cluster run"*|*"/mpiexec -n"*) exec sleep 60;; esac'
    mark = uuid.uuid4().hex
    job = subprocess.Popen(
        [*stubs(tmp_path, body), target],
        env=environment() | {MARK: mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=default_signals,
    )
    try:
        wait_for(lambda: "sleep 60" in map(command_line, processes(mark)), 20)
        send = os.killpg if name in ("INT", "HUP") else os.kill
        send(job.pid, getattr(signal, f"SIG{name}"))
        wait_for(lambda: not processes(mark), 2)
    finally:
        for pid in processes(mark):
            os.kill(pid, signal.SIGKILL)
        assert job.wait(10) != 0


def default_signals() -> None:
    """nohup, and a shell's &, start their programs with signals ignored, and make inherits that."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


CHECK = "python -m refgf.cluster check --mpiexec mpiexec"
ON_CLUSTER = "python -m refgf.cluster run {} --mpiexec mpiexec -- python {}"
FIRST, LESSON = "lessons/00_two_ranks.py", "lessons/03_lazy_allreduce.py"
LIKE = "--like mgwfbp-10gbe"  # what lesson 03 says


def test_the_demo_runs_on_emulated_nodes_like_the_lessons_cluster(tmp_path):
    assert demo(tmp_path, cluster=True) == [CHECK, ON_CLUSTER.format(LIKE, LESSON)]


def test_other_numbers_and_arguments_reach_it(tmp_path):
    printed = demo(tmp_path, "NODES=3", "RANKS=3", "ARGS=--quick", cluster=True)
    shape = f"{LIKE} --nodes 3 --ranks-per-node 1"
    assert printed == [CHECK, ON_CLUSTER.format(shape, f"{LESSON} --quick")]


@pytest.mark.parametrize(
    "like, shape",
    [
        ("v100-56gbit", "--like v100-56gbit"),
        ("this-machine", "--nodes 4 --ranks-per-node 2 --rate 1gbit"),
    ],
)
def test_another_cluster(tmp_path, like, shape):
    printed = demo(tmp_path, f"LIKE={like}", cluster=True)
    assert printed == [CHECK, ON_CLUSTER.format(shape, LESSON)]


def test_where_there_can_be_no_cluster_it_says_so_and_runs_in_shared_memory(tmp_path):
    printed = demo(tmp_path, cluster=False)
    assert printed == [
        CHECK,
        "no emulated cluster: 8 ranks in the shared memory of this machine",
        f"mpiexec -n 8 python {LESSON}",
    ]


@pytest.mark.parametrize("arguments", [["NODES=1"], ["RANKS=7"]])
def test_one_node_or_ranks_that_nodes_do_not_divide_are_the_plain_run(tmp_path, arguments):
    printed = demo(tmp_path, *arguments, cluster=True)
    ranks = dict(word.split("=") for word in arguments).get("RANKS", 8)
    said = f"no emulated cluster: {ranks} ranks in the shared memory of this machine"
    assert printed == [said, f"mpiexec -n {ranks} python {LESSON}"]


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """make with a copy of the Makefile in `folder`; instead of installing it prints pip's path.

    Nothing is asked of the doctor, who is not there.
    """
    for file in ("Makefile", "pyproject.toml"):
        shutil.copy2(ROOT / file, folder)  # with its time: what is ready stays ready
    kept = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    settings = [f"PYTHON={sys.executable}", "INSTALL=-c 'import pip; print(pip.__file__)'"]
    settings.append("TRY=-c 'print(\"tried\")'")
    command = ["make", "-C", str(folder), "--no-print-directory", *settings, *arguments]
    return subprocess.run(command, env=kept, capture_output=True, text=True, timeout=120)


ENVIRONMENTS = {"mpich": ".venv", "openmpi": ".venv-openmpi", "site": ".venv-site"}


@pytest.mark.parametrize(
    "target, venv",
    [("setup", ".venv"), (".venv-openmpi", ".venv-openmpi"), ("setup MPI=site", ".venv-site")],
)
def test_an_interrupted_setup_is_repaired(tmp_path, target, venv):
    """Ctrl-C while `python -m venv` installed pip: bin/python is there, pip is not."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / venv], check=True)
    repaired = make(tmp_path, *target.split())
    assert repaired.returncode == 0, repaired.stderr
    assert f"{venv} is not complete: repairing it" in repaired.stdout
    assert f"{tmp_path}/{venv}/lib" in repaired.stdout
    assert "tried" in repaired.stdout.splitlines()
    again = make(tmp_path, *target.split()).stdout
    assert "import pip" not in again  # ready: nothing to do
    assert ("tried" in again) == (venv == ".venv-site")  # whose modules may have changed


@pytest.mark.parametrize("mpi", ENVIRONMENTS)
def test_no_target_makes_make_warn(tmp_path, mpi):
    """In a fresh clone, and where another target has left its stamps in each environment."""
    text = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.+)$", text, re.MULTILINE)[1].split()
    targets += ["lesson-00", "cluster-lesson-07"]
    (tmp_path / "lessons").symlink_to(ROOT / "lessons")
    for stamps in ([], ["pages", "mutation", "site"]):
        for venv in ENVIRONMENTS.values():
            (tmp_path / venv).mkdir(exist_ok=True)
            for stamp in {*stamps} - ({"site"} if venv == ".venv-site" else set()):
                (tmp_path / venv / f".ready-{stamp}").touch()
        for target in targets:
            done = make(tmp_path, "-n", target, f"MPI={mpi}")
            assert (done.returncode, done.stderr) == (0, ""), f"{target} MPI={mpi}"
            wanted = ".venv-openmpi" if target == ".venv-openmpi" else ENVIRONMENTS[mpi]
            if target not in ("clean", "test-oldest", ".venv-cuda", ".venv-platforms"):
                assert f"{wanted}/bin/python -c 'import pip" in done.stdout, target


@pytest.mark.parametrize("mpi", ENVIRONMENTS)
def test_open_mpi_may_start_more_ranks_than_cores(tmp_path, mpi):
    """Versions 5 and 4; a site's MPI is found by way of the environment's own folder."""
    command = [*stubs(tmp_path, "env"), "lesson-00", f"MPI={mpi}"]
    (tmp_path / f".ready-{mpi}").touch()
    if mpi == "site":
        command = ["env", f"PATH={tmp_path}/bin:{os.environ['PATH']}", *command]
    said = told(command).stdout.splitlines()
    assert "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe" in said
    assert "OMPI_MCA_rmaps_base_oversubscribe=true" in said
    paths = [line for line in said if line.startswith(f"LD_LIBRARY_PATH={tmp_path}/lib")]
    assert bool(paths) == (mpi == "site")


def test_a_python_without_venv_is_told_and_nothing_is_deleted(tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "thesis.tex").touch()
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *venv*) exit 1;; esac\n')
    python.chmod(0o755)
    failed = make(tmp_path, "setup", f"PYTHON={python}")
    assert failed.returncode and "sudo apt-get install python3-venv" in failed.stdout
    assert (tmp_path / ".venv" / "thesis.tex").exists()


@pytest.mark.parametrize("code", [0, 1])
def test_the_gpu_is_checked_once_and_make_fails_with_the_check(tmp_path, code):
    done = told([*stubs(tmp_path, f"exit {code}"), "gpu-check", "ARGS=--only lesson"])
    lines = [line for line in done.stdout.splitlines() if line.startswith("python ")]
    assert lines == [f"python tests/gpu/run.py --mpiexec {tmp_path}/bin/mpiexec --only lesson"]
    assert (done.returncode != 0) == code


def test_a_clone_may_be_called_mpi(tmp_path):
    """pytest-mpi skips every test with that word in its keywords, its folders among them."""
    clone = tmp_path / "mpi"
    for name in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    (clone / "tests" / "test_nothing.py").write_text("def test_it():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "tests"]
    ended = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert ended.stdout.split()[:2] == [".", "[100%]"], ended.stdout + ended.stderr
