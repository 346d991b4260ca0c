"""Sentences for Otter's tests in OK format: each prints one part's sentence.

https://otter-grader.readthedocs.io/en/latest/test_files/python_format.html
"""

import contextlib
import shutil
from pathlib import Path

from refgf.course.autograder import submission

COPY = Path("tests") / "autograder"  # Otter's copy of this bundle, in the submission's folder


def leave_only_the_file(folder: Path) -> None:
    """Remove all else of a submission, and name the file after its lesson.

    Otter's kernel starts in this folder and imports from it: a file pandas.py would run in there.
    """
    lesson, _ = submission.settings()
    data = None
    with contextlib.suppress(ValueError):  # none: the marks say so
        data = submission.submitted_file(folder, lesson).read_bytes()
    shutil.rmtree(folder)
    folder.mkdir()
    if data is not None:
        (folder / f"{lesson}.py").write_bytes(data)


def sentence(exercise: int, part: int) -> str:
    """That of the submission in the working folder.

    Otter's copy of this bundle is removed: on a system without a wall the file could read it.
    """
    shutil.rmtree(COPY, ignore_errors=True)
    return submission.sentence(Path.cwd(), exercise, part)
