"""Every lesson's exercises: starters, answers and typical mistakes get exactly their marks."""

import json
import re
from pathlib import Path

import pytest

from refgf.oracle.grade import marking, report, student_process
from refgf.oracle.grade.exercise import Collective
from refgf.oracle.grade.student_process import answer
from refgf.oracle.judge import ranks

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.filterwarnings("default")  # a mistake may divide by 0
LESSONS = marking.lessons()
MISTAKES = [
    pytest.param(lesson, exercise, mistake, id=f"{lesson}-{mistake.function.__name__}")
    for lesson in LESSONS
    for exercise in marking.exercises_of(lesson).EXERCISES
    for mistake in exercise.mistakes
]
# the other functions keep the right one: a mistake must not cost the marks of those that call it
KEEP = """
import types
_right = dict(globals())
for _name, _f in list(_right.items()):
    if isinstance(_f, types.FunctionType):
        globals()[_name] = types.FunctionType(_f.__code__, _right, _name, _f.__defaults__)
"""


def totals(file, lesson, seed=None):
    marks = marking.grade(file, lesson, seed)
    return marks, report.totals(marks)


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_starter_scores_a_little(lesson):
    """Its worked example counts; nothing else is written yet."""
    marks, (points, of) = totals(ROOT / "lessons" / "student" / f"{lesson}.py", lesson)
    assert 0 < points < 0.3 * of, report.as_text(marks)
    missing = [mark for mark in marks if mark.points < mark.of]
    assert 2 <= len(missing) <= 4
    assert all(mark.parts[0].sentence.startswith("not written yet") for mark in missing)


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_answers_score_everything(lesson):
    for seed in (None, 1):
        file = ROOT / "lessons" / "teaching" / "answers" / f"{lesson}.py"
        marks, (points, of) = totals(file, lesson, seed)
        assert points == of, report.as_text(marks)


@pytest.mark.parametrize("lesson", LESSONS)
def test_six_mistakes_are_known(lesson):
    assert sum(p.values[0] == lesson for p in MISTAKES) >= 6


class InThisProcess:
    """A sandbox without a process: hundreds of mistakes would start one each."""

    printed = ""

    def __init__(self, file, allowed):
        self.module = student_process.load(str(file))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, request):
        line = json.dumps(request)  # what a connection would carry
        return json.loads(json.dumps(answer(self.module, ranks, json.loads(line), "")))


@pytest.mark.parametrize("lesson, exercise, mistake", MISTAKES)
def test_a_typical_mistake_loses_its_marks(tmp_path, monkeypatch, lesson, exercise, mistake):
    """In the answers, one function is replaced by the mistake: its marks are lost, no others."""
    monkeypatch.setattr(marking, "Sandbox", InThisProcess)
    answers = (ROOT / "lessons" / "teaching" / "answers" / f"{lesson}.py").read_text()
    place, name = mistake.function.__module__, mistake.function.__name__
    file = tmp_path / f"{lesson}.py"
    file.write_text(f"{answers}{KEEP}\nfrom {place} import {name} as {exercise.name}\n")
    marks, _ = totals(file, lesson)
    lost = [(m.name, p.what) for m in marks for p in m.parts if p.points < p.of]
    text = report.as_text(marks)
    assert lost == [(exercise.name, what) for what in ordered(exercise, mistake.loses)], text
    assert mistake.sentence in " ".join(text.split()), text
    first = next(p.sentence for m in marks for p in m.parts if p.points < p.of)
    assert isinstance(exercise, Collective) or shows_its_call(first, exercise.name), first


def shows_its_call(sentence, name):
    """Are all arguments of the failing call shown, so that a student can repeat it?"""
    shown = sentence.partition(f"for {name}(")[2].partition("): ")[0]
    return bool(shown) and not re.search(r"in all|(list|dict), length|of shape", shown)


def ordered(exercise, loses):
    names = getattr(exercise, "scores", None) or [part.what for part in exercise.parts]
    return [name for name in names if name in loses]
