"""Options of all lessons: nonsense in a number, a link or a folder is refused before the run."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import kit
from kit import checks
from refgf import launch
from refgf.cluster.like import HERE

LESSONS = sorted((Path(__file__).resolve().parents[2] / "lessons").glob("[0-9]*.py"))
NONSENSE = ["nan", "-nan", "inf", "-inf", "-1", "0", "1e300", "banana", "", "9" * 5000, "²"]
REFUSALS = "wanted", "invalid", "expected", "unrecognized"  # the last three are argparse's
LINKS = ["1gbit,1e300s", "1e-300gbit,1s", "nan,nan", "banana", ",", "-1gbit,1us", "0bit,0s"]


@pytest.fixture(scope="module", params=LESSONS, ids=lambda path: path.stem)
def lesson(request):
    """A lesson, as its script makes it, that has not begun."""
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kit.Lesson, "main", lambda lesson, measure, draw: made.append(lesson))
        runpy.run_path(str(request.param), run_name="__main__")
    return made[0]


@pytest.fixture
def given(lesson, monkeypatch, capsys, tmp_path):
    """given(argument, ...): the lesson's options, or the sentence with which it refuses them."""

    def parse(*arguments):
        arguments = ["--output", str(tmp_path), *arguments]
        monkeypatch.setattr(sys, "argv", [lesson.name, *arguments])
        try:
            return lesson._parse()
        except SystemExit as end:
            said = capsys.readouterr().err
            assert end.code == 2 and "error: " in said, (arguments, said)
            return said.split("error: ")[1]

    return parse


def numbers(lesson):
    return [each for each in lesson.parser._actions if each.type not in (None, Path)]


@pytest.mark.parametrize("text", NONSENSE)
def test_a_number_is_refused_or_within_its_range(lesson, given, text):
    for action in numbers(lesson):
        least, most = checks.RANGES[action.dest]  # every number has one
        found = given(action.option_strings[0], text)
        if isinstance(found, str):
            assert any(word in found for word in REFUSALS), found
            continue
        assert text in ("0", "inf", "1e300") or action.dest == "theta", (action.dest, text)
        value = getattr(found, action.dest)
        for one in value if isinstance(value, list) else [value]:
            assert least <= one <= most


@pytest.mark.parametrize("text", LINKS)
@pytest.mark.parametrize("name", ["--link", "--slow-store"])
def test_a_link_is_refused(lesson, given, name, text):
    if name in lesson.parser._option_string_actions:
        assert "next: " in given(f"{name}={text}")


@pytest.mark.parametrize("text", ["nan", "banana", "", "-1gbit", "0gbit", "1e300gbit"])
def test_a_rate_is_refused(lesson, given, text):
    if "--inside" in lesson.parser._option_string_actions:
        assert "next: " in given(f"--inside={text}")


def test_the_default_numbers_are_within_their_ranges(given):
    assert not isinstance(given(), str)


def test_folders_that_cannot_be_written(lesson, given, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    for name in ("--output", "--checkpoints"):
        if name in lesson.parser._option_string_actions:
            for text in (tmp_path / "file", tmp_path / "file" / "below", "/proc/none", "a\0b"):
                found = given(name, str(text))
                assert f"{name} " in found and "wanted a folder that can be written" in found
    monkeypatch.setenv("REFGF_TRACE_DIR", str(tmp_path / "file"))
    assert "REFGF_TRACE_DIR" in given()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_missing_matplotlib_is_said_before_the_run(given, monkeypatch):
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    assert "got no matplotlib; next: " in given()


@pytest.mark.parametrize("on_machine", [8, 4])
def test_several_machines_are_measured_as_they_are(lesson, given, monkeypatch, on_machine):
    """What a lesson emulates on one machine would be waited for on top of a real network."""
    monkeypatch.delenv("REFGF_CLUSTER", raising=False)
    monkeypatch.setattr(launch, "job", replace(launch.job, size=8, on_machine=on_machine))
    found = given()
    wanted = (lesson.link, lesson.like) if on_machine == 8 else (None, lesson.like and HERE)
    assert (found.link, getattr(found, "like", None)) == wanted
    if lesson.like:
        assert given("--like", "v100-56gbit").like == "v100-56gbit"
        assert given("--link", "1gbit,1ms").like is None
