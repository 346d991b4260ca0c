"""All calls of a file share one time, whatever it does with it."""

import json
import os
from functools import partial
from types import SimpleNamespace

import pytest

from refgf.course.autograder.submission import marked
from refgf.oracle.foreign.process import TooLate
from refgf.oracle.grade import marking, report, sandbox, student_process
from refgf.oracle.grade.sandbox import FILE_S, NO_TIME, SECONDS
from tests.support.students import ANSWERS

ENDLESS = 1e9


@pytest.fixture
def marks_of(monkeypatch):
    """(lesson, seconds of a call of each function, of an import, how many times as long everything
    takes) -> (marks, seconds in all).

    The answers in this process, by a clock of the test's own.
    """

    def marks(lesson, call_s, import_s=0.0, slower=1.0):
        now, file = [0.0], ANSWERS / f"{lesson}.py"

        class Forked:
            printed = ""

            def __init__(self, _):
                self.respond = None

            def start(self):
                pass

            def close(self):
                pass

            def ask(self, question, limit_s):
                name = json.loads(question or "{}").get
                takes_s = call_s.get(name("call") or name("collective"), 0.0)
                takes_s = takes_s if self.respond else import_s
                now[0] += min(takes_s, limit_s)
                if takes_s > limit_s:
                    raise TooLate
                if not self.respond:
                    module = student_process.load(str(file), file.read_bytes())
                    self.respond = partial(student_process.answer, module, file=str(file))
                    return b"{}"
                return json.dumps(self.respond(json.loads(question))).encode()

        monkeypatch.setattr(sandbox, "Forked", Forked)
        monkeypatch.setattr(sandbox, "busy", lambda: slower)
        monkeypatch.setattr(sandbox, "time", SimpleNamespace(monotonic=lambda: now[0]))
        found, _ = marking.marks_of(file, lesson, partial(marked, seed=7))
        return {mark.name: mark for mark in found}, now[0]

    return marks


NAMES = ["pool_slices", "lazy_calls", "sum_calls", "step_seconds"]


@pytest.mark.parametrize("call_s", [0.02, 0.3, 0.9, 4.0, ENDLESS])
@pytest.mark.parametrize("import_s", [0.0, 0.8, 4.0, ENDLESS])
def test_no_file_takes_longer(marks_of, call_s, import_s):
    marks, took_s = marks_of("03", dict.fromkeys(NAMES, call_s), import_s)
    assert took_s <= FILE_S < 20
    lost = [mark for mark in marks.values() if mark.points < mark.of]
    for mark in lost:
        said = mark.parts[0].sentence
        assert said.startswith((NO_TIME, "did not end within 5 s", "cannot be imported")), said
    assert bool(lost) == (call_s > 0.1 or import_s > 1)


def test_after_endless_loops_the_other_functions_are_judged(marks_of):
    marks, took_s = marks_of("03", {"pool_slices": ENDLESS, "sum_calls": ENDLESS})
    assert [marks[name].points == marks[name].of for name in NAMES] == [False, True, False, True]
    first, second = (marks[name].parts[0].sentence for name in ("pool_slices", "sum_calls"))
    assert first.startswith(f"did not end within {SECONDS:g} s, for pool_slices(")
    assert second.startswith(f"{NO_TIME}, for sum_calls(") and took_s == 5.0 + 3.5


def test_a_slow_function_says_so_and_the_marks_before_it_stay(marks_of):
    marks, _ = marks_of("03", {"lazy_calls": 1.5})
    assert [marks[name].points == marks[name].of for name in NAMES] == [True, False, True, True]
    assert marks["lazy_calls"].parts[0].sentence.startswith(NO_TIME)
    assert report.unjudged(list(marks.values())) == "lazy_calls: no time"


@pytest.mark.parametrize("slower", [1.0, 1.7, 4.0])
def test_a_busy_machine_takes_no_marks(marks_of, slower):
    """And what takes too long loses the same ones."""
    marks, took_s = marks_of("03", dict.fromkeys(NAMES, 0.05 * slower), 0.8 * slower, slower)
    assert all(mark.points == mark.of for mark in marks.values()) and took_s < FILE_S * slower
    marks, took_s = marks_of("03", {"lazy_calls": 1.5 * slower}, 0.0, slower)
    assert [marks[name].points == marks[name].of for name in NAMES] == [True, False, True, True]
    assert took_s <= FILE_S * slower and marks["lazy_calls"].parts[0].sentence.startswith(NO_TIME)
    marks, _ = marks_of("03", {"pool_slices": ENDLESS}, 0.0, slower)
    said = marks["pool_slices"].parts[0].sentence
    assert said.startswith(f"did not end within {SECONDS:g} s, ")  # the same on all machines


def test_how_busy_the_machine_is(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for load, times in ((0.0, 1.0), (2.0, 1.0), (5.0, 2.5), (100.0, sandbox.BUSIEST)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0), raising=False)
        assert sandbox.busy() == times
    monkeypatch.delattr(os, "getloadavg")
    assert sandbox.busy() == 1.0


def test_ranks_share_the_time_of_their_file(marks_of):
    marks, took_s = marks_of("01", dict.fromkeys(("ring_cost", "allreduce"), ENDLESS))
    assert marks["slices"].points and marks["ring_seconds"].points
    assert marks["allreduce"].parts[0].sentence.startswith(NO_TIME) and took_s == 5.0 + 3.5


def test_a_hidden_case_without_time_is_not_called_wrong(marks_of):
    marks, _ = marks_of("03", {"step_seconds": 1.1})
    said = marks["step_seconds"].parts[0].sentence
    assert said.startswith(NO_TIME) and "a case of the teacher's seed" in said
