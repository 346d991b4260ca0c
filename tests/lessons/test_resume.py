"""Lesson 07 with checkpoints: a resumed run ends with the bits of an uninterrupted one.

Also what is refused: checkpoints of another run, and --resume without a folder.
"""

import json
from pathlib import Path

import pytest

from tests.support.jobs import needs_mpiexec, run_job

LESSON = Path(__file__).resolve().parents[2] / "lessons" / "07_gradientflow.py"
SMALL = ["--quick", "--width", "0.03125", "--epochs", "3"]
KILLED = """
import refgf.launch, os, pathlib, runpy, signal, sys, threading, time
arguments = {arguments!r}

def kill():
    while not list(pathlib.Path(arguments[arguments.index("--checkpoints") + 1]).glob({moment!r})):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)

if refgf.launch.job.rank == 1:
    threading.Thread(target=kill, daemon=True).start()
sys.argv = arguments
sys.path.insert(0, os.path.dirname(arguments[0]))
runpy.run_path(arguments[0], run_name="__main__")
"""


def arguments(folder, *more):
    return [str(LESSON), *SMALL, "--output", str(folder), *map(str, more)]


def learned(folder):
    """{name: (hash of the parameters, loss and accuracy of each epoch)}"""
    learning = json.loads((folder / f"{LESSON.stem}.json").read_text())["learning"]
    found = {}
    for name, (rows,) in learning["runs"].items():
        epochs = [(row["loss"], row["accuracy"]) for row in rows]
        found[name] = learning["parameters"][name], epochs
    return found


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    job = run_job(3, arguments(folder, "--checkpoints", folder / "kept"), timeout=120)
    assert job.code == 0, job.text
    return folder


@needs_mpiexec
@pytest.mark.long
def test_killed_and_resumed(tmp_path, uninterrupted):
    """While a checkpoint is being written. At other moments: tests/machine/test_kill.py."""
    kept = "--checkpoints", tmp_path / "kept"
    killed = run_job(
        3,
        KILLED.format(arguments=arguments(tmp_path, *kept), moment="CSC/*/shared.safetensors"),
        timeout=120,
    )
    assert killed.code != 0 and not killed.left and not killed.timed_out, killed.text
    again = run_job(3, arguments(tmp_path, *kept, "--resume"), timeout=120)
    assert again.code == 0 and "resumed from" in again.text, again.text
    assert learned(tmp_path) == learned(uninterrupted)


@needs_mpiexec
@pytest.mark.long
@pytest.mark.parametrize(
    "ranks, more, message",
    [
        (2, ["--resume"], "is of another run: got ranks = 3, wanted 2"),
        (3, ["--resume", "--epochs", "2"], "--resume: got a run of {'epochs': 3"),
    ],
)
def test_the_checkpoints_of_another_run_are_refused(uninterrupted, ranks, more, message):
    """Each other difference: tests/machine/test_checkpoint.py."""
    run = arguments(uninterrupted, "--checkpoints", uninterrupted / "kept", *more)
    job = run_job(ranks, run, timeout=120)
    assert job.code == 2 and message in job.stderr and "Traceback" not in job.text, job.text


@needs_mpiexec
def test_resuming_without_a_folder_is_refused(tmp_path):
    job = run_job(2, arguments(tmp_path, "--resume"), timeout=120)
    assert job.code == 2 and "--resume: got no folder" in job.stderr, job.text
