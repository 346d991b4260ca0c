"""The attack sees what is broken: programs with one fault each, and one without."""

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from refgf import arguments
from refgf.launch import leftovers
from refgf.machine import threads
from tests.attack.fate import family, fate_of, judge
from tests.support.jobs import needs_mpiexec

HERE = Path(__file__).parent
LEAVES_A_PROCESS = """
import subprocess
subprocess.Popen(["sleep", "60"], start_new_session=True)
"""
REFUSES = "import sys; sys.exit('x: got 1; wanted 2; next: x=2')"
PROGRAMS = {
    "": REFUSES,
    "still ran": "import time; time.sleep(60)",
    "left behind: sleep": LEAVES_A_PROCESS + REFUSES,
    "exit code 0 although something was lost": "print('all is well')",
    "a bare traceback": "print(open('/nowhere'))",
    "a raw error: Message truncated": REFUSES.replace("x=2", "x=2: Message truncated"),
    "no sentence that says what to try": "import sys; sys.exit('failed')",
}


def attacked(source, folder):
    return judge(fate_of([sys.executable, "-c", source], folder, limit_s=1.5))


@pytest.mark.parametrize("wanted", PROGRAMS)
def test_a_fault_is_seen_and_nothing_else(tmp_path, wanted):
    before = set(family())
    found = "; ".join(attacked(PROGRAMS[wanted], tmp_path))
    assert wanted in found and bool(wanted) == bool(found), found
    assert set(family()) <= before  # nothing survives


def test_a_fork_is_judged_like_a_program(tmp_path):
    def lost():
        raise KeyError("mine")

    assert "KeyError: 'mine'" in "; ".join(judge(fate_of(lost, tmp_path)))
    assert judge(fate_of(lambda: sys.exit("next: try another"), tmp_path)) == []
    assert judge(fate_of(lambda: time.sleep(9), tmp_path, limit_s=0.2)) != []
    assert judge(fate_of(lambda: sys.exit("got \udcff; next: try another"), tmp_path)) == []


def test_the_limit_counts_from_the_cause(tmp_path):
    def strike(pid, seconds):
        return seconds > 0.5 and not os.kill(pid, signal.SIGKILL)

    fate = fate_of(["/bin/sleep", "60"], tmp_path, strike=strike, limit_s=2)
    assert fate.code == -signal.SIGKILL and fate.seconds < 0.5


HARMFUL = """
import os, socket, time
from pathlib import Path
server = socket.create_server(("", 0))
mine = Path("/dev/shm/refgf_cache_open")
mine.touch()
mine.chmod(0o644)
for path in Path("/dev/shm").glob("refgf_progress_*"):
    path.write_text("changed") if path.stat().st_uid == 65534 else None
time.sleep(1)
mine.unlink(missing_ok=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
@needs_mpiexec
def test_harm_between_users_is_seen(tmp_path, monkeypatch):
    from tests.attack import users

    monkeypatch.setattr(users, "JOB", HARMFUL)
    monkeypatch.setattr(users.random.Random, "choice", lambda rng, these: these[0])
    found = "; ".join(users.case(random.Random(1))[1](tmp_path))
    for wanted in ("things have changed", "refgf_cache_open is open to others", "listens on 0"):
        assert wanted in found


def test_a_lost_step_is_other_bits(tmp_path, monkeypatch):
    """The same damage, and a run that ends a step too early."""
    monkeypatch.syspath_prepend(HERE.parent / "machine")
    from tests.attack import damage

    honest = damage.case(random.Random("1"))[1]
    assert honest(tmp_path) == []
    monkeypatch.setattr(damage, "LAST", damage.LAST - 1)
    (tmp_path / "kept").rename(tmp_path / "before")
    assert "other bits without a word" in "; ".join(honest(tmp_path))


def test_the_command_repeats_a_case_and_says_so():
    command = [sys.executable, str(HERE / "run.py"), "--class", "damage", "--seed", "5"]
    run = subprocess.run([*command, "--number", "3"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and "held: " in run.stdout and "seed 5" in run.stdout, run.stderr


def test_a_file_that_no_start_removes_is_seen(monkeypatch):
    monkeypatch.syspath_prepend(HERE)  # and all that run.py changes is undone
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    spec = importlib.util.spec_from_file_location("attack_run", Path(HERE, "run.py"))
    run = importlib.util.module_from_spec(spec)  # tests/speed has a run.py, too
    spec.loader.exec_module(run)
    name = f"mpich_shm_left_{os.getpid()}"
    monkeypatch.setattr(run.subprocess, "run", lambda *_, **__: None)
    path, since = Path(leftovers.FOLDER, name), time.time() - 1
    try:
        path.touch()
        assert str(path) in run.left_files(since)
    finally:
        path.unlink(missing_ok=True)  # another job may have started


def test_every_class_of_the_papers_can_be_attacked(tmp_path):
    """With right arguments each is made; a class that is missing needs them in library.right."""
    from tests.attack import library

    found = library.classes()
    assert {"jia.lars.LARS", "mstopk.topk.TopK", "datacache.Cache"} <= found.keys()
    for name, kind in found.items():
        folder = tmp_path / name
        folder.mkdir()

        def body(comm, name=name, kind=kind, folder=folder):
            library.use(kind(**library.right(name, comm, folder)))

        threads.run(2, body)


@pytest.mark.parametrize("fault", ["silent", "raw"])
def test_a_wrong_argument_that_is_taken_is_seen(tmp_path, monkeypatch, fault):
    from tests.attack import library

    class Believes:
        def __init__(self, n: int) -> None:
            if fault == "raw":
                self.n = n.nothing

    monkeypatch.setattr(library, "classes", lambda: {"Believes": Believes})
    monkeypatch.setattr(library.random.Random, "choice", lambda rng, these: these[0])
    found = "; ".join(library.case(random.Random(1))[1](tmp_path))
    assert ("although the value is wrong" if fault == "silent" else "a bare traceback") in found


@pytest.mark.parametrize("scalar", [np.float32(1), np.array(3)])
def test_a_numpy_scalar_is_no_sequence(scalar):
    assert arguments.wrong(scalar, list[int]) == "a sequence"


def test_marks_that_are_not_earned_are_seen(tmp_path, monkeypatch):
    from tests.attack import students

    monkeypatch.setattr(students, "EARNED", {"right": 15})
    monkeypatch.setattr(students.random.Random, "choice", lambda rng, these: these[0])
    monkeypatch.setattr(students, "FOLDER", tmp_path / "files")
    (tmp_path / "files").mkdir()
    answers = HERE.parent / "oracle/foreign/hostile/right.txt"
    (tmp_path / "files" / "right.txt").write_text(answers.read_text())
    found = "; ".join(students.case(random.Random(1))[1](tmp_path))
    assert "16 of 16 points, which it has not earned" in found


@pytest.mark.parametrize("place", ["beside its own modules", "in a path for a shell"])
def test_what_runs_from_the_folder_is_seen(tmp_path, monkeypatch, place):
    from tests.attack import places

    if place.startswith("beside"):
        monkeypatch.setattr(places, "COMMANDS", {"--version": False})
        trusting = "import sys; sys.path.insert(0, ''); import types2"
        monkeypatch.setattr(places, "CONSOLE", [sys.executable, "-c", trusting])
        monkeypatch.setattr(places, "ALWAYS", ["types2"])
        found = places.shadowed(random.Random(2))[1](tmp_path)
        assert places.RAN in "; ".join(found)
    else:
        monkeypatch.setattr(places, "NAMES", ["`touch pwned`"])
        monkeypatch.setattr(places, "PROGRAMS", {"sh": "/bin/sh -c echo${{IFS}}{here}"})
        found = places.in_an_odd_path(random.Random(1))[1](tmp_path)
        assert "a shell ran what stands in the path" in found
