"""Every solution is right: its asserts hold, and it answers all exercises of its lesson."""

import re
import runpy
from pathlib import Path

import pytest

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
SOLUTIONS = sorted((LESSONS / "solutions").glob("[0-9][0-9]_*.py"))


@pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda f: f.stem)
def test_solution(solution, monkeypatch):
    monkeypatch.syspath_prepend(str(LESSONS))
    found = runpy.run_path(str(solution)).values()
    docs = [(f, getattr(f, "__doc__", None) or "") for f in found if callable(f)]
    answers = [f for f, doc in docs if re.match(r"\d+\. ", doc)]
    asked = re.findall(
        r"^    (\d+)\. ",
        (LESSONS / solution.name).read_text().split("NOW CHANGE SOMETHING")[1],
        re.MULTILINE,
    )
    assert [answer.__doc__.split(".")[0] for answer in answers] == asked
    for answer in answers:
        answer()
