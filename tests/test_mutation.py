"""The mutation tester itself, on a small project with one tested and one untested function."""

from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="next: pip install 'cosmic-ray>=8.4'")
from tests import mutation

PYTEST = """[tool.pytest.ini_options]
markers = ["long: takes minutes"]
addopts = "-p no:refgf"   # the plugin of the installed refgf
"""
TESTED = """def half(n):
    return n // 2
"""
UNTESTED = """def double(n):
    return 2 * n
"""
TEST = """from refgf.comm import toy

def test_half():
    assert [toy.half(n) for n in (0, 1, 2, 9)] == [0, 0, 1, 4]
"""


@pytest.fixture
def project(tmp_path):
    def write(name, text):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write("pyproject.toml", PYTEST)
    write("refgf/__init__.py", "")  # otherwise the installed refgf is imported in its place
    write("refgf/comm/__init__.py", "")
    write("refgf/comm/toy.py", TESTED)
    write("tests/comm/test_toy.py", TEST)
    return tmp_path


def mutate(project, *arguments):
    return mutation.main(["--sample", "3", "--seed", "1", "--jobs", "1", *arguments], project)


def test_wrong_variants_are_killed(project, capsys):
    assert mutate(project) == 0
    assert "killed 2 of 2: 100%" in capsys.readouterr().out  # // and 2
    assert (project / "refgf/comm/toy.py").read_text() == TESTED


def test_survivors_are_shown_and_fail(project, capsys):
    (project / "refgf/comm/toy.py").write_text(UNTESTED + "\n\n" + TESTED)
    assert mutate(project, "--sample", "4", "--floor", "0.9") == 1
    told = capsys.readouterr().out
    assert "killed 2 of 4: 50%" in told and told.count("\n-    return 2 * n\n+") == 2


def test_tests_that_fail_on_unchanged_code_judge_nothing(project, capsys):
    (project / "tests/comm/test_toy.py").write_text(TEST + "    assert False\n")
    assert mutate(project) == 1
    told = capsys.readouterr().out
    assert "got no verdict on 2 changes" in told and "assert False" in told


def test_no_test_begins_after_the_time_is_over(project, capsys):
    assert mutate(project, "--minutes", "0") == 1
    assert "verdicts on 0" in capsys.readouterr().out


def test_tests_are_those_named_after_the_module(tmp_path):
    for name in ("comm/test_ring.py", "comm/test_ring_more.py", "comm/test_tree.py"):
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).touch()
    named = [Path("tests/comm/test_ring.py"), Path("tests/comm/test_ring_more.py")]
    assert mutation.tests_of(Path("refgf/comm/ring.py"), tmp_path) == named
    assert mutation.tests_of(Path("refgf/comm/direct.py"), tmp_path) == [Path("tests/comm")]
    (tmp_path / mutation.GOLDEN).parent.mkdir()
    (tmp_path / mutation.GOLDEN).touch()
    assert mutation.tests_of(Path("refgf/comm/ring.py"), tmp_path) == [*named, mutation.GOLDEN]


def test_the_interval():
    """Wilson 1927: 8 of 10 gives 0.49 to 0.94."""
    assert [round(end, 2) for end in mutation.interval(8, 10)] == [0.49, 0.94]
    low, high = mutation.interval(40, 40)
    assert 0.9 < low < 0.92 and high == pytest.approx(1)
