"""The command `refgf`: its list, its lessons, and its words on wrong names and missing extras."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from refgf import __main__ as command
from refgf import advice

ROOT = Path(__file__).resolve().parent.parent
TEXTS = (".py", ".md", ".yml", ".yaml", ".ipynb", ".sbatch", ".toml", "Makefile", ".ci/run")


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


def test_commands_end_in_one_way():
    """One place turns errors and pipes into sentences and exit codes: refgf/program.py."""
    for file in (ROOT / "refgf").glob("**/__main__.py"):
        text = file.read_text()
        forwards = file.parent.name == "predict"  # to refgf.plan
        assert ("program.ended(" in text or forwards) and "BrokenPipeError" not in text, file


@pytest.mark.parametrize(
    "arguments",
    [["refgf", "--help"], ["refgf", "lesson"], ["refgf", "doctor"], ["refgf.doctor"]],
    ids=" ".join,
)
def test_a_reader_that_ends_early_is_no_failure(arguments):
    """As in `refgf doctor | head -3`: here the reader has ended before the first line."""
    reads, writes = os.pipe()
    os.close(reads)
    program = [sys.executable, "-m", *arguments]
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
    wanted = f"{advice.PYTHON} -m refgf.doctor" if library else advice.install("mpi", "mpich")
    assert wanted in " ".join(found.stderr.split())


def test_a_probe_of_a_cluster_without_mpi_ends_with_a_sentence(tmp_path):
    from refgf.cluster.__main__ import PROBE

    program = [sys.executable, "-c", no_mpi(tmp_path, True) + PROBE]
    found = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 2 and found.stderr.startswith("cluster probe: got no MPI (cannot")


@pytest.mark.parametrize(
    "environ, library, warned",
    [
        ({"OMPI_COMM_WORLD_RANK": "0"}, "mpich", True),
        ({"OMPI_COMM_WORLD_RANK": "1"}, "mpich", False),  # rank 0 says it for all
        ({"OMPI_COMM_WORLD_RANK": "0"}, "openmpi", False),
        ({"OMPI_COMM_WORLD_RANK": "0", "PMI_SIZE": "2"}, "mpich", False),
        ({"PMI_SIZE": "2"}, "mpich", False),
    ],
)
def test_mpich_under_open_mpis_launcher_is_named(environ, library, warned, monkeypatch, capsys):
    mpi4py = pytest.importorskip("mpi4py")
    abi = SimpleNamespace(_get_mpiabi=lambda: library)
    monkeypatch.setattr(mpi4py, "_mpiabi", abi, raising=False)
    monkeypatch.setattr(os, "environ", environ)
    advice._warn_of_two_mpis()
    assert ("-m refgf.doctor" in capsys.readouterr().err) == warned


def no_mpi(folder, library):
    """Python that takes mpi4py away, or (library) the MPI that it loads."""
    if not library:
        return "import sys; sys.modules['mpi4py'] = None\n"
    (folder / "mpi4py").mkdir()
    (folder / "mpi4py" / "__init__.py").touch()
    error = "cannot load MPI library\\nlibmpi.so: cannot open shared object file"
    (folder / "mpi4py" / "MPI.py").write_text(f'raise RuntimeError("{error}")\n')
    return f"import sys; sys.path.insert(0, {str(folder)!r})\n"


REQUIRES = [
    "numpy>=2",
    "mpi4py>=4.1; extra == 'mpi'",
    'mpich>=4.3; extra == "mpich"',
    "numba>=0.61; extra == 'fast'",
]
LIBRARIES = "'mpi4py>=4.1' 'mpich>=4.3'"
GIT = '{"url": "https://x.org/refgf.git", "vcs_info": {"vcs": "git", "commit_id": "ab"}}'


@pytest.mark.parametrize(
    "noted, wanted",
    [
        ('{"url": "file://FOLDER", "dir_info": {}}', "'FOLDER[mpi,mpich]'"),
        ('{"url": "file://FOLDER/a%20b.whl", "archive_info": {}}', "'FOLDER/a b.whl[mpi,mpich]'"),
        ('{"url": "file://FOLDER/gone.whl", "archive_info": {}}', LIBRARIES),
        ('{"url": "https://x.org/r.whl"}', "'refgf[mpi,mpich] @ https://x.org/r.whl'"),
        (GIT, "'refgf[mpi,mpich] @ git+https://x.org/refgf.git@ab'"),
        (None, LIBRARIES),
        ("[nonsense", LIBRARIES),
        ("{}", LIBRARIES),
    ],
)
def test_the_advice_fits_the_installation(noted, wanted, monkeypatch, tmp_path):
    """It never asks an index for refgf, where somebody else may own that name."""
    assert (ROOT / "pyproject.toml").exists() == advice.CHECKOUT
    monkeypatch.setattr(advice, "CHECKOUT", False)
    (tmp_path / "a b.whl").touch()
    noted = noted and noted.replace("FOLDER", str(tmp_path))
    copy = SimpleNamespace(read_text=lambda name: noted)
    monkeypatch.setattr(metadata, "distribution", lambda name: copy)
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRES)
    command = f"{advice.PYTHON} -m pip install {wanted.replace('FOLDER', str(tmp_path))}"
    assert advice.install("mpi", "mpich") == command


def test_the_advice_in_a_checkout_and_for_files_without_an_installation(monkeypatch, tmp_path):
    monkeypatch.setattr(advice, "CHECKOUT", True)
    assert advice.install("gpu") == f"{advice.PYTHON} -m pip install -e '{ROOT}[gpu]'"
    monkeypatch.setattr(advice, "CHECKOUT", False)
    monkeypatch.setattr(metadata.MetadataPathFinder, "find_distributions", lambda *_: iter(()))
    assert advice.install("gpu").endswith(" -m pip install 'PATH-OF-A-CHECKOUT[gpu]'")


def test_no_message_asks_an_index_for_refgf():
    """Nobody owns that name there: anyone who takes it gets code run."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    asked = re.compile(r"pip3? install [^\n]*?(?<![\w/.-])refgf\b(?!(\[[^]]*\])? @)")
    files = [ROOT / name for name in names.splitlines() if name.endswith(TEXTS)]
    assert not files or len(files) > 500
    found = {str(path) for path in files if asked.search(path.read_text())}
    known = ("tests/test_command.py", "CHANGELOG.md")
    assert found <= {str(ROOT / name) for name in known}
