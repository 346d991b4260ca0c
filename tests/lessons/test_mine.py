"""Lessons with --mine: a student's functions are judged, then measured next to the project's."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit import mine, rejected

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
ANSWERS, STUDENT = LESSONS / "teaching" / "answers", LESSONS / "student"
MISTAKES = {  # a planted mistake: (what is replaced, by what, the function that it makes wrong)
    "00": ("return [w - rate * total", "return [w - rate * total / 2", "step_on_ranks"),
    "01": ("for first in (rank, rank + 1)", "for first in (rank, rank + 2)", "allreduce"),
    "03": ("4 * (stop - start) > theta", "4 * (stop - start) >= theta", "lazy_calls"),
    "04": ("delay_s += duration", "delay_s = duration", "calls_without_overlap"),
    "05": ("return max(1.0, scale / 2), 0", "return max(1.0, scale / 4), 0", "next_scale"),
    "06": ("values.append(norm / (stop - start))", "values.append(norm)", "importance"),
    "07": ("waiting += size * (2 if half else 4)", "waiting += size * 4", "call_bytes"),
}


def script(number):
    return next(LESSONS.glob(f"{number}_*.py"))


def run(number, folder, file, *arguments):
    """A lesson on 2 ranks that are threads. -> (exit status, what it says)"""
    command = [
        sys.executable,
        str(script(number)),
        "--threads",
        "2",
        "--quick",
        "--mine",
        str(file),
    ]
    ended = subprocess.run(
        [*command, "--output", str(folder), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    return ended.returncode, ended.stdout + ended.stderr


def planted(number, folder):
    """The answers with a mistake, as a file."""
    old, new, _ = MISTAKES[number]
    text = (ANSWERS / f"{number}.py").read_text()
    assert text.count(old) == 1
    path = folder / f"wrong_{number}.py"
    path.write_text(text.replace(old, new))
    return path


def yours(number):
    """What a lesson says that it does with a student's functions."""
    labs = (path for path in (LESSONS / "lab").iterdir() if path.is_dir())
    (lab,) = [path.name for path in labs if f"lab.{path.name}.claims" in script(number).read_text()]
    return importlib.import_module(f"lab.{lab}.claims").REVEAL.yours


def differ(series):
    return "not as ours" in mine.said(series)


@pytest.mark.long
@pytest.mark.parametrize("number", MISTAKES)
def test_right_and_wrong_functions_are_measured(number, tmp_path):
    """The wrong one says WRONG, the others do not."""
    status, said = run(number, tmp_path, planted(number, tmp_path), "--wrong-anyway")
    assert status == 0, said
    result = json.loads((tmp_path / f"{script(number).stem}.json").read_text())["mine"]
    wrong = MISTAKES[number][2]
    assert result["wrong"] == [wrong] and "WRONG: your " in said
    assert any(wrong in each["functions"] and differ(each) for each in result["series"])
    measured = {name for each in result["series"] for name in each["functions"].split(", ")}
    assert measured == set(yours(number).functions)
    for each in result["series"]:
        assert len(each["x"]) == len(each["ours"]) == len(each["yours"])
        if wrong not in each["functions"].split(", "):
            assert each["label"] == "yours" and not differ(each)
    assert (tmp_path / f"{script(number).stem}_yours.png").exists()


@pytest.mark.long
@pytest.mark.parametrize("number", ["01", "03"])
def test_a_wrong_function_ends_the_lesson(number, tmp_path):
    status, said = run(number, tmp_path, planted(number, tmp_path))
    assert status == 2 and "--wrong-anyway" in said and "lost" in said
    assert not (tmp_path / f"{script(number).stem}.json").exists()


def test_a_lesson_uses_functions_that_students_write():
    for number in MISTAKES:
        written = mine.names_in(STUDENT / f"{number}.py")
        used = yours(number).functions
        assert set(used) <= set(written) and MISTAKES[number][2] in used


def test_a_skeleton_is_not_written():
    found = mine.names_in(STUDENT / "01.py")
    assert found["slices"] and not found["allreduce"] and not found["ring_cost"]


@pytest.mark.parametrize(
    "text, named",
    [
        ("def f(x):\n    ...\n", False),
        ('def f(x):\n    """What."""\n    raise NotImplementedError("later")\n', False),
        ("def f(x):\n    pass\n", False),
        ("def f(x):\n    return x\n", True),
        ("def g(x):\n    return x\nf = g\n", True),
        ("from math import sqrt as f\n", True),
    ],
)
def test_what_is_written(text, named, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert mine.names_in(path)["f"] == named


@pytest.mark.parametrize("content", [None, b"def f(:\n", b"\xff\xfe\x00", b"x = 1\n", b""])
def test_a_file_that_cannot_be_used_is_refused(content, tmp_path):
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match="--mine: got .*wanted .*; next: "):
        mine.require(path, "01_ring_allreduce", yours("01"))


def series(ours, yours, **more):
    given = {"functions": "f", "title": "Seconds", "xlabel": "p", "x": ["a", "b"], "unit": ""}
    return given | {"label": "yours", "ours": ours, "yours": yours} | more


def test_the_sentence_on_a_series():
    assert mine.said(series([1, 2], [1, 2])) == "your f (seconds): as ours at both points"
    said = mine.said(series([1, 2], [1, 3], unit="s", label="yours, WRONG"))
    assert said == (
        "WRONG: your f (seconds): not as ours at 1 of 2 points, first at b: 3 s, ours 2 s"
    )
    timing = {"median_s": 2.0, "low_s": 1.9, "high_s": 2.1}
    slower = {"median_s": 3.0, "low_s": 2.9, "high_s": 3.1}
    note = "14 messages, as predicted"
    said = mine.said(series([timing] * 2, [timing, slower], note=note))
    assert said == f"your f (seconds): 1.5 times ours at b, {note}"
    assert "(within noise)" in mine.said(series([timing] * 2, [timing, timing]))


def test_what_does_not_return_ends_the_job(monkeypatch):
    ended = []
    monkeypatch.setattr(mine.launch.abort, "end", lambda text, status: ended.append(text))
    limit = mine.Limit(0.1)
    limit.around("f", mine.time.sleep)(1.2)
    assert ended and "your f did not return within 0.1 s" in ended[0]
    assert limit.around("f", abs)(-1) == 1 and limit.running is None


def test_what_an_oracle_rejects_ends_the_lesson_or_is_noted():
    with pytest.raises(AssertionError, match="one"):
        rejected.reject("one")
    rejected.begin(anyway=True)
    try:
        for text in ("one", "two", "three", "four", "one"):
            rejected.reject(text)
        assert rejected.of_all(OneRank) == ["one", "two", "three", "and 1 more of this kind"]
    finally:
        rejected.begin(anyway=False)


class OneRank:
    @staticmethod
    def allgather(value):
        return [value]
