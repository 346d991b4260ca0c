"""Marks as Gradescope's results.json: one test for each part of an exercise.

https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""

import json
import sys
import time
from pathlib import Path

from refgf.course.autograder.submission import marks_of_folder, settings
from refgf.oracle.grade.mark import Mark
from refgf.oracle.grade.report import totals


def main() -> int:
    """The argument is the folder with submission/ and results/, on Gradescope /autograder."""
    root, began_s = Path(sys.argv[1]), time.monotonic()
    lesson, seed = settings()
    marks, problem = marks_of_folder(root / "submission", lesson, seed)
    results = as_results(marks, problem)
    results["execution_time"] = round(time.monotonic() - began_s)
    (root / "results").mkdir(exist_ok=True)
    (root / "results" / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0


def as_results(marks: list[Mark], problem: str) -> dict:
    points, of = totals(marks)
    tests = [
        {
            "name": f"{mark.name}: {part.what}",
            "number": f"{i}.{k}",
            "score": part.points,
            "max_score": part.of,
            "status": "passed" if part.points == part.of else "failed",
            "output": part.sentence or "right",
            "visibility": "visible",
        }
        for i, mark in enumerate(marks, start=1)
        for k, part in enumerate(mark.parts, start=1)
    ]
    output = problem or f"{points} of {of} points"
    return {"output": output, "output_format": "text", "visibility": "visible", "tests": tests}
