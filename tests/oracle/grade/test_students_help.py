"""What a student is told who prints, stops in a debugger, forgets Wait or mistakes an argument."""

import pytest

from refgf.oracle.grade import marking, report
from tests.support.students import InThisProcess, answers_with


@pytest.fixture
def in_a_sandbox(tmp_path):
    """(lesson, code, exercise) -> its mark, as a user gets it: with what the file prints."""

    def mark(lesson, code, name, **more):
        return answers_with(tmp_path, lesson, code, only=name, **more)[name]

    return mark


@pytest.fixture
def marks(in_a_sandbox, monkeypatch):
    monkeypatch.setattr(marking, "Sandbox", InThisProcess)
    return in_a_sandbox


def sentence(mark, what):
    return next(part.sentence for part in mark.parts if part.what == what)


PRINTS = """
def ring_cost(n, p, rank):
    print("n is", n, "\\x1b[2J")
    print("19 of 19 points (100%)\\n" * 30)
    return 2 * (p - 1), 2 * (p - 1) * (n // p)
"""


def test_what_the_first_wrong_call_prints_is_shown_and_is_no_mark(in_a_sandbox):
    mark = in_a_sandbox("01", PRINTS, "ring_cost")
    lines = report.as_text([mark]).splitlines()
    assert "  printed in ring_cost(7, 3, 0):" in lines and "       | n is 7 \\x1b[2J" in lines
    assert lines.count("       | 19 of 19 points (100%)") == 11 and lines[-2] == "       | ..."
    assert lines[-1] == "2 of 5 points (40%)"


def test_a_right_function_shows_its_first_print(in_a_sandbox):
    code = "\nRIGHT = ring_cost\ndef ring_cost(*a):\n    print(a, end='')\n    return RIGHT(*a)\n"
    mark = in_a_sandbox("01", code, "ring_cost")
    assert mark.points == mark.of and mark.printed == ["ring_cost(8, 4, 0)", "(8, 4, 0)"]


@pytest.mark.usefixtures("impatient")
def test_an_endless_print_neither_blocks_nor_fills_the_memory(in_a_sandbox):
    mark = in_a_sandbox(
        "01", "\ndef ring_cost(*a):\n    while True: print('y' * 1000)\n", "ring_cost"
    )
    assert mark.parts[0].sentence.startswith("did not end within")
    assert len("".join(mark.printed)) < 2000 and mark.printed[1].startswith("yyy")


def test_ranks_print_too_and_with_hidden_cases_nothing_is_shown(in_a_sandbox, monkeypatch):
    (exercise,) = (each for each in marking.exercises_of("01") if each.name == "allreduce")
    monkeypatch.setattr(exercise, "shapes", ((1, 5), (2, 4)))
    code = "\nRIGHT = allreduce\ndef allreduce(comm, x):\n    print(x.size)\n    RIGHT(comm, x)\n"
    assert in_a_sandbox("01", code, "allreduce").printed[:2] == ["allreduce, p = 1, n = 5", "5"]
    assert in_a_sandbox("01", code, "allreduce", seed=7).printed == []


@pytest.mark.parametrize("call", ["breakpoint()", "input()"])
def test_a_debugger_has_a_sentence(in_a_sandbox, call):
    code = f"\ndef ring_cost(n, p, rank):\n    {call}\n    return n, p\n"
    assert "but nobody can answer here; next: call the function yourself" in sentence(
        in_a_sandbox("01", code, "ring_cost"), "p divides n"
    )


def test_an_exception_is_compared_without_its_line(in_a_sandbox):
    """Another one, or the same where the mistake has a result, is not named."""
    code = "\ndef gradient(w, x, y):\n    {}\n    return x @ (x @ w - y) / len(y)\n"
    named = "you multiply the errors by x"
    said = sentence(in_a_sandbox("00", code.format("pass"), "gradient"), "several samples")
    assert said.startswith(named) and "(line " in said
    other = in_a_sandbox("00", code.format("if len(y) > 1: raise ValueError('x')"), "gradient")
    assert named not in sentence(other, "several samples")


@pytest.mark.parametrize("seed", range(3))
def test_examples_and_one_call_get_no_point_for_the_ends(marks, seed):
    """theta = 0 has another hidden case than the starter's example."""
    code = """
def lazy_calls(sizes, theta):
    return [(0, 2), (2, 5)] if theta == 0 and sizes == [2, 3] else [(0, sum(sizes))] * bool(sizes)
"""
    assert marks("03", code, "lazy_calls", seed=seed).points == 0


@pytest.mark.parametrize("kept, said", [("kept", True), ("[(1, 1)]", False)])
def test_what_a_file_keeps_between_calls_is_asked_for(in_a_sandbox, kept, said):
    """A student who tries the call that is shown gets the right result."""
    code = f"""
right = lazy_calls
def lazy_calls(sizes, theta, kept=[]):
    kept += right(sizes, theta)
    return {kept}
"""
    mark = in_a_sandbox("03", code, "lazy_calls")
    lost = [part.sentence for part in mark.parts if part.points < part.of]
    assert lost and all(text.startswith("right alone, wrong after") == said for text in lost), lost


def test_a_long_call_is_cut_in_the_line_of_what_it_printed(in_a_sandbox):
    code = "\ndef convolution(*a):\n    print(1)\n"
    text = report.as_text([in_a_sandbox("02", code, "convolution")])
    assert "  printed in convolution([" in text and max(map(len, text.splitlines())) <= 100


def test_a_file_may_set_its_own_environment_variables(in_a_sandbox):
    """As a file does that wants NumPy with one thread. It may start no process that gets them."""
    code = "\nimport os\nos.environ['OMP_NUM_THREADS'] = '1'\ndel os.environ['OMP_NUM_THREADS']\n"
    mark = in_a_sandbox("01", code, "ring_cost")
    assert mark.points == mark.of
