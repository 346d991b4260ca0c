"""Every solution is right: its asserts hold, and it answers as many exercises as its lesson asks."""

import re
import runpy
from pathlib import Path

import pytest

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
SOLUTIONS = sorted((LESSONS / "solutions").glob("[0-9][0-9]_*.py"))


@pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda f: f.stem)
def test_solution(solution, monkeypatch):
    monkeypatch.syspath_prepend(str(LESSONS))
    found = runpy.run_path(str(solution))
    exercises = {name: function for name, function in found.items() if re.fullmatch(r"exercise_\d+", name)}
    asked = re.findall(r"^    (\d+)\. ", (LESSONS / solution.name).read_text().split("NOW CHANGE SOMETHING")[1], re.MULTILINE)
    assert [f"exercise_{number}" for number in asked] == list(exercises)
    for function in exercises.values():
        assert function.__doc__  # the answer in words
        function()
