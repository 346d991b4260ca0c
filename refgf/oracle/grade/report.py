"""Marks as text for the student, as JSON, and as CSV for a class."""

import csv
import io
import textwrap
from dataclasses import asdict

from refgf.oracle.foreign.report import as_name
from refgf.oracle.grade.mark import FORBIDDEN, NOT_JUDGED, Mark

COLUMNS = 100
UNJUDGED = {  # what a sentence on an exercise says, and in a word why nothing of it was judged
    "cannot be imported": "no import",
    "did not end": "hung",
    "no time left": "no time",
    "submission: got": "no file",
    "could not be read": "unreadable",
    "could not be judged": "not judged",
    "ended its": "crashed",
    "its process ended": "crashed",
    "ran out of memory": "memory",
    "wrote into": "tampered",
    "closed the connection": "tampered",
    "gave an answer that": "no answer",
    "not written": "not written",
    "absent": "absent",
}
UNWRITTEN = ("not written", "absent")


def totals(marks: list[Mark]) -> tuple[int, int]:
    """(points, of how many)"""
    return sum(mark.points for mark in marks), sum(mark.of for mark in marks)


def as_text(marks: list[Mark]) -> str:
    """One line a part; sentences under those that lost points; then what the function printed."""
    lines = []
    for mark in marks:
        lines.append(f"{mark.name}: {mark.points} of {mark.of} points")
        for part in mark.parts:
            sign = "ok  " if part.points == part.of else "lost"
            why = f" ({NOT_JUDGED})" * (part.sentence == NOT_JUDGED)
            lines.append(f"  {sign} {part.points}/{part.of}  {part.what}{why}")
            if part.sentence not in ("", NOT_JUDGED):
                lines += textwrap.wrap(
                    part.sentence, COLUMNS, initial_indent=12 * " ", subsequent_indent=12 * " "
                )
        for number, line in enumerate(mark.printed):
            lines.append(f"       | {line}" if number else f"  printed in {line}:")
    points, of = totals(marks)
    return "\n".join([*lines, f"{points} of {of} points ({points / of:.0%})"])


def as_data(marks: list[Mark], lesson: str, file: str) -> dict:
    """The same for programs."""
    points, of = totals(marks)
    exercises = [asdict(mark) | {"points": mark.points, "of": mark.of} for mark in marks]
    return {"lesson": lesson, "file": file, "points": points, "of": of, "exercises": exercises}


def kinds(marks: list[Mark]) -> dict[str, str]:
    """{exercise: why it has no points without being judged: "hung"}"""
    found = {}
    for mark in marks:
        said = mark.parts[0].sentence if not mark.points else ""
        why = next((word for start, word in UNJUDGED.items() if said.startswith(start)), "")
        if why := "forbidden" if FORBIDDEN.search(said) else why:
            found[mark.name] = why
    return found


def unjudged(marks: list[Mark]) -> str:
    """The same in a cell: "lazy_calls: hung", "no import" of a whole file; "" if all are judged."""
    found = kinds(marks)
    if len(found) == len(marks) and len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{name}: {why}" for name, why in found.items())


def to_look_at(rows: list[tuple[str, list[Mark], str, str]]) -> list[str]:
    """A line for each kind: "hung: bob (lazy_calls), carl". What is not written yet is no news."""
    found: dict[str, list[str]] = {}
    for name, marks, *_ in rows:
        mine = kinds(marks)
        for why in dict.fromkeys(mine.values()):
            whose = [exercise for exercise in mine if mine[exercise] == why]
            where = f" ({', '.join(whose)})" if len(whose) < len(marks) else ""
            found.setdefault(why, []).append(name + where)
    return [f"{why}: {', '.join(found[why])}" for why in sorted(found) if why not in UNWRITTEN]


def as_csv(rows: list[tuple[str, list[Mark], str, str]], seed: int | None) -> str:
    """A line a file: name, total, the points of each exercise, and how it was marked.

    The third of a row: the lesson that the file says it answers, "" if it says none. The fourth:
    the lesson that it is marked by, 03v7 for a variant. seed: of the hidden cases, or None.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [mark.name for mark in rows[0][1]] if rows else []
    writer.writerow(["file", "points", "of", *names, "not judged", "answers", "lesson", "seed"])
    for file, marks, answers, lesson in rows:
        points = (mark.points for mark in marks)
        how = (unjudged(marks), answers, lesson, seed)
        writer.writerow([cell(file), *totals(marks), *points, *how])
    return out.getvalue()


def cell(name: str) -> str:
    """A name as text that a spreadsheet does not take for a formula."""
    name = as_name(name)
    return "'" + name if name.startswith(("=", "+", "-", "@")) else name
