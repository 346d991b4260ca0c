"""Marks for a folder of submissions: a CSV for the class and a text file for each student.

    python grade.py SUBMISSIONS [--output marks]

SUBMISSIONS has a file NAME.py or a folder NAME with the lesson's file for each student. A link is
no submission, because it could name any file.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from refgf.course.autograder.submission import (
    exercises,
    marks_of_file,
    marks_of_folder,
    settings,
)
from refgf.oracle.grade.mark import Mark
from refgf.oracle.grade.marking import no_points
from refgf.oracle.grade.report import as_csv, as_text
from refgf.oracle.grade.sandbox import workers


def main() -> int:
    parser = argparse.ArgumentParser(prog="grade.py", description=__doc__.split("\n")[0])
    parser.add_argument("submissions", type=Path, help="a folder: NAME.py, or NAME/ with a file")
    parser.add_argument("--output", type=Path, default=Path("marks"), help="default: marks")
    options = parser.parse_args()
    try:
        students, rows = submissions(options.submissions), []
        options.output.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(workers()) as pool:
            for name, marks in pool.map(marked_student, students):
                rows.append((name, marks))
                (options.output / f"{name}.txt").write_text(as_text(marks) + "\n")
    except ValueError as error:
        print(f"grade.py: {error}", file=sys.stderr)
        return 2
    table = as_csv(rows, *settings()).replace("file,", "student,", 1)
    (options.output / "marks.csv").write_text(table)
    print(f"{len(rows)} students: {options.output / 'marks.csv'}, and a text file for each")
    return 0


def submissions(folder: Path) -> list[Path]:
    """The students' files and folders, by name. ValueError if there are none."""
    found = sorted(folder.glob("*"), key=name_of) if folder.is_dir() else []
    found = [path for path in found if path.is_dir() or path.suffix == ".py"]
    found = [path for path in found if path.name[0] not in "._" and not path.is_symlink()]
    names = [name_of(path) for path in found]
    if not found or len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        got = f"{', '.join(twice)} twice" if found else "no submission"
        raise ValueError(
            f"got {got} in {folder}; wanted a folder with one file NAME.py or one folder NAME for "
            "each student; next: check the path"
        )
    return found


def name_of(path: Path) -> str:
    return path.name.removesuffix(".py")


def marked_student(path: Path) -> tuple[str, list[Mark]]:
    lesson, seed = settings()
    try:
        if path.is_dir():
            return name_of(path), marks_of_folder(path, lesson, seed)[0]
        return name_of(path), marks_of_file(path, lesson, seed)
    except OSError as error:
        reason = f"could not be read: {error}"
        return name_of(path), [no_points(exercise, reason) for exercise in exercises(lesson)]
