"""The attack sees what is broken: programs with one fault each, and one without."""

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fate import family, fate_of, judge

from jobs import needs_mpiexec
from refgf.launch import leftovers

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
    import users

    monkeypatch.setattr(users, "JOB", HARMFUL)
    monkeypatch.setattr(users.random.Random, "choice", lambda rng, these: these[0])
    found = "; ".join(users.case(random.Random(1))[1](tmp_path))
    for wanted in ("things have changed", "refgf_cache_open is open to others", "listens on 0"):
        assert wanted in found


def test_a_lost_step_is_other_bits(tmp_path, monkeypatch):
    """The same damage, and a run that ends a step too early."""
    monkeypatch.syspath_prepend(HERE.parent / "machine")
    import damage

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
