"""The wheel: what it holds, and what works where only NumPy is installed beside it."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.long


def run(*command, folder, code=0):
    """The output of a command outside of the checkout; its exit code must be `code`."""
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    config = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    found = subprocess.run(
        list(map(str, command)), cwd=folder, env=clean | config, capture_output=True, text=True
    )
    assert found.returncode == code, f"{command}: {found.returncode}\n{found.stdout}{found.stderr}"
    return found.stdout + found.stderr


PIP = (sys.executable, "-m", "pip", "--python")  # for another environment, which needs no pip
INSTALL = ("install", "--no-cache-dir", "--no-compile")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("build", reason="pip install -e '.[wheel]'")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, folder=folder)  # by way of sdist
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """(folder of the programs of an environment with the wheel, an empty folder)"""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv")
    programs = folder / "venv" / "bin"
    run(*PIP, programs / "python", *INSTALL, wheel, folder=folder)
    (folder / "empty").mkdir()
    return programs, folder / "empty"


def test_it_holds_every_lesson_and_figure(wheel):
    held = {name.removeprefix("refgf/shipped/") for name in zipfile.ZipFile(wheel).namelist()}
    tracked = subprocess.run(
        ["git", "ls-files", "refgf", "lessons", "figures"], cwd=ROOT, capture_output=True, text=True
    ).stdout.splitlines()
    assert "refgf/py.typed" in tracked and not set(tracked) - held  # type checkers read refgf
    assert not [name for name in held if "__pycache__" in name or name.startswith("tests")]


def test_the_sdist_holds_every_file_of_the_repository(wheel):
    """Else its tests fail: they read CHANGELOG.md, .ci and others."""
    with tarfile.open(next(wheel.parent.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    assert tracked.stdout and not set(tracked.stdout.splitlines()) - held


def test_it_passes_the_packagers_checks(wheel):
    sdist = next(wheel.parent.glob("*.tar.gz"))
    settings = ROOT / "pyproject.toml"
    for name, *arguments in (
        ("twine", "check", "--strict", wheel, sdist),
        ("validate-pyproject", settings),
        ("check-wheel-contents", "--config", settings, wheel),
        ("cffconvert", "--validate", "-i", ROOT / "CITATION.cff"),
    ):
        run(Path(sys.executable).with_name(name), *arguments, folder=wheel.parent)


def test_it_brings_numpy_only(installed):
    programs, folder = installed
    listed = run(*PIP, programs / "python", "list", "--format=freeze", folder=folder).splitlines()
    assert {line.split("==")[0] for line in listed if "==" in line} == {"numpy", "refgf"}


def test_it_judges_with_numpy_only(wheel, installed):
    programs, folder = installed
    refgf = programs / "refgf"
    said = run(
        refgf, "verify", "--python", "refgf.oracle.definitions", "--random", "0", folder=folder
    )
    assert "0 failed" in said
    (folder / "mine.py").write_text("def allreduce(xs):\n    return [sum(xs) for _ in xs]\n")
    said = run(refgf, "reveal", "--python", "mine.py", "--ranks", "4", folder=folder)
    assert "rank order" in said
    starter = next(programs.parent.glob("lib/*/site-packages/refgf/shipped/lessons/student/01.py"))
    assert "of 19 points" in run(refgf, "grade", "01", starter, folder=folder, code=1)
    run(refgf, "schedule", "--export", "ring", "--ranks", "3", folder=folder)
    assert ": right (3 ranks" in run(refgf, "schedule", "ring-p3.xml", folder=folder)
    settings = ("--model", "resnet50", "--machine", "mgwfbp-10gbe", "--ranks", "64")
    assert "efficiency" in run(refgf, "predict", "plan", *settings, folder=folder)
    assert "mpi4py is not installed" in run(refgf, "doctor", folder=folder, code=1)
    run(refgf, "course", "build", "01", "--for", "plain", "--output", "made", folder=folder)
    assert (folder / "made" / "starter").is_dir()
    said = run(refgf, "lesson", "03", "--threads", "2", folder=folder, code=2)
    assert f" -m pip install '{wheel}[lessons]'" in said


def test_importing_the_oracle_imports_no_other_room(installed):
    """So it is quick: beside NumPy nothing but the oracle, and the threads that it judges on."""
    programs, folder = installed
    code = "import refgf.oracle, refgf.oracle.judge.verify, sys; print(*sys.modules)"
    names = run(programs / "python", "-c", code, folder=folder).split()
    rooms = {name.split(".")[1] for name in names if name.startswith("refgf.")}
    assert rooms == {"oracle", "machine", "program"}
    around = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert {name for name in around if not name.startswith("_")} <= {
        "numpy",
        "refgf",
        "cython_runtime",
    }


def test_a_lesson_runs_from_an_empty_folder(wheel, installed):
    programs, folder = installed
    run(*PIP, programs / "python", *INSTALL, f"{wheel}[lessons,mpi]", folder=folder)
    run(programs / "refgf", "lesson", "03", "--threads", "8", "--quick", folder=folder)
    assert (folder / "results" / "quick" / "03_lazy_allreduce.png").exists()
