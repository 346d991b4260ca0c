"""Sentences for Otter's tests in OK format: each prints one part's sentence.

https://otter-grader.readthedocs.io/en/latest/test_files/python_format.html
"""

import shutil
from functools import cache
from pathlib import Path

from refgf.course.autograder.submission import marks_of_folder, settings
from refgf.oracle.grade.mark import Mark

COPY = Path("tests") / "autograder"  # Otter's copy of this bundle, in the submission's folder


def sentence(exercise: int, part: int) -> str:
    """ "right" or why points are lost. Both numbers count from 0."""
    found = marks()[exercise].parts[part]
    return "right" if found.points == found.of else found.sentence


@cache
def marks() -> list[Mark]:
    """The marks of the submission in the working folder.

    Otter's copy of this bundle is removed: on a system without a wall the file could read it.
    """
    shutil.rmtree(COPY, ignore_errors=True)
    return marks_of_folder(Path.cwd(), *settings())[0]
