"""A class of 12 files: marked in three minutes on two processors, equal files alike."""

import csv
import io
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refgf.course.autograder import plain
from refgf.course.build import build
from refgf.course.lesson import lesson_files
from refgf.course.platforms import PLATFORMS
from refgf.oracle.grade import counter, sandbox
from refgf.oracle.grade.marking import exercises_of, no_points
from refgf.oracle.grade.report import as_csv, to_look_at

ROOT = Path(__file__).resolve().parents[2]
LESSON, SEED = "03", 4711
STUDENTS, MINUTES = 12, 3
HANGS = "\ndef lazy_calls(*a):\n    while True: pass\n"


def submissions() -> list[str]:
    """Ten different files: right ones, starters, typical mistakes, one that hangs."""
    files = lesson_files(LESSON)
    answers, starter = files.answers.read_text(), files.starter.read_text()
    found = [answers, starter, answers + HANGS, "def pool_slices(:\n", ""]
    for exercise in exercises_of(LESSON)[1:]:
        for wrong in ("None", "a[0]"):
            found.append(f"{answers}\ndef {exercise.name}(*a):\n    return {wrong}\n")
    return found[:10]


def on_two_processors(command: list, cwd: Path) -> float:
    """Seconds that a command takes on two processors, if there are more."""
    allowed = sorted(os.sched_getaffinity(0))[:2] if hasattr(os, "sched_getaffinity") else []

    def restrict() -> None:
        if allowed:
            os.sched_setaffinity(0, allowed)

    began_s = time.monotonic()
    ended = subprocess.run(
        list(map(str, command)),
        preexec_fn=restrict,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
    )
    assert ended.returncode in (0, 1), ended.stderr
    return time.monotonic() - began_s


def require_class(rows: list[list[str]], students: int, texts: list[str]) -> None:
    """A line a student; the marks of equal files are equal, the right ones have all points."""
    header, *lines = rows
    names = [exercise.name for exercise in exercises_of(LESSON)]
    assert header[1:] == ["points", "of", *names, "not judged", "answers", "lesson", "seed"]
    assert len(lines) == students and {tuple(line[-2:]) for line in lines} == {(LESSON, str(SEED))}
    by_file = {}
    for line in lines:
        kind = int(Path(line[0]).stem.removeprefix("student")) % len(texts)
        assert by_file.setdefault(kind, line[1:]) == line[1:]
        assert int(line[1]) == sum(map(int, line[3:-4])) <= int(line[2])
    assert by_file[0][0] == by_file[0][1] and int(by_file[3][0]) == 0
    assert (by_file[0][-4], by_file[3][-4]) == ("", "no import")
    assert int(by_file[2][0]) < int(by_file[0][0])


@pytest.mark.long
@pytest.mark.timeout(60 * MINUTES * 2 + 60)
def test_a_class_of_12_in_three_minutes(tmp_path):
    texts, group = submissions(), tmp_path / "class"
    group.mkdir()
    for i in range(STUDENTS):
        (group / f"student{i:03}.py").write_text(texts[i % len(texts)])
    built = build(LESSON, "plain", SEED, str(tmp_path / "built"))
    grade = [sys.executable, "-I", built / "autograder" / "grade.py", group]
    seconds = on_two_processors([*grade, "--output", tmp_path / "marks"], tmp_path)
    assert seconds < 60 * MINUTES
    with (tmp_path / "marks" / "marks.csv").open() as file:
        require_class(list(csv.reader(file)), STUDENTS, texts)
    told = {}
    for i in range(STUDENTS):  # the sentences are equal, too
        first, _, text = (tmp_path / "marks" / f"student{i:03}.txt").read_text().partition("\n")
        assert told.setdefault(i % len(texts), text) == text and first.startswith("student")


def test_a_small_class_with_the_command_of_the_oracle(tmp_path):
    texts, files = submissions(), []
    texts[2] = texts[2].replace(HANGS, "")
    texts[2] += "\ndef lazy_calls(*a):\n    return []\n"
    for i in (0, 1, 2, 3, 10, 13):
        files.append(tmp_path / f"student{i}.py")
        files[-1].write_text(texts[i % len(texts)])
    command = [sys.executable, "-m", "refgf.oracle", "grade", LESSON, *files]
    on_two_processors([*command, "--seed", SEED, "--csv", tmp_path / "c.csv"], ROOT)
    with (tmp_path / "c.csv").open() as file:
        require_class(list(csv.reader(file)), len(files), texts)


def test_files_at_once(monkeypatch):
    """As many as this process may use processors, and never more than a container bears."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5}, raising=False)
    assert sandbox.workers() == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert sandbox.workers() == sandbox.MOST
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert sandbox.workers() == 1


def test_a_row_says_why_nothing_was_judged():
    exercises = exercises_of(LESSON)

    def row(*sentences):
        marks = [no_points(each, said) for each, said in zip(exercises, sentences)]
        return next(
            reversed(list(csv.reader(as_csv([("=a.py", marks, "03", "03v7")], 5).splitlines())))
        )

    ended = "did not end within 15 s, for pool_slices([1])"
    wrong = "for pool_slices([1]): got [1]; wanted [[0, 1]]"
    assert row(*["cannot be imported: SyntaxError"] * 4)[-4:] == ["no import", "03", "03v7", "5"]
    assert row(ended, wrong, wrong, "not written")[-4] == (
        f"{exercises[0].name}: hung; {exercises[3].name}: not written"
    )
    forbidden = "raised PermissionError: an exercise may not use os.kill (line 1), for f(1)"
    assert row("wrote into the connection of its judge", forbidden, "ran out of memory", wrong)[
        -4
    ] == "; ".join(
        f"{exercise.name}: {why}"
        for exercise, why in zip(exercises, ("tampered", "forbidden", "memory"))
    )
    assert row(*[wrong] * 4)[-4] == "" and row(*[wrong] * 4)[0] == "'=a.py"


def test_a_line_for_each_kind_names_the_files():
    """A teacher of 60 need not search a table. Who has not written a function is no news."""
    exercises = exercises_of(LESSON)

    def row(name, *sentences):
        marks = [no_points(each, said) for each, said in zip(exercises, sentences)]
        return name, marks, LESSON, LESSON

    hangs, wrong = "did not end within 5 s, for f(1)", "for f(1): got 1; wanted 2"
    forbidden = "raised PermissionError: an exercise may not use os.kill (line 1), for f(1)"
    rows = [
        row("anna", *[wrong] * 4),
        row("bob", wrong, hangs, forbidden, hangs),
        row("carl", *["cannot be imported: it raised SyntaxError"] * 4),
        row("dora", *["not written yet"] * 4),
        row("emil", *[hangs] * 4),
    ]
    names = [exercise.name for exercise in exercises]
    assert to_look_at(rows) == [
        f"forbidden: bob ({names[2]})",
        f"hung: bob ({names[1]}, {names[3]}), emil",
        "no import: carl",
    ]


def test_the_teachers_page_says_how_long_a_class_takes():
    assert "minutes for a class of 60" in PLATFORMS["plain"].install(lesson_files(LESSON))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_counts_the_files(monkeypatch, is_terminal):
    """Its line is erased before what a file has got; a pipe gets no counter."""
    screen = io.StringIO()
    screen.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stdout", screen)
    with counter.Counter(4) as shown:
        time.sleep(1.2)
        shown.says("anna: 16 of 16 points")
        shown.start_s -= 9
        assert re.fullmatch(r"\[1\d s, 1 of 4 files, about 3\d s left\]", shown.line())
    assert counter.Counter(1).line() == "[0 s]"
    text = screen.getvalue()
    assert ("[1 s, 0 of 4 files]\r" in text) == is_terminal == text.endswith(counter.ERASE)
    assert "anna: 16 of 16 points\n" in text and ("\r" in text) == is_terminal


def test_no_entry_vanishes_and_no_marks_are_lost(tmp_path, monkeypatch, capsys):
    group, output = tmp_path / "class", tmp_path / "marks"

    def grade(lesson, **entries):
        shutil.rmtree(group, ignore_errors=True)
        group.mkdir()
        for name, text in entries.items():
            (group / name.replace("_", ".", 1)).write_text(text)
        (group / ".DS_Store").touch()
        (group / "__MACOSX").mkdir()
        monkeypatch.setattr(plain, "settings", lambda: (lesson, SEED))
        monkeypatch.setattr(sys, "argv", ["grade.py", str(group), "--output", str(output)])
        return plain.main(), *capsys.readouterr()

    text = lesson_files("03v7").starter.read_text()
    others = {"zoe_zip": "", "xenia_PY": text}
    ended, out, _ = grade("03", anna_py=text, **others)
    assert (
        ended == 0 and "anna: " in out and re.search(r"\n3 students in \d+ s, [\d.]+ s each: ", out)
    )
    assert "\nno file: xenia.PY, zoe.zip\n" in out and "\r" not in out
    assert "do not answer lesson 03 as published: anna (03v7)\n" in out
    rows = {row["student"]: row for row in csv.DictReader((output / "marks.csv").open())}
    assert {name: row["not judged"] for name, row in rows.items() if row["points"] == "0"} == {
        "zoe.zip": "no file",
        "xenia.PY": "no file",
    }
    assert [row["answers"] for row in rows.values()] == ["03v7", "", ""]
    first = (output / "anna.txt").read_text().splitlines()[0]
    assert first == "anna: lesson 03 as published. This file answers variant 7 of lesson 03"
    before = (output / "marks.csv").read_bytes()
    for lesson, entries in (("03", {"bob_py": text}), ("03v7", {"anna_py": text, **others})):
        ended, _, said = grade(lesson, **entries)
        assert ended == 2 and f"next: --output {output}-{lesson}" in said
        assert (output / "marks.csv").read_bytes() == before
    ended, out, _ = grade("03", anna_py=text, bob_py=text, **others)  # late ones
    assert ended == 0 and "\n4 students in " in out


@pytest.fixture
def grade_class(tmp_path, monkeypatch, capsys):
    """(lesson, *options of grade.py, name=text of the file, ...) -> exit code, out, err."""

    def grade(*options, **files):
        (tmp_path / "class").mkdir(exist_ok=True)
        for name, text in files.items():
            (tmp_path / "class" / f"{name}.py").write_text(text)
        monkeypatch.setattr(plain, "settings", lambda: ("03v1", SEED))
        output = ["--output", tmp_path / "marks"]
        monkeypatch.setattr(
            sys, "argv", list(map(str, ["", tmp_path / "class", *output, *options]))
        )
        return plain.main(), *capsys.readouterr()

    return grade


def test_each_student_by_his_own_variant(grade_class, tmp_path):
    """A class list names the variants; the build is of any of them."""
    answers = {n: lesson_files(f"03v{n}").answers.read_text() for n in (1, 5)}
    listed = tmp_path / "variants.csv"
    listed.write_text("name,variant\nanna,1\nbob,5\n\n")
    ended, out, _ = grade_class("--variants", listed, anna=answers[1], bob=answers[5])
    assert ended == 0 and "do not answer" not in out
    rows = list(csv.DictReader((tmp_path / "marks" / "marks.csv").open()))
    assert [(row["student"], row["points"], row["lesson"]) for row in rows] == [
        ("anna", "16", "03v1"),
        ("bob", "16", "03v5"),
    ]
    assert grade_class("--variants", listed)[0] == 0  # again into the same folder
    assert "03v5" in grade_class()[2]  # whose marks by other rules are not replaced
    listed.write_text("name,variant\nanna,5\nbob,5\ncarl,1\n")
    ended, out, _ = grade_class("--variants", listed, anna=answers[1], bob=answers[5])
    assert ended == 0 and "do not answer the variant of their line: anna (03v1)\n" in out
    assert f"in {listed}, without a submission: carl\n" in out
    for text, said in (("anna,1\n", "no variant of bob"), ("anna,1\nbob,x\n", "bob,x")):
        listed.write_text(text)
        ended, _, error = grade_class("--variants", listed)
        assert ended == 2 and f"got {said}" in error and "wanted a line NAME,NUMBER" in error


def test_a_large_file_stops_nobodys_marks(grade_class, tmp_path):
    answers = lesson_files("03v1").answers.read_text()
    ended, out, _ = grade_class(anna=answers, bob="a;" * sandbox.LARGEST_FILE)
    assert ended == 0 and "anna: 16 of 16 points" in out and "bob: 0 of 16 points" in out
    assert "could not be read" in (tmp_path / "marks" / "bob.txt").read_text()


def test_a_caller_is_told_what_to_mend_first(grade_class, tmp_path):
    """As `python -m refgf.oracle grade` tells."""
    wrong = "def pool_slices(sizes): return []\ndef step_seconds(*a): return pool_slices([1])\n"
    grade_class(anna=wrong)
    assert "it calls pool_slices, which may be why: " in (tmp_path / "marks/anna.txt").read_text()


def test_what_is_marked_is_in_the_table_when_the_command_stops(grade_class, tmp_path, monkeypatch):
    def stops(path, *_):
        if path.stem == "bob":
            raise KeyboardInterrupt
        return plain.without_points(path, "03v1", "could not be read: a test")

    monkeypatch.setattr(plain, "marked_student", stops)
    with pytest.raises(KeyboardInterrupt):
        grade_class(anna="", bob="", carl="")
    rows = list(csv.DictReader((tmp_path / "marks" / "marks.csv").open()))
    assert [row["student"] for row in rows] == ["anna"]
