"""SIGINT during an import: one line, exit code 130, no traceback."""

import ast
import signal
from pathlib import Path

import pytest

from tests.support import jobs

REFGF = Path(__file__).resolve().parents[1] / "refgf"
LIKE_NUMPY = """
import os, signal, sys
try:
    if os.environ.get("PMI_RANK", "1") == "1":
        os.kill(os.getpid(), signal.SIGINT)
    import no_module_of_this_name
except BaseException:  # C code puts its own error in the place of a KeyboardInterrupt
    raise ImportError("could not import module datetime") from None
"""
FIRST = {"a command": "import refgf.interrupt\n", "a program": "import refgf.launch\n"}


def script(folder, text):
    (folder / "like_numpy.py").write_text(LIKE_NUMPY)
    (folder / "program.py").write_text(text)
    return [str(folder / "program.py")]


@pytest.mark.parametrize("first", FIRST)
def test_one_line_and_the_exit_code_of_a_signal(tmp_path, first):
    ended = jobs.run_job(0, script(tmp_path, FIRST[first] + "import like_numpy"), 30)
    assert ended.stderr == "KeyboardInterrupt: interrupted while modules are imported\n"
    assert ended.code == -signal.SIGINT  # 130 in a shell


@jobs.needs_mpiexec
@pytest.mark.parametrize(
    "first", [*FIRST.values(), "from mpi4py import MPI\n" + FIRST["a program"]]
)
def test_one_rank_ends_the_job(tmp_path, first):
    """Before refgf.launch is loaded, too, while the other ranks wait in MPI_Init."""
    like_numpy = "import os\nif os.environ.get('PMI_RANK') == '1': import like_numpy\n"
    wait = "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"
    ended = jobs.run_job(3, script(tmp_path, first + like_numpy + wait), 30)
    assert ended.code == 130 and not ended.timed_out and not ended.left, ended.text
    said = "rank 1 of 3" if "launch" in first else "KeyboardInterrupt: interrupted while modules"
    assert said in ended.stderr and "interrupted" in ended.stderr
    assert "Traceback" not in ended.stderr


@jobs.needs_mpiexec
def test_a_rank_that_has_left_and_waits_for_the_others():
    program = """
import refgf.launch, os, signal, threading, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
later = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
later.daemon = True  # the interpreter does not wait for it
later.start() if MPI.COMM_WORLD.rank == 1 else time.sleep(20)
"""
    ended = jobs.run_job(3, program, 15)
    assert ended.code == 130 and not ended.timed_out and not ended.left, ended.text
    assert "rank 1 of 3" in ended.stderr and "was interrupted" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_elsewhere_it_is_pythons_keyboardinterrupt(tmp_path):
    body = "import os, signal\ntry: os.kill(os.getpid(), signal.SIGINT)\n"
    body += "except KeyboardInterrupt: print('caught')"
    for first in FIRST.values():
        ended = jobs.run_job(0, script(tmp_path, first + body), 30)
        assert (ended.code, ended.stdout) == (0, "caught\n"), ended.text


def test_what_is_no_program_keeps_its_handler(tmp_path):
    asks = "import refgf.interrupt, signal\n"
    asks += "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert jobs.run_job(0, asks, 30).stdout == "True\n"
    ignores = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    asks = "import refgf.interrupt\nprint(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    assert jobs.run_job(0, script(tmp_path, ignores + asks), 30).stdout == "True\n"


@pytest.mark.parametrize("file", sorted(REFGF.glob("**/__main__.py")), ids=lambda f: f.parent.name)
def test_it_is_the_first_import_of_each_command(file):
    if file.parent.name == "predict":  # runs refgf.plan
        return
    body = ast.parse(file.read_text()).body
    first = next(one for one in body if isinstance(one, ast.Import | ast.ImportFrom))
    assert ast.unparse(first) == "import refgf.interrupt"
