"""Every lesson's exercises: NaN earns no point, and lists of right numbers are no mistake.

Marks of starters, answers and typical mistakes: tests/approval.
"""

import numpy as np
import pytest

from refgf.oracle.grade import marking, report
from refgf.oracle.grade.difference import difference, plain
from refgf.oracle.spec.exercise import Collective
from tests.support.students import InThisProcess, answers_with

# A mistake may divide by 0: grade and build print no warning.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Files of ours; how others' are held is in test_grade.py."""
    monkeypatch.setattr(marking, "Sandbox", InThisProcess)


LESSONS = marking.lessons()
# the other functions keep the right one: NaN must not cost the marks of those that call it
KEEP = """
import types
_right = dict(globals())
for _name, _f in list(_right.items()):
    if isinstance(_f, types.FunctionType):
        globals()[_name] = types.FunctionType(_f.__code__, _right, _name, _f.__defaults__)
"""


@pytest.mark.parametrize("lesson", LESSONS)
def test_six_mistakes_are_known(lesson):
    assert sum(len(exercise.mistakes) for exercise in marking.exercises_of(lesson)) >= 6


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
