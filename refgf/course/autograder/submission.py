"""The file of a submission and its marks.

Public cases are the same for everybody, hidden ones come from the teacher's seed. A sentence about
a hidden case would show it, so it says only that there is one.
"""

import contextlib
import functools
import json
import os
import sys
from pathlib import Path

import numpy as np

from refgf.oracle.foreign.report import as_name, unsafe
from refgf.oracle.grade import marking
from refgf.oracle.grade.mark import Mark
from refgf.oracle.grade.sandbox import NO_TIME, Sandbox
from refgf.oracle.spec.exercise import Collective, Exercise

ROOT = Path(__file__).resolve().parents[3]  # of the bundle
SETTINGS = ROOT / "course.json"
HIDDEN = "right for the public cases and wrong for a hidden one: make it right for any arguments"


def settings() -> tuple[str, int]:
    """(lesson, seed) of this bundle, which from now on only its owner may read.

    A student's file cannot open it behind a whole wall. This is for a system that has only users.
    """
    found = json.loads(SETTINGS.read_text())
    with contextlib.suppress(OSError):  # another user's, who may have closed it
        os.chmod(SETTINGS, 0o600)
        os.chmod(ROOT, 0o700)
    return found["lesson"], found["seed"]


def submitted_file(folder: Path, lesson: str) -> Path:
    """NN.py in a submission, or the only Python file there. ValueError if neither exists."""
    names = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    files = [path for path in names if path.is_file() and not path.is_symlink()]
    exact = [path for path in files if path.name == f"{lesson}.py"]
    if len(exact or files) != 1:
        others = sorted(folder.glob("*.py*"))  # 01.py.txt
        got = ", ".join(as_name(path.name) for path in (files or others)[:5]) or "no Python file"
        raise ValueError(
            f"submission: got {got}; wanted {lesson}.py; next: submit the starter, filled in, "
            "under its own name"
        )
    return (exact or files)[0]


def marks_of_folder(folder: Path, lesson: str, seed: int) -> tuple[list[Mark], str]:
    """(marks, "") of a submission; (no points, why) if it has no file to mark."""
    try:
        file = submitted_file(folder, lesson)
    except ValueError as error:
        return [marking.no_points(exercise, str(error)) for exercise in exercises(lesson)], str(
            error
        )
    return marks_of_file(file, lesson, seed), ""


def sentence(folder: Path, exercise: int, part: int) -> str:
    """ "right", or why a part of this submission loses its points. Both numbers count from 0."""
    found = marks_once(folder)[exercise].parts[part]
    return "right" if found.points == found.of else found.sentence


@functools.cache  # for a platform that asks about each part
def marks_once(folder: Path) -> list[Mark]:
    return marks_of_folder(folder, *settings())[0]


def marks_of_file(file: Path, lesson: str, seed: int) -> list[Mark]:
    """The marks for public and hidden cases."""
    with np.errstate(all="ignore"):
        marks, still_open = marking.marks_of(file, lesson, functools.partial(marked, seed=seed))
    warn(frozenset(still_open))
    return marks


@functools.cache  # once for a class
def warn(still_open: frozenset[str]) -> None:
    """Where this machine's wall has gaps, the teacher reads it among what the platform prints."""
    if still_open:
        print(unsafe(set(still_open), "marks are"), file=sys.stderr)


def marked(sandbox: Sandbox, exercise: Exercise | Collective, seed: int) -> Mark:
    """A part's points count if its public and its hidden cases are right."""
    public = marking.mark(sandbox, exercise, [marking.PUBLIC_SEED])
    public.printed = []
    if not public.points:
        return public
    hidden = marking.mark(sandbox, exercise, [seed])
    if any(part.sentence.startswith(NO_TIME) for part in hidden.parts):  # of no hidden case's own
        return hidden
    for part, other in zip(public.parts, hidden.parts):
        if part.points and not other.points:
            part.points, part.sentence = 0, HIDDEN
    return public


def exercises(lesson: str) -> list[Exercise | Collective]:
    return marking.exercises_of(lesson)
