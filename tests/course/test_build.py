"""Builds for each platform, unpacked outside the project: format, marks, leaks, attacks.

By the programs of Gradescope, Otter and PrairieLearn themselves: test_platforms.py.
"""

import csv
import dataclasses
import doctest
import functools
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest import mock

import pytest

from refgf.course import build as build_module
from refgf.course import lesson as lesson_module
from refgf.course.__main__ import main
from refgf.course.autograder.submission import HIDDEN, marks_of_file
from refgf.course.build import build, starter
from refgf.course.lesson import lesson_files
from refgf.course.platforms import PLATFORMS
from refgf.oracle.grade import marking
from refgf.oracle.grade.report import totals
from tests.support.sizes import long_but

SEED = 918273645
LESSON = lesson_files("03")  # no ranks, which take long to start: they are in test_platforms.py
IDENTITY = {
    "CLASSROOM": "cs",
    "ASSIGNMENT": "ring",
    "ASSIGNMENT_TYPE": "individual",
    "OWNER": "alice",
    "SUBMISSION_TAG": "submit/2026-06-01T14-32-05Z-a1b2c3d",
    "COMMIT_URL": "https://example.org/commit/1",
    "RELEASE_URL": "https://example.org/releases/1",
}
# Runs a script as python would, then says which files of refgf it has loaded.
TRACED = """
import json, runpy, sys
sys.argv, sys.path[:0] = sys.argv[1:], {paths}
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end
modules = [m for name, m in sys.modules.items() if name.split(".")[0] == "refgf"]
print(json.dumps([m.__file__ for m in modules]))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """{platform: folder of a build}. The teacher's marks, which are all alike, are made once.

    A build takes no network.
    """
    base = tmp_path_factory.mktemp("built")
    refused = OSError("no network here")
    with (
        mock.patch.object(build_module, "marks_of_file", functools.cache(marks_of_file)),
        mock.patch("socket.socket.connect", side_effect=refused),
        mock.patch("socket.getaddrinfo", side_effect=refused),
    ):
        return {name: build("03", name, SEED, str(base / name)) for name in PLATFORMS}


def unpacked(folder, target):
    archive = folder / "autograder" / "autograder.zip"
    if archive.exists():
        with zipfile.ZipFile(archive) as file:
            file.extractall(target)
    else:
        subprocess.run(["cp", "-r", folder / "autograder", target], check=True)
    return target


def marked(platform, folder, place, student, name="03.py"):
    """The platform's results for a file, by the unpacked autograder alone, and what it loaded."""
    source, submission = unpacked(folder, place / "source"), place / "submission"
    submission.mkdir(exist_ok=True)
    (submission / name).write_text(student)
    script, arguments = source / "grade.py", [place]
    result = place / "results" / "results.json"
    if platform == "classroom50":
        script, arguments, result = source / "autograder.py", [], submission / "result.json"
    elif platform == "plain":
        arguments = [submission, "--output", place / "marks"]
        result = place / "marks" / "marks.csv"
    environment = {"PATH": os.defpath, "PYTHONPATH": str(source), **IDENTITY}
    ended = subprocess.run(
        [sys.executable, "-c", TRACED.format(paths=[str(source)]), script, *arguments],
        capture_output=True,
        text=True,
        cwd=submission,
        env=environment,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    return result, json.loads(ended.stdout.splitlines()[-1])


def points(platform, result):
    """[(score, of)] of the tests of a result, after a check of its format."""
    text = result.read_text()
    if platform == "plain":
        header, row = csv.reader(io.StringIO(text))
        assert header[:3] == ["student", "points", "of"] and row[0] == "03"
        return [(int(row[1]), int(row[2]))]
    data = json.loads(text)
    if platform == "gradescope":
        require_gradescope(data)
    elif platform == "classroom50":
        require_classroom50(data)
        return [(test["score"], test["max-score"]) for test in data["tests"]]
    return [(test["score"], test["max_score"]) for test in data["tests"]]


def require_gradescope(data):
    """https://gradescope-autograders.readthedocs.io/en/latest/specs/#output-format"""
    seen = ("hidden", "after_due_date", "after_published", "visible")
    formats = ("text", "html", "simple_format", "md", "ansi")
    assert set(data) <= {"output", "output_format", "visibility", "execution_time", "tests"}
    assert isinstance(data["execution_time"], int) and data["visibility"] in seen
    assert isinstance(data["output"], str) and data["output_format"] in formats
    numbers = [test["number"] for test in data["tests"]]
    assert len(set(numbers)) == len(numbers) and all(re.fullmatch(r"\d\.\d", n) for n in numbers)
    for test in data["tests"]:
        assert 0 <= test["score"] <= test["max_score"] and test["visibility"] in seen
        assert test["status"] == ("passed" if test["score"] == test["max_score"] else "failed")
        assert all(isinstance(test[key], str) and test[key] for key in ("name", "output"))


def require_classroom50(data):
    """https://github.com/foundation50/classroom50/blob/main/schemas/result-v1.schema.json"""
    texts = {
        "schema": "classroom50/result/v1",
        "classroom": "cs",
        "assignment": "ring",
        "assignment_type": "individual|group",
        "owner": "alice",
        "submission": "submit/.+",
        "commit": ".+",
        "release": ".+",
        "review": ".+",
        "datetime": r"\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ",
    }
    assert set(data) == {*texts, "score", "max-score", "tests"}  # no additional properties
    assert all(re.fullmatch(pattern, data[key]) for key, pattern in texts.items())
    for test in [data, *data["tests"]]:
        assert type(test["score"]) is type(test["max-score"]) is int
        assert 0 <= test["score"] <= test["max-score"]
    for test in data["tests"]:
        assert isinstance(test["test-name"], str) and test["test-name"]
        assert test["passed"] is (test["score"] == test["max-score"])
    for key in ("score", "max-score"):
        assert data[key] == sum(test[key] for test in data["tests"])


@pytest.mark.parametrize("platform", long_but(["plain", "gradescope", "classroom50"], "plain"))
def test_marks_outside_the_project(built, tmp_path, platform):
    """Answers get all points, the starter few, by the refgf of the bundle."""
    found = {}
    for name in ("answers", "starter"):
        (tmp_path / name).mkdir()
        text = getattr(LESSON, name).read_text()
        result, loaded = marked(platform, built[platform], tmp_path / name, text)
        assert loaded and all(Path(file).is_relative_to(tmp_path / name) for file in loaded)
        found[name] = points(platform, result)
    score, of = (sum(column) for column in zip(*found["answers"]))
    assert score == of == LESSON.points
    assert sum(score for score, _ in found["starter"]) < 0.3 * of and found["starter"][0][0] > 0


@pytest.mark.long
def test_the_bundle_is_the_smallest(built, tmp_path):
    """It has exactly the files of refgf that marking loads, in the judge or other processes."""
    marked_file = LESSON.answers.read_text()
    _, loaded = marked("gradescope", built["gradescope"], tmp_path, marked_file)
    has = {str(path) for path in (tmp_path / "source" / "refgf").rglob("*.py")}
    elsewhere = {f"source/refgf/oracle/foreign/{n}.py" for n in ("template", "wall", "kernel")}
    assert has == set(loaded) | {str(tmp_path / name) for name in elsewhere}


@pytest.mark.long
def test_gradescope_runs_the_script_of_the_zip(built, tmp_path):
    source = unpacked(built["gradescope"], tmp_path / "source")
    (tmp_path / "submission").mkdir()
    (tmp_path / "submission" / "ring.py").write_bytes(LESSON.answers.read_bytes())
    path = f"{Path(sys.executable).parent}:{os.defpath}"
    environment = {"PATH": path, "AUTOGRADER_ROOT": str(tmp_path)}
    subprocess.run(
        ["bash", source / "run_autograder"], check=True, env=environment, cwd="/", timeout=100
    )
    found = points("gradescope", tmp_path / "results" / "results.json")
    assert sum(score for score, _ in found) == LESSON.points
    with zipfile.ZipFile(built["gradescope"] / "autograder" / "autograder.zip") as archive:
        for name in ("setup.sh", "run_autograder"):
            assert archive.getinfo(name).external_attr >> 16 & 0o111
            subprocess.run(["bash", "-n", source / name], check=True)


def test_otters_tests_have_ok_format(built, tmp_path):
    """https://otter-grader.readthedocs.io/en/latest/test_files/python_format.html#ok-format"""
    source = unpacked(built["otter"], tmp_path)
    files = {"setup.sh", "run_autograder", "run_otter.py", "environment.yml", "otter_config.json"}
    assert files <= {path.name for path in source.iterdir()}
    of = 0
    for file in sorted((source / "tests").glob("*.py")):
        space = {}
        exec(file.read_text(), space)
        test = space["test"]
        (suite,) = test["suites"]
        assert space["OK_FORMAT"] is True and isinstance(test["name"], str)
        assert suite["type"] == "doctest" and not suite["setup"] and not suite["teardown"]
        for case in suite["cases"]:
            (example,) = doctest.DocTestParser().get_examples(case["code"])
            assert example.want == "right\n" and type(case["points"]) is int
            assert case["hidden"] is False
            of += case["points"]
    assert of == LESSON.points


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_starter_has_no_answers_and_no_seed(built, platform):
    given = LESSON.starter.read_text()
    lines = {line.strip() for line in LESSON.answers.read_text().splitlines()}
    secret = [line for line in lines if len(line) > 12 and line not in given]
    assert len(secret) > 10
    data = b"".join(p.read_bytes() for p in (built[platform] / "starter").rglob("*") if p.is_file())
    assert [text for text in [*secret, str(SEED)] if text.encode() in data] == []
    assert str(SEED) in (built[platform] / "instructor" / "README.md").read_text()
    assert b"lesson_03" not in data and b"definitions import" not in data


@pytest.mark.long
def test_an_attack_costs_its_exercise(built, tmp_path):
    attack = (
        "\ndef sum_calls(*a):\n    import os; os._exit(0)\ndef step_seconds(*a):\n    while 1: 0\n"
    )
    student = LESSON.answers.read_text() + attack
    result, _ = marked("gradescope", built["gradescope"], tmp_path, student)
    tests = json.loads(result.read_text())["tests"]
    lost = {test["name"].split(":")[0] for test in tests if test["score"] < test["max_score"]}
    assert lost == {"sum_calls", "step_seconds"}
    assert any("os._exit" in test["output"] for test in tests)
    assert any("did not end" in test["output"] for test in tests)


def test_a_table_of_public_results(tmp_path):
    """It loses its points without a word on the hidden case; the oracle gives the same points."""
    part = lesson_files("01").exercises[0].parts[0]
    cases = [tuple(map(int, c)) for c in part.cases(marking.source(marking.PUBLIC_SEED, part))]
    table = {(n, p): [(i * (n // p), (i + 1) * (n // p)) for i in range(p)] for n, p in cases}
    file = tmp_path / "01.py"
    file.write_text(f"def slices(n, p):\n    return {table}.get((n, p), (n, p))\n")
    found = marks_of_file(file, "01", SEED)
    assert found[0].parts[0].sentence == HIDDEN
    assert totals(found) == totals(marking.grade(file, "01", SEED))


def test_what_a_file_prints_stays_unseen(tmp_path):
    """It may have kept a hidden case of an earlier exercise."""
    file = tmp_path / "prints.py"
    file.write_text("def slices(n, p):\n    print(n, p)\n    return []\n")
    assert not any(mark.printed for mark in marks_of_file(file, "01", SEED))


def test_a_file_cannot_read_the_seed(built, tmp_path):
    seed = tmp_path / "source" / "course.json"
    read = f"\ndef step_seconds(*a):\n    return open({str(seed)!r}).read()\n"
    student = LESSON.answers.read_text() + read
    result, _ = marked("plain", built["plain"], tmp_path, student)
    assert json.loads(seed.read_text())["seed"] == SEED
    assert points("plain", result) == [(LESSON.points - 3, LESSON.points)]
    assert "may not read" in result.with_name("03.txt").read_text()


def test_a_class_of_files_and_folders(built, tmp_path):
    source = unpacked(built["plain"], tmp_path / "source")
    group = tmp_path / "class"
    (group / "carol").mkdir(parents=True)
    (group / "dan").mkdir()
    (group / "alice.py").write_bytes(LESSON.answers.read_bytes())
    (group / "bob.py").write_text("def pool_slices(sizes):\n    raise ValueError('\\ud800\\0')\n")
    (group / "carol" / "03.py").write_bytes(LESSON.starter.read_bytes())
    command = [sys.executable, "-I", source / "grade.py", group, "--output", tmp_path / "marks"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd="/", env={}, timeout=100)
    assert ended.returncode == 0, ended.stderr
    rows = list(csv.reader((tmp_path / "marks" / "marks.csv").open()))
    assert [row[:3] for row in rows[1:]] == [
        ["alice", "16", "16"],
        ["bob", "0", "16"],
        ["carol", "2", "16"],
        ["dan", "0", "16"],
    ]
    assert "got no Python file; wanted 03.py" in (tmp_path / "marks" / "dan.txt").read_text()
    (group / "dan" / "03.py.txt").write_text("")
    subprocess.run(command, capture_output=True, cwd="/", env={}, timeout=100)
    assert "got 03.py.txt; wanted 03.py" in (tmp_path / "marks" / "dan.txt").read_text()
    (group / "alice").mkdir()
    ended = subprocess.run(command, capture_output=True, text=True, cwd="/", env={}, timeout=100)
    assert ended.returncode == 2 and "got alice twice" in ended.stderr


ODD_NAMES = {  # as the system has them: in marks.csv
    b"Lef\xe8vre": r"Lef\udce8vre",
    b"a\nb\tc": r"a\nb\tc",
    b'Li, "Bo"': 'Li, "Bo"',
    "\N{CJK UNIFIED IDEOGRAPH-674E}".encode(): "\N{CJK UNIFIED IDEOGRAPH-674E}",
    b"x" * 254: "x" * 254,
    b"x" * 255: "x" * 255,
}


def test_a_class_with_odd_names(built, tmp_path):
    """One student's name stops nobody's marks. In the language C, too, Python's texts are UTF-8."""
    source, group = unpacked(built["plain"], tmp_path / "source"), os.fsencode(tmp_path / "class")
    for name in ODD_NAMES:
        os.makedirs(os.path.join(group, name))
        with open(os.path.join(group, name, b"m\xfc.py"), "w") as file:
            file.write("def pool_slices(sizes):\n    return None\n")
    (tmp_path / "class" / "zoe.py").write_bytes(LESSON.answers.read_bytes())
    os.symlink("/", os.path.join(group, b"\xff"))
    command = [sys.executable, source / "grade.py", group, "--output", tmp_path / "marks"]
    given = {"capture_output": True, "text": True, "cwd": "/", "timeout": 200}
    for _ in range(2):  # again into the same folder
        ended = subprocess.run(command, env={"LC_ALL": "C"}, **given)
        assert ended.returncode == 0, ended.stderr
        assert "\nno file: \\udcff\n" in ended.stdout
    with (tmp_path / "marks" / "marks.csv").open(newline="", encoding="utf-8") as file:
        rows = {row[0]: row for row in csv.reader(file)}
    assert rows.keys() == {"student", "zoe", r"\udcff", *ODD_NAMES.values()}
    assert rows["zoe"][1:3] == ["16", "16"] and rows[r"Lef\udce8vre"][1:3] == ["0", "16"]
    assert len(list((tmp_path / "marks").glob("*.txt"))) == len(rows) - 1


@pytest.mark.parametrize("lesson", long_but(["00", "03", "16"], "03"))
def test_a_build_without_a_seed(lesson, tmp_path):
    """It checks that the answers get all points; with any seed: tests/oracle/grade."""
    folder = build(lesson, "classroom50", None, str(tmp_path / "lesson"))
    page = (folder / "instructor" / "README.md").read_text()
    found = re.search(r"get (\d+) of (\d+) points and the starter gets (\d+):", page)
    full, of, start = map(int, found.groups())
    assert full == of and start < 0.3 * of
    exercises = marking.exercises_of(lesson)
    assert all(m.sentence.replace("|", "\\|") in page for e in exercises for m in e.mistakes)
    seed = json.loads((folder / "autograder" / "course.json").read_text())["seed"]
    assert str(seed) in page and 10**8 <= seed < 10**9


@pytest.mark.long
def test_only_an_own_folder_is_replaced(tmp_path, capsys):
    def run(folder):
        return main(["build", "03", "--for", "plain", "--seed", "1", "--output", str(folder)])

    own, foreign = tmp_path / "own", tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    assert run(foreign) == 2 and list(foreign.iterdir()) == [foreign / "thesis.tex"]
    error = capsys.readouterr().err
    assert "got" in error and "wanted a new folder" in error and "next:" in error
    assert run(own) == 0
    (own / "autograder" / "notes.txt").write_text("mine")
    (own / "starter" / "03.py").write_text("changed")
    assert run(own) == 0 and (own / "autograder" / "notes.txt").read_text() == "mine"
    assert (own / "starter" / "03.py").read_bytes() == lesson_files("03").starter.read_bytes()


@pytest.mark.long
def test_a_second_build_keeps_the_seed(tmp_path, capsys):
    """Marks that were given with it can be repeated. --seed replaces it."""

    def seed(*arguments):
        assert main(["build", "03", "--for", "plain", "--output", str(tmp_path), *arguments]) == 0
        kept = json.loads((tmp_path / "autograder" / "course.json").read_text())["seed"]
        assert f"hidden cases: seed {kept};" in capsys.readouterr().out
        return kept

    first = seed()
    assert seed() == first and seed("--seed", "0") == 0 and seed() == 0


def test_wrong_arguments(tmp_path, monkeypatch, capsys):
    def error(*arguments):
        assert main(["build", *arguments, "--for", "plain", "--output", str(tmp_path / "x")]) == 2
        assert not (tmp_path / "x").exists()
        return capsys.readouterr().err

    assert "got lesson '99'; wanted one of 00, 01" in error("99")
    assert "got --seed -3; wanted 0 or more" in error("01", "--seed", "-3")
    monkeypatch.setattr(lesson_module, "LESSONS", tmp_path / "lessons")
    assert "wanted a checkout of the project" in error("01")


def test_students_of_an_unpublished_lesson_are_told_how_to_mark_themselves():
    unpublished = dataclasses.replace(LESSON, number="93")
    assert "`lesson_93.py`" in starter(unpublished)["README.md"].decode()
    assert "lesson_03.py" not in starter(LESSON)["README.md"].decode()
