"""The command `refgf`: its list, its lessons, and its words on wrong names and missing extras."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from refgf import __main__ as command
from refgf import advice

ROOT = Path(__file__).resolve().parent.parent


def refgf(*arguments, folder=ROOT, code=""):
    """The finished process of `refgf ARGUMENTS`. code: Python that runs before it."""
    program = f"{code}\nimport runpy; runpy.run_module('refgf', run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_it_lists_its_commands():
    listed = refgf().stdout
    for name in ("lesson", *command.ORACLE, *command.PROGRAMS):
        assert f"refgf {name} " in listed


def test_every_command_of_the_oracle_is_one_of_refgf():
    from refgf.oracle.__main__ import parser

    (commands,) = (action.choices for action in parser()._actions if action.choices)
    assert set(commands) == set(command.ORACLE)


@pytest.mark.parametrize("name", sorted(command.PROGRAMS))
def test_programs_exist(name):
    assert (ROOT / "refgf" / name / "__main__.py").exists()


def test_it_lists_the_lessons():
    listed = refgf("lesson").stdout
    assert str(ROOT / "lessons") in listed
    assert listed.count("\n  Lesson ") == len(list((ROOT / "lessons").glob("[0-9][0-9]_*.py")))


@pytest.mark.parametrize("arguments", [["--help"], ["lesson"], ["doctor"]])
def test_a_reader_that_ends_early_is_no_failure(arguments):
    """As in `refgf doctor | head -3`: here the reader has ended before the first line."""
    reads, writes = os.pipe()
    os.close(reads)
    program = [sys.executable, "-m", "refgf", *arguments]
    done = subprocess.run(program, cwd=ROOT, stdout=writes, stderr=subprocess.PIPE, text=True)
    os.close(writes)
    assert done.returncode == 2 and done.stderr == ""


def test_it_tells_its_version():
    assert refgf("--version").stdout == f"refgf {metadata.version('refgf')}\n"


def test_a_command_gets_its_arguments():
    found = refgf("explain", "--help")
    assert found.returncode == 0 and "in.x (p, n)" in found.stdout


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["banana"], "got banana; wanted one of lesson, verify"),
        (["lesson", "99"], "lesson: got 99; wanted one of 00 01"),
    ],
)
def test_wrong_names(arguments, said):
    found = refgf(*arguments)
    assert found.returncode == 2 and said in found.stderr and "Traceback" not in found.stderr


def test_a_missing_library_is_named_with_its_extra():
    found = refgf("lesson", "03", "--threads", "2", code="import sys; sys.modules['PIL'] = None")
    assert found.returncode == 2
    assert found.stderr == f"refgf lesson: PIL is missing; next: {advice.install('lessons')}\n"


@pytest.mark.parametrize("library", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [("reveal", "--mpi"), ("lesson", "01", "--quick"), ("predict", "measure", "--out", "m.json")],
)
def test_without_mpi_it_says_what_to_install(arguments, library, tmp_path):
    """library: mpi4py is there, as its wheels are, and loads no MPI."""
    found = refgf(*arguments, code=no_mpi(tmp_path, library))
    assert found.returncode == 2 and "Traceback" not in found.stderr, found.stderr
    assert advice.install("mpi", "mpich") in " ".join(found.stderr.split())


def test_a_probe_of_a_cluster_without_mpi_ends_with_a_sentence(tmp_path):
    from refgf.cluster.__main__ import PROBE

    program = [sys.executable, "-c", no_mpi(tmp_path, True) + PROBE]
    found = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 2 and found.stderr.startswith("cluster probe: got no MPI (cannot")


def no_mpi(folder, library):
    """Python that takes mpi4py away, or (library) the MPI that it loads."""
    if not library:
        return "import sys; sys.modules['mpi4py'] = None\n"
    (folder / "mpi4py").mkdir()
    (folder / "mpi4py" / "__init__.py").touch()
    error = "cannot load MPI library\\nlibmpi.so: cannot open shared object file"
    (folder / "mpi4py" / "MPI.py").write_text(f'raise RuntimeError("{error}")\n')
    return f"import sys; sys.path.insert(0, {str(folder)!r})\n"


@pytest.mark.parametrize(
    ("checkout", "command"),
    [(True, "pip install -e '.[mpi,lessons]'"), (False, "pip install 'refgf[mpi,lessons]'")],
)
def test_the_advice_fits_the_installation(checkout, command, monkeypatch):
    assert (ROOT / "pyproject.toml").exists() == advice.CHECKOUT
    monkeypatch.setattr(advice, "CHECKOUT", checkout)
    assert advice.install("mpi", "lessons") == command
