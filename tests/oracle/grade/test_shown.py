"""A lost point shows the smallest public case that fails; a hidden case shows only its shape."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from refgf.oracle.foreign import wall
from refgf.oracle.grade import marking, report, sandbox
from refgf.oracle.grade.difference import apart
from refgf.oracle.grade.shown import LONGEST, shortened, size, without_text
from tests.support.students import InThisProcess, answers_with

SEED = 7


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(marking, "Sandbox", InThisProcess)


def sentences(mark):
    return [part.sentence for part in mark.parts]


@pytest.mark.parametrize(
    "got, wanted, said",
    [
        (2.0004883, 2.0, "got 2.0005; wanted 2.0"),
        (1.9999999, 2.0, "got 1.9999999; wanted 2.0"),
        (1000000.4, 1e6, "got 1000000.4; wanted 1000000"),
        (2**60 + 1, 2**60, f"got {2**60 + 1}; wanted {2**60}"),
        (float("nan"), 2.0, "got nan; wanted 2.0"),
        (np.bool_(True), np.bool_(False), "got True; wanted False"),
    ],
)
def test_digits_show_the_difference(got, wanted, said):
    assert apart(got, wanted) == said


@pytest.mark.usefixtures("impatient")
def test_an_exception_and_a_hang_name_their_call(tmp_path):
    code = (
        "\ndef ring_cost(n, p, rank):\n    return 1 / n\n"
        "def ring_seconds(nbytes, p, alpha, beta):\n    while nbytes == 0: pass\n"
    )
    marks = answers_with(tmp_path, "01", code)
    assert sentences(marks["ring_cost"])[-1].endswith(", for ring_cost(0, 3, 0)")
    sentence = sentences(marks["ring_seconds"])[0]
    assert sentence == "did not end within 3 s, for ring_seconds(0, 4, 1e-05, 1e-09)"


def hidden_only(tmp_path, lesson, name, wrong):
    """Sentences on a function that is right for the public cases: it knows their arguments."""
    known = []
    for exercise in marking.exercises_of(lesson):
        for part in exercise.parts if exercise.name == name else ():
            known += [repr(a) for a in part.cases(marking.source(marking.PUBLIC_SEED, part))]
    code = (
        f"\nKNOWN = {known!r}\nRIGHT = {name}\n"
        f"def {name}(*a):\n    return RIGHT(*a) if repr(a) in KNOWN else {wrong}\n"
    )
    return sentences(answers_with(tmp_path, lesson, code, SEED, only=name)[name])


def test_a_hidden_case_shows_only_its_shape(tmp_path):
    case = "a case of the teacher's seed, ring_seconds(a number, a number, a number, a number)"
    found = [s for s in hidden_only(tmp_path, "01", "ring_seconds", "0.0") if s]
    assert found == [f"wrong, for {case}"]
    raises = "int('secret ' + repr(a))"
    sentence, _ = hidden_only(tmp_path, "01", "ring_seconds", raises)
    assert sentence == f"raised ValueError, for {case}"
    assert "secret" not in sentence


@pytest.mark.usefixtures("in_this_process")
def test_a_hidden_sum_shows_only_its_size(tmp_path):
    """Right for the public numbers, whose first one it knows."""
    random = np.random.default_rng([marking.PUBLIC_SEED, 2, 4])
    public = random.standard_normal(4).astype(np.float32)[0].item()
    code = (
        f"\nRIGHT = allreduce\ndef allreduce(comm, x):\n    mine = x[:1].copy()\n"
        "    RIGHT(comm, x)\n"
        f"    if x.size == 4 and comm.Get_rank() == 0 and mine[0] != np.float32({public!r}):\n"
        "        x[0] = 0\n"
    )
    marks = answers_with(tmp_path, "01", code, SEED, only="allreduce")["allreduce"]
    lost = {part.what: part.sentence for part in marks.parts if part.sentence}
    sentence = "wrong, for p = 2, n = 4 of the teacher's seed"
    assert lost == {"values": sentence, "bits": sentence}
    assert str(public)[:6] not in report.as_text([marks])


@pytest.mark.parametrize(
    "value, text",
    [
        (3, "3"),
        (1e-05, "1e-05"),
        (0.123456789, "0.1235"),
        (np.float32([1, 0.1]), "[1.0, 0.1]"),
        (np.arange(40), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ... 40 in all]"),
        ([np.zeros(2), {"a": None}], "[[0.0, 0.0], {'a': None}]"),
        (np.array(2.5), "2.5"),
        ("x" * 200, "a text"),
        (np.zeros((9, 9, 9, 9)), "float64 of shape (9, 9, 9, 9)"),
    ],
)
def test_a_value_is_shortened(value, text):
    assert shortened(value) == text and len(text) <= LONGEST


def test_small_cases_come_first():
    assert size((3, [np.zeros(4), {"a": -2.0}])) == (6, 5.0) and size(("x", None)) == (2, 0.0)
    assert size((9, 3)) < size((12, 3)) < size((1, 1, 1))


@pytest.mark.parametrize(
    "error, told",
    [
        ("raised KeyError: (7, 3) (line 4)", "raised KeyError"),
        ("rank 1 raised ValueError: x\ny (line 9)", "raised ValueError"),
        ("raised H894_0: x (line 9)", "raised an exception"),
        ("raised print: x (line 9)", "raised an exception"),
        ("ended its process with exit code 7 (os._exit?)", "ended its process"),
        ("absent: the file has no function [894, 0]", "absent"),
        ("returned S894; wanted numbers", "failed"),
    ],
)
def test_an_error_without_the_students_words(error, told):
    """An exception's name, a line or an exit code can hold a hidden argument, too."""
    assert without_text(error) == told


def test_limits_that_a_system_refuses_are_left_out(monkeypatch):
    """macOS has RLIMIT_AS and refuses to change it."""
    import resource

    changed = []

    def refuse(name, _):
        if name == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")
        changed.append(name)

    monkeypatch.setattr(resource, "setrlimit", refuse)
    wall.limit({"RLIMIT_AS": 10, "RLIMIT_NPROC": 1, "RLIMIT_FSIZE": 0}, alone=False)
    assert changed == [resource.RLIMIT_CORE, resource.RLIMIT_FSIZE]


def test_a_system_that_cannot_limit_a_file_is_named(monkeypatch):
    monkeypatch.setattr(sandbox, "os", SimpleNamespace(name="nt"))
    with pytest.raises(ValueError, match="got the system .*; wanted Linux or macOS.*WSL 2"):
        sandbox.Sandbox("x.py")


@pytest.mark.parametrize("lesson", marking.lessons())
def test_every_case_has_a_short_call(lesson):
    """What a sentence shows of any public case fits a few lines, and JSON."""
    for exercise in marking.exercises_of(lesson):
        for part in getattr(exercise, "parts", ()):
            for case in marking.cases_of(part, [marking.PUBLIC_SEED]):
                text = marking.call(exercise.name, case.arguments)
                assert len(text) < 500 and json.dumps(text), text
