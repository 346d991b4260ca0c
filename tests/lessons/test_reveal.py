"""What a lesson says of its numbers fits the screen, for its committed figure and for a guess."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from docs.tools import gains
from kit.claims import FAILS, GAIN, NOT_JUDGED, NOT_MEASURED, Claim, Verdict, verdicts
from kit.guess import Guess
from kit.reveal import COLUMNS, LINES, ROWS, Reveal, Row, columns, short, table_of
from kit.words import number_of_bytes, question

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))
ABOVE = (2, ">", 1)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda file: file.stem)
def test_a_committed_figure_revealed(lesson):
    """Rows, at most ROWS of them, each once; an answer; nothing wider than the screen."""
    result = json.loads((ROOT / "figures" / f"{lesson.stem}.json").read_text())
    reveal = gains.reveal_of(lesson)
    rows = [row.cells() for row in reveal.rows(result)]
    assert 1 <= len(rows) <= ROWS and len({row[0] for row in rows}) == len(rows), rows
    lines = reveal.lines(result, verdicts(reveal.claims, result))
    assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS, "\n".join(lines)
    answer = reveal.answer(result)
    assert answer and not answer.endswith(".") and len(answer) + len("    Measured: .") <= COLUMNS
    assert reveal.ask.endswith("?") and len(reveal.ask) <= COLUMNS and reveal.picture


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda file: file.stem)
def test_the_words_of_a_picture_are_those_of_its_lesson(lesson):
    """The site shows those of the JSON to readers who do not see the picture."""
    words = gains.figure(lesson.stem)["alt"]
    assert words == gains.reveal_of(lesson).picture, "next: python docs/tools/gains.py"


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda file: file.stem)
def test_the_question_does_not_hold_the_answer(lesson):
    result = json.loads((ROOT / "figures" / f"{lesson.stem}.json").read_text())
    reveal = gains.reveal_of(lesson)
    above = question(lesson.read_text().split('"""')[1]) + reveal.ask
    assert reveal.answer(result) not in above


def test_a_row_compares_measured_and_predicted():
    timing = {"median_s": 0.002, "low_s": 0.001, "high_s": 0.003}
    assert Row("a call", timing, 0.001).cells() == ["a call", "2 ms", "1 ms", "50%"]
    assert Row("short", 4.27, 0.52).cells()[-1] == Row("long", 0.52, 4.27).cells()[-1] == "8.2 x"
    assert Row("none", 1.0, 0.0).cells()[-1] == "inf x"
    assert Row("sent", 2048, unit=number_of_bytes).cells() == ["sent", "2 KiB", "", ""]
    assert Row("not measured", None, 0.5).cells() == ["not measured", "", "500 ms", ""]


def test_columns_are_aligned():
    assert table_of(["what", "s"], [["eager", "1.25"], ["a", ""]]) == [
        "what      s",
        "eager  1.25",
        "a",
    ]
    assert table_of(["what"], []) == []


def test_what_does_not_hold_comes_first():
    claims = [
        Claim("first", lambda r: ABOVE, ""),
        Claim("a gain", lambda r: ABOVE, "", kind=GAIN),
        Claim("wrong", lambda r: ABOVE[::-1], "the weather"),
        Claim("elsewhere", lambda r: None, ""),
    ]
    decided = verdicts(claims, {})
    lines = short(decided, 4)
    assert [line.split(":")[0] for line in lines[:2]] == [
        f"- {FAILS} (by 2.00 x)",
        "- holds (by 2.00 x)",
    ]
    assert "a gain" in lines[1] and "first" in lines[2] and "2 of 4 claims hold" in lines[3]
    assert f"1 {NOT_MEASURED}" in lines[3] and short(decided, 1) == lines[3:]
    unjudged = [Verdict("", NOT_JUDGED)] * 3
    assert short(unjudged, 4) == ["of 3 claims none is decided, 3 not judged; -v prints them all."]
    assert "1 of 1 claims hold, 3 not judged" in short([decided[0], *unjudged], 4)[-1]


def test_no_claims_and_no_rows():
    reveal = Reveal((), lambda r: [], "Which?", lambda r: "none", Guess("1 x"))
    assert reveal.lines({}, []) == []


@pytest.mark.parametrize("wide, text", [(80, 80), (200, 100), (10, 40)])
def test_text_is_as_wide_as_a_narrow_terminal(wide, text, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(wide))
    assert columns(SimpleNamespace(isatty=lambda: True)) == text
    assert columns(SimpleNamespace(isatty=lambda: False)) == 100  # a pipe, a file
