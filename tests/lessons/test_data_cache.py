"""Lesson 14 removes its folders and shared memory: at the end, on Ctrl-C, and after a kill."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.cache import scratch_folder
from refgf.launch import leftovers
from tests.support.jobs import clean_environment, mpiexec, needs_mpiexec, run_job

LESSON = Path(__file__).resolve().parents[2] / "lessons" / "14_data_cache.py"
GONE_IN_S = 5.0
KILLED = """
import refgf.launch, os, runpy, signal, sys, time
sys.argv = [{lesson!r}, "--quick", "--output", {folder!r}]
sys.path.insert(0, os.path.dirname({lesson!r}))
from lab.cache import levels
made = []
def dies(*arguments, make=levels.make):
    made.append(make(*arguments))
    if len(made) == 2 and refgf.launch.job.rank == {rank}:
        print("killed at", time.time(), "s", flush=True)
        time.sleep(0.2)  # time for the launcher to read it
        os.kill(os.getpid(), signal.SIGKILL)
    return made[-1]
levels.make = dies
runpy.run_path({lesson!r}, run_name="__main__")
"""


def left_behind(folder):
    """Folders of the lesson, and shared memory of this project, of any age."""
    shared = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return [
        name
        for name in [*os.listdir(folder), *shared]
        if name.startswith((scratch_folder.PREFIX, "refgf_cache_"))
    ]


def becomes_empty(folder, patience_s=5.0):
    end = time.monotonic() + patience_s
    while left_behind(folder) and time.monotonic() < end:
        time.sleep(0.05)
    return not left_behind(folder)


def start(ranks, folder):
    env = clean_environment({"TMPDIR": folder})
    command = [
        mpiexec(),
        "-n",
        str(ranks),
        sys.executable,
        str(LESSON),
        "--quick",
        "-v",
        "--output",
        str(folder / "out"),
    ]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, env=env, text=True, **pipes)


@needs_mpiexec
@pytest.mark.long
def test_a_killed_rank(tmp_path):
    """All ranks end within 5 seconds, and nothing is left behind."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    program = KILLED.format(lesson=str(LESSON), folder=str(tmp_path), rank=2)
    began_s = time.time()
    job = run_job(3, program, timeout=90, env={"TMPDIR": str(folder)})
    assert job.code != 0 and not job.timed_out and job.left == [], job.text
    killed_s = float(re.search(r"killed at ([\d.]+) s", job.text)[1])
    assert began_s + job.seconds - killed_s < GONE_IN_S
    assert becomes_empty(folder), left_behind(folder)


@needs_mpiexec
@pytest.mark.long
def test_interrupted(tmp_path):
    """Ctrl-C: mpiexec and its ranks receive SIGINT, as from a terminal."""
    job = start(3, tmp_path)
    for line in job.stdout:
        if "== The oracle" in line:
            break
    assert [entry for entry in os.listdir(tmp_path) if entry.startswith(scratch_folder.PREFIX)]
    job.send_signal(signal.SIGINT)
    text = job.communicate(timeout=20)[0]
    assert job.returncode != 0, text
    if not becomes_empty(tmp_path):  # ended in the moment in which its shared memory has a name
        time.sleep(leftovers.MIN_AGE_S)
        subprocess.run([sys.executable, "-c", "import refgf.launch"], check=True)
    assert left_behind(tmp_path) == [], text


def test_a_folder_is_removed_at_the_end_and_after_an_exception(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch_folder.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), scratch_folder.folder() as path:
        assert os.path.isdir(path)
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_a_folder_that_another_process_still_writes_into_is_removed(tmp_path, monkeypatch):
    """A rank that Ctrl-C has not ended yet writes for 0.3 s after the owner's end."""
    monkeypatch.setattr(scratch_folder.tempfile, "tempdir", str(tmp_path))
    writes = (
        "import sys, time; from pathlib import Path; end = time.monotonic() + 0.6\n"
        "for i in range(10**9):\n"
        "    if time.monotonic() > end: break\n"
        "    try: Path(sys.argv[1], str(i)).touch()\n"
        "    except FileNotFoundError: break\n"
    )
    with scratch_folder.folder() as path:
        writer = subprocess.Popen([sys.executable, "-c", writes, path])
        time.sleep(0.3)
    writer.wait()
    assert os.listdir(tmp_path) == []


def test_abandoned_folders_are_removed_and_used_ones_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch_folder.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch_folder, "YOUNG_S", -1)
    abandoned = tmp_path / f"{scratch_folder.PREFIX}abandoned"
    abandoned.mkdir()
    (abandoned / "owner").touch()
    (tmp_path / "refgf-other").mkdir()
    with scratch_folder.folder() as first, scratch_folder.folder() as second:
        assert sorted(os.listdir(tmp_path)) == sorted(
            [os.path.basename(first), os.path.basename(second), "refgf-other"]
        )
    assert os.listdir(tmp_path) == ["refgf-other"]
