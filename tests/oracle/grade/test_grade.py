"""Marking foreign code: it cannot cheat, hang or write its marks; each failure has a sentence."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from refgf.oracle import __main__ as oracle
from refgf.oracle.grade import collective, marking, report, sandbox, student_process
from refgf.oracle.grade.difference import SHOWN, brief, difference
from refgf.oracle.grade.encoding import decoded, encoded, in_bytes
from refgf.oracle.grade.sandbox import Sandbox
from tests.support import students
from tests.support.students import ROOT, InThisProcess, answers_with

STARTER = ROOT / "lessons" / "student" / "01.py"
ANSWERS = students.ANSWERS / "01.py"


def run(*arguments):
    command = [sys.executable, "-m", "refgf.oracle", "grade", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)


def graded(tmp_path, code, before="", only=""):
    """The marks by name of the answers to lesson 01 with this code behind them."""
    return answers_with(tmp_path, "01", code, before=before, only=only)


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(marking, "Sandbox", InThisProcess)


@pytest.fixture
def two_exercises(monkeypatch):
    """Those of lesson 01 that need no ranks: an attacked one, and one behind it."""
    every = marking.exercises_of
    monkeypatch.setattr(marking, "exercises_of", lambda lesson: every(lesson)[1::2])


BODY = "\ndef ring_cost(n, p, rank):\n    {}\n"
ATTACKS = {
    "an endless loop": ("while True: pass", "did not end within 3 s"),
    "an exit": ("import os; os._exit(0)", "ended its process with exit code 0"),
    "SystemExit": ("exit(0)", "ended the program (SystemExit) (line"),
    "the answers imported": (
        "from refgf.oracle.definitions import ring_traffic; return ring_traffic(n, p, rank)",
        "may not import refgf",
    ),
    "the answers read": (
        f"return eval(open({str(ROOT / 'refgf/oracle/spec/ring.py')!r}).read())",
        "may not read",
    ),
    "the judge's memory read": (
        "import os; open(f'/proc/{os.getppid()}/environ').read(); return 1, 1",
        "may not read /proc/",
    ),
    "10 GB of memory": ("x = np.ones(10 * 2**27); return 1, 1", "ran out of memory"),
    "a file written": ("open('marks.json', 'w'); return 1, 1", "may not write marks.json"),
    "another process": ("import os; os.system('true'); return 1, 1", "may not use os.system"),
    "the network": (
        "import socket; socket.create_connection(('127.0.0.1', 9)); return 1, 1",
        "may not use socket",
    ),
    "its judge killed": ("import os; os.kill(os.getppid(), 9); return 1, 1", "may not use os.kill"),
    "mpi4py": ("from mpi4py import MPI; return 1, 1", "may not import mpi4py"),
    "a crash": ("import os; os.abort()", "its process ended with SIGABRT"),
}


@pytest.mark.parametrize("body, sentence", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.usefixtures("two_exercises", "impatient")
def test_an_attack_costs_its_exercise_only(tmp_path, body, sentence):
    marks = graded(tmp_path, BODY.format(body))
    cost = marks.pop("ring_cost")
    assert cost.points == 0 and sentence in cost.parts[0].sentence, cost
    assert marks and all(mark.points == mark.of for mark in marks.values()), marks
    assert not list(tmp_path.glob("marks*"))


IN_EVERY_EXERCISE = {
    "an exit": ("import os; os._exit(0)", "ended its process with exit code 0"),
    "the answers imported": ("from refgf.oracle import definitions", "may not import refgf"),
    "10 GB of memory": ("[0] * 10**10", "ran out of memory"),
}


@pytest.mark.parametrize("lesson", ["00", "06", "15"])
def test_attacks_cost_their_exercises(tmp_path, lesson):
    """One attack in each of the exercises that follow the given one."""
    names = [exercise.name for exercise in marking.exercises_of(lesson)][1:]
    attacks = dict(zip(names, IN_EVERY_EXERCISE.values()))
    code = "".join(f"\ndef {name}(*a):\n    {body}\n" for name, (body, _) in attacks.items())
    for name, mark in answers_with(tmp_path, lesson, code).items():
        points, sentence = (0, attacks[name][1]) if name in attacks else (mark.of, "")
        assert mark.points == points and sentence in mark.parts[0].sentence, mark


@pytest.mark.usefixtures("impatient")
def test_an_endless_import_is_waited_for_once(tmp_path):
    marks = graded(tmp_path, "", before="while True: print('y')\n")
    assert not any(mark.points for mark in marks.values())
    for mark in marks.values():
        assert "cannot be imported: it did not end within 3 s" in mark.parts[0].sentence


def test_the_answers_imported_at_the_top(tmp_path):
    marks = graded(tmp_path, "", before="from refgf.oracle.definitions import *\n")
    assert not any(mark.points for mark in marks.values())
    sentence = marks["slices"].parts[0].sentence
    assert "may not import refgf.oracle" in sentence and "(line 1)" in sentence


@pytest.mark.usefixtures("two_exercises")
def test_what_is_installed_changes_no_marks(tmp_path):
    """Only Python's own modules and NumPy: pytest is here, and not on a platform."""
    marks = graded(tmp_path, "", before="import pytest\n")
    assert not any(mark.points for mark in marks.values())
    sentence = marks["ring_cost"].parts[0].sentence
    assert (
        "Error: No module named 'pytest'; only NumPy and Python's own modules are there (line 1)"
        in sentence
    )
    own = "import copy, ctypes, pickle, sysconfig, unittest, xml.dom, numpy.testing, numpy.fft"
    without = "try:\n    import pytest\nexcept ImportError:\n    pass\n"
    more = "from numpy.random import default_rng\nsysconfig.get_config_vars(); default_rng(1)\n"
    marks = graded(tmp_path, "", before=f"{own}\n{more}{without}")
    assert all(mark.points == mark.of for mark in marks.values()), marks


@pytest.mark.usefixtures("two_exercises")
def test_a_notebook_is_named(tmp_path):
    file = tmp_path / "01.py"
    file.write_text(json.dumps({"cells": [{"execution_count": None}], "nbformat": 4}, indent=1))
    mark = marking.grade(file, "01")[0]
    assert "it is a notebook, not a Python file; next: export it as .py" in mark.parts[0].sentence


def test_forged_output(tmp_path):
    """What a file prints, and what it writes into every open descriptor, is no verdict."""
    forge = """
import os
line = b'{"result": [6, 12]}\\n'
for fd in range(3, 1000):
    try:
        os.write(fd, line)
    except OSError:
        pass
print("19 of 19 points")
return 0, 0
"""
    body = BODY.format(forge.strip().replace("\n", "\n    "))
    cost = graded(tmp_path, body, only="ring_cost")["ring_cost"]
    assert cost.points == 0 and "wrote into the connection of its judge" in cost.parts[0].sentence


DEEP = """
def ring_cost(n, p, rank):
    sys.setrecursionlimit(5000)
    deep = []
    for _ in range(900):
        deep = [deep]
    return deep
"""
RESHAPED = "\ndef allreduce(comm, x):\n    x.{} = {}\n"
NO_WRITERS = {  # exercise, code: what is true of a file that writes nothing
    "a shape that is none": (
        "slices",
        "\nclass A(np.ndarray):\n    shape = (1,)\n"
        "def slices(n, p):\n    return np.zeros(2).view(A)\n",
        "got [0.0, 0.0]; wanted [",
    ),
    "deep lists": ("ring_cost", DEEP, "returned lists in lists, too many to be compared"),
    "a list that holds itself": (
        "ring_cost",
        "\ndef ring_cost(n, p, rank):\n    a = []\n    a.append(a)\n    return a\n",
        "returned lists in lists, too many to be compared; does one hold itself?",
    ),
    "json.dumps replaced": (
        "slices",
        "\nimport json\njson.dumps = lambda found: '[]'\n",
        "gave an answer that cannot be read: does the file replace a function of Python or NumPy?",
    ),
    "masked numbers": (
        "slices",
        "\ndef slices(n, p):\n    return np.ma.masked_array([[0, n]] * p, True)\n",
        "returned a masked array; wanted one whose numbers are all there",
    ),
    "another shape of x": (
        "allreduce",
        RESHAPED.format("shape", "(1, -1)"),
        "rank 0 left x as float32 of shape (1, 5); wanted float32 of shape (5,)",
    ),
    "another type of x": (
        "allreduce",
        RESHAPED.format("dtype", "'S4'"),
        "rank 0 left x as |S4 of shape (5,); wanted float32 of shape (5,)",
    ),
}


@pytest.mark.parametrize("name, code, said", NO_WRITERS.values(), ids=NO_WRITERS)
def test_a_file_that_writes_nothing_is_not_accused(tmp_path, name, code, said):
    sentence = graded(tmp_path, code, "import sys\n", name)[name].parts[0].sentence
    assert said in sentence and "judge" not in sentence


@pytest.mark.parametrize(
    "body, unwritten",
    [
        ("raise NotImplementedError", True),
        ("if rank:\n        return n\n    raise NotImplementedError", False),
        ("return n if rank else never()", False),
        ("class E(NotImplementedError):\n        __traceback__ = None\n    raise E", False),
    ],
)
def test_what_raises_for_some_cases_is_written(tmp_path, body, unwritten):
    """The starter's last line may stand below a student's own."""
    code = BODY.format(body) + "\n\ndef never():\n    raise NotImplementedError\n"
    cost = graded(tmp_path, code, only="ring_cost")["ring_cost"]
    sentences = [part.sentence for part in cost.parts]
    assert sentences[0].startswith("not written yet") is unwritten
    assert ("not judged" in sentences) is unwritten
    assert unwritten or any(
        s.startswith(("raised NotImplementedError (line", "raised E,")) for s in sentences
    )


def test_an_error_with_the_words_of_a_refusal_ends_nothing(tmp_path):
    """Only what was refused is not started again."""
    body = BODY.format("raise RuntimeError('a rank may not read this')")
    cost = graded(tmp_path, body, only="ring_cost")["ring_cost"]
    assert all("raised RuntimeError" in part.sentence for part in cost.parts)


FAILURES = {
    "no function": ("\ndel ring_cost\n", "absent: the file has no function ring_cost"),
    "an exception": (
        BODY.format("return 1 / (n - n)"),
        "raised ZeroDivisionError: division by zero",
    ),
    "an exception that cannot be printed": (
        BODY.format("raise ValueError(chr(0xD800))"),
        "raised ValueError: \\ud800",
    ),
    "text": (BODY.format("return 'six'"), "for ring_cost(8, 4, 0): got 'six'; wanted [6, 12]"),
    "nothing": (
        BODY.format("n += 1"),
        "for ring_cost(8, 4, 0): got None; wanted [6, 12]: is a return missing?",
    ),
    "a set": (BODY.format("return {1}"), "returned set; wanted numbers"),
    "too many arguments": (
        "\ndef ring_cost(n):\n    return n\n",
        "raised TypeError: ring_cost() takes",
    ),
}


@pytest.mark.parametrize("code, sentence", FAILURES.values(), ids=FAILURES)
@pytest.mark.usefixtures("two_exercises")
def test_a_failure_has_a_sentence(tmp_path, code, sentence):
    cost = graded(tmp_path, code)["ring_cost"]
    assert cost.points == 0 and sentence in cost.parts[0].sentence, cost
    if "raised Zero" in sentence:
        assert f"(line {len(ANSWERS.read_text().splitlines()) + 3})" in cost.parts[0].sentence


def test_a_syntax_error_names_its_line(tmp_path):
    marks = graded(tmp_path, "\ndef f(:\n", only="slices")
    assert "SyntaxError" in marks["slices"].parts[0].sentence
    assert (
        f"(line {len(ANSWERS.read_text().splitlines()) + 2})" in marks["slices"].parts[0].sentence
    )


@pytest.mark.usefixtures("in_this_process")
def test_a_sum_that_is_returned_gets_a_hint(tmp_path):
    code = "\ndef allreduce(comm, x):\n    return x + 1\n"
    values = graded(tmp_path, code, only="allreduce")["allreduce"].parts[0]
    assert "it returns the sum; wanted x changed in place" in values.sentence


@pytest.mark.usefixtures("in_this_process")
def test_a_new_array_on_one_rank_gets_a_hint(tmp_path):
    """x = x + other on rank 0 only: the other ranks receive into x."""
    code = """
def allreduce(comm, x):
    if comm.Get_rank() == 0:
        other = np.empty_like(x)
        for source in range(1, comm.Get_size()):
            comm.Recv(other, source)
            x = x + other
        for dest in range(1, comm.Get_size()):
            comm.Send(x, dest)
    else:
        comm.Send(x, 0)
        comm.Recv(x, 0)
"""
    values = graded(tmp_path, code, only="allreduce")["allreduce"].parts[0]
    assert "x is unchanged on rank 0: receive or add into x itself" in values.sentence


@pytest.mark.usefixtures("in_this_process")
def test_a_deadlock_names_the_ranks(tmp_path):
    code = "\ndef allreduce(comm, x):\n    comm.Recv(x, (comm.Get_rank() + 1) % comm.Get_size())\n"
    values = graded(tmp_path, code, only="allreduce")["allreduce"].parts[0]
    assert "deadlock: rank 0 waits to receive from rank" in values.sentence


@pytest.mark.usefixtures("in_this_process")
def test_callers_are_told_once_what_to_mend_first(tmp_path):
    code = """
def slices(n, p):
    return [(i * (n // p), (i + 1) * (n // p)) for i in range(p)]

def ring_cost(n, p, rank):
    return 2 * (p - 1), 2 * n - longest(n, p) if p > 1 else 0

def longest(n, p):
    return max(stop - start for start, stop in slices(n, p))
"""
    marks = graded(tmp_path, code)
    said = {
        name: [part.sentence for part in mark.parts if part.sentence]
        for name, mark in marks.items()
    }
    named = {name: ["mend" in each for each in each_said] for name, each_said in said.items()}
    assert True not in named["slices"]
    for name in ("ring_cost", "allreduce"):
        assert said[name][0].startswith("it calls slices, which may be why: mend that first; ")
        assert named[name] == [True, *[False] * (len(said[name]) - 1)]
    others = graded(tmp_path, BODY.format("return 0, 0"))  # slices are right
    assert "mend" not in str(others)


@pytest.mark.parametrize(
    "gradient, caller, said",
    [
        ("return RIGHT(w, x, y).tolist()", "2 * RIGHT_STEP(w, xs, ys, rate)[0]", False),
        ("return RIGHT(w, x, y).tolist()", "w - rate * gradient(w, xs[0], ys[0])", True),  # raises
        ("return 2 * RIGHT(w, x, y)", "2 * RIGHT_STEP(w, xs, ys, rate)[0]", True),
        ("return RIGHT(w, x, y)[None]", "RIGHT_STEP(w, xs, ys, rate)[0][None]", True),
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_right_numbers_of_another_type_are_no_callers_mistake(tmp_path, gradient, caller, said):
    """Except where the caller stumbles over that type, or returns it."""
    code = f"""
RIGHT, RIGHT_STEP = gradient, step_on_ranks
def gradient(w, x, y):
    {gradient}
def step_on_ranks(w, xs, ys, rate):
    gradient(w, xs[0], ys[0])
    return [{caller} for _ in xs]
"""
    marks = answers_with(tmp_path, "00", code)
    assert ("the numbers are right" in str(marks["gradient"])) == ("2 *" not in gradient)
    assert ("which may be why: mend that first" in str(marks["step_on_ranks"])) == said


def test_files_that_are_marked_at_once_leave_stdout_alone(tmp_path, monkeypatch):
    """A thread a file: two that redirect it leave it redirected, and the marks are not printed."""
    monkeypatch.setattr(contextlib, "redirect_stdout", None)
    marks = graded(tmp_path, "\ndef allreduce(comm, x):\n    pass\n", only="allreduce")
    assert "x is unchanged on rank 0" in marks["allreduce"].parts[0].sentence


def test_no_function_is_to_be_mended_where_the_import_fails(tmp_path):
    sentences = str(graded(tmp_path, "import absent\n"))
    assert "No module named 'absent'" in sentences and "mend" not in sentences


def test_messages_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(collective, "MESSAGES", 20)
    code = "\ndef allreduce(comm, x):\n    while True:\n        comm.Isend(x, 0)\n"
    values = graded(tmp_path, code, only="allreduce")["allreduce"].parts[0]
    assert "did not end within 20 messages or 16 MiB of a rank" in values.sentence


@pytest.mark.usefixtures("in_this_process")
def test_the_same_marks_twice(tmp_path):
    code = BODY.format("return 2 * (p - 1), n")
    first, second = graded(tmp_path, code), graded(tmp_path, code)
    assert first == second and report.as_text(list(first.values()))


@pytest.mark.usefixtures("in_this_process")
def test_a_teachers_seed_judges_other_cases(tmp_path):
    """A table of the public cases' answers gets the public marks only."""
    asked = tmp_path / "mine.py"
    part = marking.exercises_of("01")[0].parts[0]
    cases = [(int(n), int(p)) for n, p in part.cases(marking.source(marking.PUBLIC_SEED, part))]
    table = {(n, p): [(i * (n // p), (i + 1) * (n // p)) for i in range(p)] for n, p in cases}
    asked.write_text(f"TABLE = {table}\ndef slices(n, p):\n    return TABLE.get((n, p), [])\n")
    public, hidden = (marking.grade(asked, "01", seed)[0].parts[0] for seed in (None, 7))
    assert public.points == 1 and hidden.points == 0


def test_the_command(tmp_path):
    both = run(
        "01_ring_allreduce",
        STARTER,
        ANSWERS,
        "--csv",
        tmp_path / "c.csv",
        "--json",
        tmp_path / "j.json",
    )
    lines = (tmp_path / "c.csv").read_text().splitlines()
    names = ["ring_cost", "allreduce", "ring_seconds"]
    assert lines[0] == f"file,points,of,slices,{','.join(names)},not judged,answers,lesson,seed"
    unwritten = "; ".join(f"{name}: not written" for name in names)
    assert lines[1:] == [
        f"{STARTER},3,19,3,0,0,0,{unwritten},01,01,",
        f"{ANSWERS},19,19,3,5,8,3,,01,01,",
    ]
    assert both.returncode == 1
    assert "3 of 19 points (16%)" in both.stdout and "19 of 19 points (100%)" in both.stdout
    assert max(map(len, both.stdout.splitlines())) <= 100
    first, _ = json.loads((tmp_path / "j.json").read_text())
    assert first["points"] == 3 and first["exercises"][1]["parts"][0]["sentence"]


def test_a_files_name_that_is_no_text_is_in_the_table(tmp_path):
    names = [tmp_path / os.fsdecode(name) for name in (b"Lef\xe8vre.py", b"a\n.py")]
    for name in names:
        name.write_text("")
    job = run("01", *names, "--csv", tmp_path / "c.csv")
    assert job.returncode == 1, job.stderr
    rows = (tmp_path / "c.csv").read_text().splitlines()[1:]
    shown = [rf"{tmp_path}/Lef\udce8vre.py,0,19,", rf"{tmp_path}/a\n.py,0,19,"]
    assert [row[: len(name)] for row, name in zip(rows, shown)] == shown


def test_a_file_that_cannot_be_read_stops_nobodys_marks(tmp_path):
    """Nor does a link earn its neighbour's."""
    anna, large, folder, link, nowhere = (tmp_path / f"{name}.py" for name in "abcde")
    anna.write_bytes((students.ANSWERS / "03.py").read_bytes())
    large.write_text("a;" * sandbox.LARGEST_FILE)
    folder.mkdir()
    link.symlink_to(anna)
    nowhere.symlink_to("absent")
    job = run("03", anna, large, folder, link, nowhere, "--csv", tmp_path / "c.csv")
    assert job.returncode == 1, job.stderr
    rows = list(csv.DictReader((tmp_path / "c.csv").open()))
    assert [row["points"] for row in rows] == ["16", *["0"] * 4]
    assert [row["not judged"] for row in rows] == ["", *["unreadable"] * 4]
    assert "got a link; wanted the file itself" in " ".join(job.stdout.split())


def test_a_file_named_as_a_module_does_not_run_where_marks_are_made(tmp_path):
    """A teacher may stand in the folder of submissions."""
    for name in ("numpy", "json", "argparse", "csv"):
        (tmp_path / f"{name}.py").write_text("import os\nopen('ran', 'w')\nos._exit(0)\n")
    (tmp_path / "anna.py").write_bytes(STARTER.read_bytes())
    command = [sys.executable, "-m", "refgf.oracle", "grade", "01", "anna.py", "json.py"]
    given = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    job = subprocess.run(
        command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=120
    )
    assert job.stdout.count(" of 19 points") == 2 and not (tmp_path / "ran").exists(), job.stderr


def test_marks_of_a_class_are_printed_as_they_come(tmp_path, monkeypatch, capsys):
    """Sixty files take minutes: what is marked is not lost if the command is stopped."""

    def stops(file, *_):
        if file == "b.py":
            raise KeyboardInterrupt
        return [marking.no_points(marking.exercises_of("03")[0], "a test")]

    monkeypatch.setattr(marking, "grade", stops)
    with pytest.raises(KeyboardInterrupt):
        oracle.main(["grade", "03", "a.py", "b.py"])
    assert capsys.readouterr().out.startswith("a.py\npool_slices: 0 of 2 points\n")


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (("99", STARTER), "got lesson '99'; wanted one of"),
        (("01", "nowhere.py"), "got nowhere.py, which is not a file"),
        (("01", STARTER, "--csv", "/nowhere/c.csv"), "wanted a file in an existing"),
    ],
)
def test_wrong_arguments(arguments, sentence):
    job = run(*arguments)
    assert job.returncode == 2 and sentence in job.stderr and not job.stdout


@pytest.mark.parametrize("value", [1, 1.5, "a", None, True, [1, [2.0]], {"a": 1}, {1: [None]}])
def test_values_survive_the_connection(value):
    assert decoded(json.loads(json.dumps(encoded(value)))) == value


ODD = {  # code of a value: what a student reads, "" if it is right for [0, 1, 2]
    "np.arange(3, dtype='>i8')": "",
    "np.arange(6)[::2] // 2": "",
    "np.broadcast_to(np.arange(3), (1, 3))[0]": "",
    "np.arange(3, dtype=np.longdouble)": "got float128 of shape (3,); wanted int64 of (3,)",
    "np.arange(3) + 0j": "returned an array of complex128; wanted one of integers, floats or bool",
    "np.longdouble(1)": "returned longdouble; wanted numbers (int, float, bool), texts",
    "np.complex128(1)": "returned complex128; wanted numbers (int, float, bool), texts",
    "np.datetime64('2020')": "returned datetime64; wanted numbers (int, float, bool), texts",
    "np.void(b'a')": "returned void; wanted numbers (int, float, bool), texts",
    "10**5000": "returned an int of 16610 bits; wanted at most 1023",
    "10**400": "returned an int of 1329 bits; wanted at most 1023",
    "{(0, 1): 2}": "returned a dict with a tuple as key; wanted a number or text",
    "np.arange(3).view(type('A', (np.ndarray,), {'shape': (1, 2), 'dtype': 0}))": "",
    "type('A', (), {'__class__': np.ndarray})()": "returned A; wanted numbers",
    "type('A', (), {'__class__': int, '__int__': lambda a: 1})()": "returned A; wanted numbers",
    "type('A', (np.float64,), {'item': object})(1)": "got 1.0; wanted an array of shape (3,)",
}


@pytest.mark.parametrize("code, sentence", ODD.items(), ids=ODD)
def test_an_odd_value_ends_no_process_and_is_named(code, sentence):
    module = ModuleType("student")
    exec(f"import numpy as np\ndef f(x):\n    x.append({{1}})\n    return {code}", vars(module))
    found = json.loads(
        in_bytes(student_process.answer(module, {"call": "f", "arguments": [[]]}, ""))
    )
    assert found.get("changed", [0]) == [0]
    said = found.get("error") or difference(decoded(found["result"]), np.arange(3))
    assert said.startswith(sentence) and bool(said) == bool(sentence)


def test_an_array_that_a_rank_returns_may_hold_anything():
    module = ModuleType("student")
    module.f = lambda comm, x: x + 0j
    request = {"collective": "f", "x": encoded(np.ones(2)), "rank": 0, "size": 1}
    found = student_process.answer_of_rank(module, request, "", None)
    assert found == {"x": encoded(np.ones(2)), "returned": None}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG")
def test_an_endless_loop_ends_with_the_command_that_is_killed(tmp_path):
    file = tmp_path / "endless.py"
    file.write_text("while True: pass")
    command = [sys.executable, "-m", "refgf.oracle", "grade", "01", str(file)]
    grade = subprocess.Popen(command, cwd=ROOT, stdout=-3, stderr=-3)
    while len(below := descendants(grade.pid)) < 2:  # the keeper and the first process
        assert grade.poll() is None
        time.sleep(0.05)
    grade.kill()
    grade.wait()
    stop_s = time.monotonic() + 10
    while (left := [pid for pid in below if runs(pid)]) and time.monotonic() < stop_s:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def descendants(pid):
    """Process numbers of the children of a process, and of theirs."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # ended meanwhile
            found += map(int, file.read_text().split())
    return found + [each for child in found for each in descendants(child)]


def runs(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_what_is_different():
    assert difference([1, 2], [1, 2]) == "" and difference(1.0, 1) == difference(1, 1.0) == ""
    assert difference(True, 1) != "" and difference([1], [1, 2]) != ""
    two = np.array([np.nan, 1.0])
    assert difference(two, two.copy(), relative=0.1) == "" == difference(two, two.copy())
    assert difference(two, np.array([1.0, 1.0]), relative=0.1) != ""
    assert difference(1.1, 1.0, relative=0.2) == "" and difference(float("nan"), float("nan")) == ""
    nan, inf = float("nan"), float("inf")
    for wrong, right in ((nan, 3.0), (3.0, nan), (nan, inf), (1.0, inf), (-inf, inf)):
        for one, other in ((wrong, right), (np.array([wrong]), np.array([float(right)]))):
            assert difference(one, other) and difference(one, other, relative=0.2), (wrong, right)


def test_an_array_for_a_list_is_right_if_its_items_are():
    two, rows = [1, 3], np.float32([[1, 2, 3], [0, -0.0, 5]])
    assert difference(np.array(two), two) == "" == difference(np.zeros(0), [])
    assert (
        difference(rows, list(rows))
        == ""
        == difference(np.array([[0, 4], [4, 8]]), [[0, 4], [4, 8]])
    )
    assert difference(np.array([1, 2, 4]), two) == "got [1, 2, 4]; wanted [1, 3]"
    assert difference(np.array(0.5), 0.5) == "" != difference(np.array(0.5), 0.25)
    assert difference([0.5], np.array([0.5])).endswith(
        "(1,): the numbers are right; return an array, not a list"
    )
    assert difference(np.array(1), [1]) and difference(np.array([True]), [1])
    assert "got float64 of shape" in difference(rows.astype(float), list(rows))
    assert difference(-rows, list(rows)) and difference(rows[:1], list(rows))


def test_a_sandbox_that_ended_starts_again(tmp_path):
    file = tmp_path / "f.py"
    file.write_text("import os\ndef f(x):\n    return x if x else os._exit(3)\n")
    with Sandbox(file) as sandbox:
        assert sandbox.ask({"call": "f", "arguments": [1]}) == {"result": 1, "changed": []}
        assert "exit code 3" in sandbox.ask({"call": "f", "arguments": [0]})["error"]
        assert sandbox.ask({"call": "f", "arguments": [2]}) == {"result": 2, "changed": []}


@pytest.mark.parametrize(
    "value, shown",
    [
        (np.array([1.0, 2.5]), "array([1.0, 2.5])"),
        (np.zeros((8, 9), np.float32), "float32 of shape (8, 9)"),
        ([np.zeros(100), (2, 3)], "[float64 of shape (100,), (2, 3)]"),
        (list(range(100)), "a list, length 100"),
        ({"a": 1.5}, "{'a': 1.5}"),
    ],
)
def test_a_value_is_shown_whole_or_by_its_size(value, shown):
    assert brief(value) == shown and len(shown) <= SHOWN


@pytest.mark.parametrize("lesson", ["all", "foo", "", "v7", "03x", "03v", "03v7x"])
def test_a_name_without_a_lessons_number_is_refused(lesson):
    """Not read as lesson 00, nor as the published lesson."""
    with pytest.raises(ValueError, match=f"got lesson '{lesson}'; wanted one of 00"):
        marking.exercises_of(lesson)
