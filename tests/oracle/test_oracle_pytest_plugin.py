"""The pytest plugin, run as another project would run it."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.support.sizes import long_but

ROOT = Path(__file__).resolve().parents[2]
SUM_IN_RANK_ORDER = """
def ring_allreduce(xs, wire=None):
    return [sum(xs) for _ in xs]
"""
FEW = ("ring-p1-n5-float32-sensitive", "ring-p2-n7-float32-sensitive", "ring-p7-n17*")


@pytest.fixture
def project(tmp_path):
    """Runs pytest in a folder with mine.py: (exit code, what it printed)."""
    (tmp_path / "mine.py").write_text(SUM_IN_RANK_ORDER)
    (tmp_path / "bare.txt").write_text("ring-*\n")
    (tmp_path / "latin.txt").write_bytes(b"ring-*  caf\xe9\n")
    (tmp_path / "rong.txt").write_text("direct*  known\nrong-*  misspelt\n")

    def run(*arguments):
        plugin = ["-m", "pytest", "-p", "refgf.oracle.pytest_plugin", "-p", "no:cacheprovider"]
        found = subprocess.run(
            [sys.executable, *plugin, *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
        )
        return found.returncode, found.stdout + found.stderr

    run.folder = tmp_path
    return run


def test_a_case_is_a_test(project):
    (project.folder / "skips.txt").write_text("ring-p[27]*  another order  # known\n")
    code, said = project(
        "--refgf-implementation=mine.py",
        "--refgf-skips=skips.txt",
        "--refgf-report=report.html",
        "--junitxml=report.xml",
        "--refgf-only",
        *FEW,
    )
    assert code == 0, said
    assert "1 passed" in said and "failed" not in said
    assert "<td>pass</td>" in (project.folder / "report.html").read_text()
    suite = ElementTree.parse(project.folder / "report.xml").getroot()[0]
    assert {test.get("name").split("[")[0] for test in suite.iter("testcase")} == {"ring_allreduce"}


def test_what_is_skipped_is_not_run_though_it_would_pass(project):
    (project.folder / "skips.txt").write_text("ring*  known\ndirect*  not selected\n")
    options = "--refgf-implementation=mine.py", "--refgf-skips=skips.txt", "-rs"
    code, said = project(*options, "--refgf-only", *FEW)
    assert code == 0 and " passed" not in said and "known" in said, said


def test_the_reports_list_what_is_skipped_and_why(project):
    (project.folder / "skips.txt").write_text("ring-p2*  another <order>\n")
    given = "--refgf-implementation=mine.py", "--refgf-skips=skips.txt", "--junitxml=r.xml"
    for name in ("r.json", "r.html"):
        project(*given, f"--refgf-report={name}", "--refgf-only", *FEW)
    cases = json.loads((project.folder / "r.json").read_text())["cases"]
    (skipped,) = [found for found in cases if found["reason"]]
    assert (skipped["case"], skipped["status"], skipped["reason"]) == (
        FEW[1],
        "absent",
        "another <order>",
    )
    page = (project.folder / "r.html").read_text()
    assert f"<li>{FEW[1]}: skipped: another &lt;order&gt;</li>" in page
    assert "1 cases were not judged" in page
    (told,) = ElementTree.parse(project.folder / "r.xml").getroot().iter("skipped")
    assert told.get("message") == "another <order>"


def test_a_failure_says_what_verify_says(project):
    code, said = project(
        "--refgf-implementation=mine.py", "--refgf-report=r.json", "--refgf-only", *FEW
    )
    assert code == 1
    assert "looks like: summed in rank order (violates R2)" in said
    cases = json.loads((project.folder / "r.json").read_text())["cases"]
    assert [case["violated"] for case in cases if case["status"] == "fail"] == [["R2"]]


def test_without_an_implementation_it_does_nothing(project):
    (project.folder / "test_own.py").write_text("def test_own():\n    pass\n")
    code, said = project()
    assert code == 0 and "1 passed" in said


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--refgf-implementation=none.py"], "none.py"),
        (["--refgf-only", "R"], "--refgf-only: got no --refgf-implementation; wanted both"),
        (["--refgf-skips=bare.txt"], "--refgf-skips: got no --refgf-implementation"),
        (["--refgf-report=r.json"], "--refgf-report: got no --refgf-implementation"),
        (["--refgf-implementation=mine.py", "--refgf-only", "banana"], "got banana; it matches no"),
        (["--refgf-implementation=mine.py", "--refgf-report=report"], "got report; wanted a name"),
        (["--refgf-implementation=mine.py", "--refgf-report=no/r.html"], "got no/r.html; wanted"),
        (
            ["--refgf-implementation=mine.py", "--refgf-skips=bare.txt"],
            "wanted a pattern and a rea",
        ),
        (["--refgf-implementation=mine.py", "--refgf-skips=rong.txt"], "got rong-*; it matches no"),
        (["--refgf-implementation=mine.py", "--refgf-skips=no.txt"], "got no.txt; wanted"),
        (["--refgf-implementation=mine.py", "--refgf-skips=/dev/zero"], "not a regular file"),
        (["--refgf-implementation=mine.py", "--refgf-skips=latin.txt"], "wanted a text file"),
    ],
)
def test_wrong_options(project, arguments, said):
    code, printed = project(*arguments)
    assert code == 4 and said in printed and "Traceback" not in printed, printed


@pytest.mark.parametrize("folder", long_but([".", "lessons"], "."))
@pytest.mark.parametrize("typed", [[], ["tests/test_ops.py"]])
def test_in_the_checkout_its_own_tests_are_left_out_unless_typed(tmp_path, folder, typed):
    (tmp_path / "mine.py").write_text(SUM_IN_RANK_ORDER)
    options = [f"--refgf-implementation={tmp_path / 'mine.py'}", "--refgf-only", *FEW]
    paths = [str(ROOT / path) for path in typed]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *paths, "--collect-only", *options],
        cwd=ROOT / folder,
        capture_output=True,
        text=True,
    )
    own = [line for line in found.stdout.splitlines() if "test_ops" in line]
    assert found.returncode == 0 and "ring_allreduce[" in found.stdout, found.stdout
    assert bool(own) == bool(typed) and "tests/comm" not in found.stdout
