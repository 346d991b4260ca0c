"""Marks for a folder of submissions: a CSV for the class and a text file for each student.

    python grade.py SUBMISSIONS [--output marks] [--variants variants.csv]

SUBMISSIONS has a file NAME.py or a folder NAME with the lesson's file for each student. Any other
entry has a line without points, too. So has a link, because it could name any file. A name may have
any bytes: what is no text is written as an escape, and a long name is cut in that of a text file.
"""

import argparse
import csv
import hashlib
import io
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from refgf.course.autograder.submission import (
    exercises,
    marks_of_file,
    settings,
    submitted_file,
)
from refgf.oracle.foreign.report import as_name
from refgf.oracle.grade.counter import Counter
from refgf.oracle.grade.mark import Mark
from refgf.oracle.grade.marking import answered, divided, in_words, no_points
from refgf.oracle.grade.report import as_csv, as_text, cell, to_look_at, totals
from refgf.oracle.grade.sandbox import workers

LONGEST = 200  # bytes of a name, of the 255 that a file system bears
# the student, the marks, the lesson that the file answers, the lesson that it is marked by
Row = tuple[str, list[Mark], str, str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="grade.py", description=__doc__.split("\n")[0])
    parser.add_argument("submissions", type=Path, help="a folder: NAME.py, or NAME/ with a file")
    parser.add_argument("--output", type=Path, default=Path("marks"), help="default: marks")
    about = "a table with a line NAME,NUMBER for each student: mark each by his own variant"
    parser.add_argument("--variants", type=Path, metavar="CSV", help=about)
    options = parser.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the path may be no text
    table, (lesson, seed) = options.output / "marks.csv", settings()
    rows: list[Row] = []
    try:
        students = submissions(options.submissions)
        asked = [lesson] * len(students)
        if options.variants:
            asked = variants(options.variants, students, lesson)
        require_same_class(table, {lesson, *asked}, students)
        options.output.mkdir(parents=True, exist_ok=True)
        counter = Counter(len(students))
        with counter, ThreadPoolExecutor(workers()) as pool:
            for row in pool.map(marked_student, students, asked):
                rows.append(row)
                write(options.output / f"{file_name(row[0])}.txt", text_of(row))
                write(table, as_csv(rows, seed).replace("file,", "student,", 1))
                counter.says("{}: {} of {} points".format(row[0], *totals(row[1])))
    except (ValueError, OSError) as error:
        print(f"grade.py: {error}", file=sys.stderr)
        return 2
    rate = f"{counter.passed_s:.0f} s, {counter.passed_s / len(rows):.1f} s each"
    lines = [f"{len(rows)} students in {rate}: {table}, and a text file for each says why"]
    lines += to_look_at(rows)
    if others := ", ".join(strangers(rows)):
        wanted = "the variant of their line" if options.variants else in_words(lesson)
        lines.append(f"these do not answer {wanted}: {others}")
    print("\n".join(lines))
    return 0


def variants(table: Path, students: list[Path], lesson: str) -> list[str]:
    """The lesson of each student, 03v7, from a table NAME,NUMBER. ValueError for a bad line.

    The first line may be a heading. What is no submission needs no line.
    """
    with table.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    numbers = {row[0].strip(): row[-1].strip() for row in rows}
    wrong = [row for row in rows[1:] if len(row) != 2 or not row[1].strip().isdecimal()]
    absent = {name_of(path) for path in students} - {name_of(path) for path in unread(students)}
    absent -= {name for name, number in numbers.items() if number.isdecimal()}
    if wrong or absent:
        got = ",".join(wrong[0]) if wrong else f"no variant of {', '.join(sorted(absent))}"
        raise ValueError(
            f"got {got} in {table}; wanted a line NAME,NUMBER for each student; next: add it"
        )
    listed = {name for name, number in numbers.items() if number.isdecimal()}
    if left := sorted(listed - set(map(name_of, students))):
        print(f"in {table}, without a submission: {', '.join(map(as_name, left))}")
    number = divided(lesson)[0]
    asked = (numbers.get(name_of(path), "") for path in students)
    return [f"{number}v{int(n)}" if n.isdecimal() else lesson for n in asked]


def submissions(folder: Path) -> list[Path]:
    """The entries of a folder, by name: one a student. ValueError if there are none.

    What a system adds is none of them: .DS_Store, __MACOSX.
    """
    found = sorted(folder.glob("*"), key=name_of) if folder.is_dir() else []
    found = [path for path in found if not path.name.startswith((".", "__"))]
    names = [name_of(path) for path in found]
    if len(unread(found)) == len(found) or len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        got = f"{', '.join(twice)} twice" if twice else "no submission"
        raise ValueError(
            f"got {got} in {folder}; wanted a folder with one file NAME.py or one folder NAME for "
            "each student; next: check the path"
        )
    return found


def unread(students: list[Path]) -> list[Path]:
    """Those that are neither a folder nor a Python file."""
    return [
        path
        for path in students
        if path.is_symlink() or not (path.is_dir() or path.suffix == ".py")
    ]


def require_same_class(table: Path, asked: set[str], students: list[Path]) -> None:
    """ValueError if an earlier table would lose marks: of others, or of another lesson."""
    if not table.is_file():
        return
    with table.open(newline="", encoding="utf-8") as file:
        earlier = list(csv.DictReader(file))
    others = {row.get("student", "") for row in earlier} - {
        cell(name_of(path)) for path in students
    }
    lessons = {row.get("lesson", "") for row in earlier} - asked
    if others or lessons:
        mine = "-".join(sorted(asked))
        raise ValueError(
            f"got {table}, which has marks of {', '.join(sorted(lessons | others))}; wanted a "
            f"folder for these students and {mine} only; next: --output {table.parent}-{mine}, "
            "or another new folder"
        )


def name_of(path: Path) -> str:
    return as_name(path.name.removesuffix(".py"))


def file_name(name: str) -> str:
    """A student's name; of a long one the beginning, and a number that keeps two such apart."""
    data = name.encode()
    if len(data) <= LONGEST:
        return name
    return f"{data[:LONGEST].decode(errors='ignore')}-{hashlib.sha256(data).hexdigest()[:8]}"


def write(path: Path, text: str) -> None:
    """In UTF-8, whatever the teacher's terminal uses."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def marked_student(path: Path, lesson: str) -> Row:
    """A row. What has no file to mark gets no points."""
    try:
        file = file_of(path, lesson)
    except ValueError as error:
        return without_points(path, lesson, str(error))
    try:
        return name_of(path), marks_of_file(file, lesson, settings()[1]), answered(file), lesson
    except OSError as error:
        return without_points(path, lesson, f"could not be read: {error}")


def file_of(path: Path, lesson: str) -> Path:
    """The file of a student's entry. ValueError if there is none."""
    if unread([path]):
        raise ValueError(
            f"submission: got {as_name(path.name)}; wanted a file NAME.py, or a folder NAME with "
            f"{lesson}.py, and no link; next: unpack or rename it"
        )
    return submitted_file(path, lesson) if path.is_dir() else path


def without_points(path: Path, lesson: str, why: str) -> Row:
    return name_of(path), [no_points(each, why) for each in exercises(lesson)], "", lesson


def text_of(row: Row) -> str:
    """A student's page. Its first line says whose marks these are, and by which rules."""
    name, marks, theirs, lesson = row
    other = f". This file answers {in_words(theirs)}" if theirs not in ("", lesson) else ""
    return f"{name}: {in_words(lesson)}{other}\n{as_text(marks)}\n"


def strangers(rows: list[Row]) -> list[str]:
    return [f"{name} ({theirs})" for name, _, theirs, asked in rows if theirs not in ("", asked)]
