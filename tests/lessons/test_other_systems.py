"""Lessons on threads where Linux's own is missing, a stand-in for macOS and Windows.

Hidden are fcntl, termios, resource, /proc, /dev/shm, os.sched_getaffinity and network namespaces
(the programs ip and unshare).
"""

import json
import sys
from pathlib import Path

import pytest

from tests.support.jobs import run_job

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))
HIDDEN = """
import os, pathlib, runpy, sys
def hide(event, arguments):
    if event in ("open", "os.listdir", "os.scandir", "os.remove") and arguments:
        path = arguments[0]
        if isinstance(path, (str, bytes)) and os.fsdecode(path).startswith(("/proc", "/dev/shm")):
            raise FileNotFoundError(2, "hidden", path)
    if event == "subprocess.Popen" and os.path.basename(str(arguments[0])) in ("ip", "unshare"):
        raise FileNotFoundError(2, "hidden", arguments[0])
    if event == "import" and arguments[0] in ("fcntl", "termios", "resource"):
        raise ModuleNotFoundError(f"No module named {{arguments[0]!r}}", name=arguments[0])
for name in ("fcntl", "termios", "resource"):
    sys.modules.pop(name, None)
del os.sched_getaffinity
isdir, exists = os.path.isdir, os.path.exists
os.path.isdir = lambda path: not str(path).startswith(("/proc", "/dev/shm")) and isdir(path)
os.path.exists = lambda path: not str(path).startswith(("/proc", "/dev/shm")) and exists(path)
sys.addaudithook(hide)
sys.argv = [{lesson!r}, "--quick", "--threads", "3", "--output", {folder!r}]
sys.path.insert(0, os.path.dirname({lesson!r}))
runpy.run_path({lesson!r}, run_name="__main__")
"""
IN_SHORT = ("03",)
ASKING = ("01", "14", "15")  # of links, memory, locks and processors


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(
            file, id=file.stem, marks=[] if file.stem[:2] in IN_SHORT else pytest.mark.long
        )
        for file in LESSONS
        if file.stem[:2] in IN_SHORT + ASKING
    ],
)
def test_a_lesson_without_linux(lesson, tmp_path):
    job = run_job(0, HIDDEN.format(lesson=str(lesson), folder=str(tmp_path)), timeout=240)
    assert job.code == 0, job.stdout[-2000:] + job.stderr[-3000:]
    result = json.loads((tmp_path / f"{lesson.stem}.json").read_text())
    assert result["ranks"] == 3 and "threads" in result["place"] or "WAIT" in result["place"]


def test_what_is_hidden_is_missing(tmp_path):
    """The stand-in hides what it says: code that needs fcntl fails in it."""
    lesson = tmp_path / "probe.py"
    lesson.write_text("import fcntl\n")
    job = run_job(0, HIDDEN.format(lesson=str(lesson), folder=str(tmp_path)), timeout=60)
    assert job.code != 0 and "No module named 'fcntl'" in job.stderr


if sys.platform != "linux":
    pytest.skip("this is such a system itself", allow_module_level=True)
