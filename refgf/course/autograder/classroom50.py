"""Marks as Classroom 50's result.json, in the student's checkout.

https://github.com/foundation50/classroom50/wiki/Advanced-Autograding
"""

import json
import os
import time
from pathlib import Path

from refgf.course.autograder.submission import marks_of_folder, settings
from refgf.oracle.grade.mark import Mark
from refgf.oracle.grade.report import as_text, totals


def main() -> int:
    """Classroom 50 starts it in the checkout and gives the identity in the environment."""
    lesson, seed = settings()
    marks, problem = marks_of_folder(Path.cwd(), lesson, seed)
    Path("result.json").write_text(json.dumps(as_result(marks), indent=1) + "\n")
    lines = (problem or as_text(marks)).splitlines()
    Path("release-body.md").write_text("".join(f"    {line}\n" for line in lines))
    return 0


def as_result(marks: list[Mark]) -> dict:
    given = os.environ
    points, of = totals(marks)
    return {
        "schema": "classroom50/result/v1",
        "classroom": given["CLASSROOM"],
        "assignment": given["ASSIGNMENT"],
        "assignment_type": given.get("ASSIGNMENT_TYPE", "individual"),
        "owner": given.get("OWNER") or given.get("USERNAME", ""),
        "submission": given["SUBMISSION_TAG"],
        "commit": given["COMMIT_URL"],
        "release": given["RELEASE_URL"],
        "review": given.get("REVIEW_URL") or given["COMMIT_URL"],
        "datetime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "score": points,
        "max-score": of,
        "tests": [
            {
                "test-name": f"{mark.name}: {part.what}",
                "passed": part.points == part.of,
                "score": part.points,
                "max-score": part.of,
                "output": part.sentence or "right",
            }
            for mark in marks
            for part in mark.parts
        ],
    }
