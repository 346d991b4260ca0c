"""Every lesson's exercises: starters, answers and typical mistakes get exactly their marks."""

import re

import numpy as np
import pytest

from refgf.oracle.grade import marking, report
from refgf.oracle.grade.difference import difference, plain
from refgf.oracle.grade.trusted import mark_of
from refgf.oracle.spec.exercise import Collective
from tests.support.students import ANSWERS, ROOT, InThisProcess, answers_with

# A mistake may divide by 0: grade and build print no warning.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Files of ours; how others' are held is in test_grade.py."""
    monkeypatch.setattr(marking, "Sandbox", InThisProcess)


LESSONS = marking.lessons()
MISTAKES = [
    pytest.param(exercise, mistake, id=f"{lesson}-{exercise.name}-{mistake.sentence[:40]}")
    for lesson in LESSONS
    for exercise in marking.exercises_of(lesson)
    for mistake in exercise.mistakes
]
# the other functions keep the right one: NaN must not cost the marks of those that call it
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
        file = ANSWERS / f"{lesson}.py"
        marks, (points, of) = totals(file, lesson, seed)
        assert points == of, report.as_text(marks)


@pytest.mark.parametrize("lesson", LESSONS)
def test_six_mistakes_are_known(lesson):
    assert sum(len(exercise.mistakes) for exercise in marking.exercises_of(lesson)) >= 6


@pytest.mark.parametrize("exercise, mistake", MISTAKES)
def test_a_typical_mistake_is_named(exercise, mistake):
    """Which marks it loses is approved (tests/approval)."""
    mark = mark_of(exercise, mistake.function)
    text = report.as_text([mark])
    assert mark.points < mark.of and mistake.sentence in " ".join(text.split()), text
    first = next(part.sentence for part in mark.parts if part.points < part.of)
    long = "25 * (28 / 100)" in mistake.sentence  # shows only with 25 chunks or more
    assert long or isinstance(exercise, Collective) or shows_its_call(first, exercise.name), first


EVERY = [(lesson, e) for lesson in LESSONS for e in marking.exercises_of(lesson)]
NAN = """
import numpy as _np

def _nan(value):
    if isinstance(value, _np.ndarray):
        return _np.full(value.shape, _np.nan, value.dtype if value.dtype.kind == "f" else "float64")
    if isinstance(value, (list, tuple)):
        return [_nan(item) for item in value]
    if isinstance(value, dict):
        return {key: _nan(item) for key, item in value.items()}
    is_number = isinstance(value, (int, float, _np.number)) and not isinstance(value, bool)
    return float("nan") if is_number else value

def NAME(*arguments):
    result = _right["NAME"](*arguments)
    if hasattr(arguments[0], "Get_rank"):
        arguments[1][...] = _np.nan
    return _nan(result)
"""


def has_number(value):
    if isinstance(value, np.ndarray):
        return value.size > 0
    if isinstance(value, list | dict):
        return any(map(has_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def lists_of(value):
    """A result with lists in place of arrays."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list):
        return [lists_of(item) for item in value]
    return {k: lists_of(v) for k, v in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("lesson", [*LESSONS, "03v1", "17v3"])
def test_right_numbers_in_lists_are_no_typical_mistake(lesson):
    for exercise in marking.exercises_of(lesson):
        for part in [] if isinstance(exercise, Collective) else exercise.parts:
            cases = marking.cases_of(part, [marking.PUBLIC_SEED])
            right = [(case, plain(exercise.wanted(case.arguments))) for case in cases]
            made = [(case, lists_of(value), value) for case, value in right]
            results = [
                marking.CallResult(*each, wrong=bool(difference(*each[1:], exercise.relative)))
                for each in made
            ]
            named = marking.typical(exercise.mistakes, results, exercise.relative)
            assert not named, (exercise.name, part.what, named)


def numeric_parts(exercise):
    """The parts for whose results NaN is wrong in some case."""
    if isinstance(exercise, Collective):
        return [name for name in exercise.scores if name in ("values", "bits")]
    found = []
    for part in exercise.parts:
        cases = marking.cases_of(part, [marking.PUBLIC_SEED])
        wanted = [plain(exercise.wanted(case.arguments)) for case in cases]
        found += [part.what] * any(map(has_number, wanted))
    return found


@pytest.mark.parametrize("lesson, exercise", EVERY, ids=[f"{n}-{e.name}" for n, e in EVERY])
def test_nan_everywhere_is_no_number(tmp_path, lesson, exercise):
    code = KEEP + NAN.replace("NAME", exercise.name)
    mark = answers_with(tmp_path, lesson, code, only=exercise.name)[exercise.name]
    wanted = numeric_parts(exercise)
    kept = [part.what for part in mark.parts if part.points and part.what in wanted]
    assert kept == [], report.as_text([mark])


def shows_its_call(sentence, name):
    """Are all arguments of the failing call shown, so that a student can repeat it?"""
    shown = sentence.partition(f"for {name}(")[2].partition("): ")[0]
    return bool(shown) and not re.search(r"in all|(list|dict), length|of shape", shown)
