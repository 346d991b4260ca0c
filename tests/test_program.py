"""Programs of ours say what they need of Python; other people's programs are left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {  # words after `python`; the files are found in the checkout
    "a lesson": ["lessons/01_ring_allreduce.py", "--help"],
    "a solution": ["lessons/solutions/12_topk.py"],
    "a command": ["-m", "refgf.oracle", "schedule", "a.xml"],
    "plan": ["-m", "refgf.predict", "plan", "--help"],
    "doctor": ["-m", "refgf.doctor", "--help"],
}


def started(words: list[str], **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("name", OURS)
def test_no_docstrings_is_one_sentence(name):
    done = started(OURS[name], PYTHONOPTIMIZE="2")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("refgf: got a Python without docstrings") and (
        done.stderr.count("\n") == 1 and "; next: unset PYTHONOPTIMIZE" in done.stderr
    )


def test_other_programs_run_without_docstrings(tmp_path):
    (tmp_path / "mine.py").write_text("import refgf.papers.mstopk.topk, refgf.oracle.definitions")
    for words in ([str(tmp_path / "mine.py")], ["-c", "import refgf.comm.ring"]):
        assert started(words, PYTHONOPTIMIZE="2", PYTHONPATH=str(ROOT)).returncode == 0


def test_a_lesson_finds_its_own_folder_under_a_safe_path(tmp_path):
    """And nothing of the folder where the user stands."""
    words = [str(ROOT / "lessons/01_ring_allreduce.py"), "--help"]
    (tmp_path / "kit.py").write_text("raise SystemExit('shadowed')")
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "Lesson 01" in done.stdout, done.stderr
