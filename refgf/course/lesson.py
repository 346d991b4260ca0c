"""A lesson's exercises, its starter, and the answers."""

import functools
import itertools
import re
import runpy
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refgf.oracle.grade.marking import divided, exercises_of, lessons
from refgf.oracle.grade.trusted import mark_of
from refgf.oracle.spec.change import answers, chosen, rules, starter
from refgf.oracle.spec.exercise import PUBLIC_SEED, Collective, Exercise

PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = PACKAGE / "shipped" / "lessons"  # in an installed package
LESSONS = SHIPPED if SHIPPED.exists() else PACKAGE.parent / "lessons"
NEXT = 100  # variants that are looked at: a lesson has at most 32 that differ


@dataclass(frozen=True)
class LessonFiles:
    """number: "01". starter, answers: files in lessons/."""

    number: str
    exercises: list[Exercise | Collective]
    starter: Path
    answers: Path

    @property
    def title(self) -> str:
        """The first sentence of the starter's docstring: "Exercises of lesson 01, the ring".

        Of a variant: "Exercises of lesson 03, lazy allreduce, variant 7".
        """
        first = re.split("[.:]", self.starter.read_text())[0].removeprefix('"""').strip()
        variant = divided(self.number)[1]
        return f"{first}, variant {variant}" if variant else first

    @property
    def page(self) -> Path:
        """How to teach it: absent for a teacher's own, unpublished lesson."""
        return LESSONS / "teaching" / f"{self.number[:2]}.md"

    @property
    def points(self) -> int:
        return sum(exercise.points for exercise in self.exercises)

    def words(self) -> list[str]:
        """The rows of the glossary that are first met in this lesson."""
        rows = (LESSONS / "glossary.md").read_text().splitlines()
        return [row for row in rows if re.search(rf"\|[^|]*\b{self.number[:2]}\b[^|]*\|$", row)]


def lesson_files(lesson: str) -> LessonFiles:
    """ValueError for a lesson without exercises, and where lessons/ is missing."""
    number, variant = divided(lesson)
    if number not in lessons():
        raise ValueError(
            f"build: got lesson {lesson!r}; wanted one of {', '.join(lessons())}; "
            "next: python -m refgf.course build 01 --for plain"
        )
    found = LessonFiles(
        number,
        exercises_of(number),
        LESSONS / "student" / f"{number}.py",
        LESSONS / "teaching" / "answers" / f"{number}.py",
    )
    for file in (found.starter, found.answers):
        if not file.is_file():
            raise ValueError(
                f"build: got no {file}; wanted a checkout of the project, because starters and "
                "answers are in its folder lessons/ and not in an installed package; "
                "next: run python -m refgf.course in the folder of a checkout"
            )
    return by_other_rules(found, variant) if variant else found


def most_shared(names: list[str], seed: int) -> tuple[int, int, str, str, int]:
    """(points, of, whose, where, others): the most that one variant's answers get in another one.

    others: how many other pairs share more than half.
    """
    files = [lesson_files(name) for name in names]
    written = {each.number: runpy.run_path(str(each.answers)) for each in files}
    found = sorted(
        (gets(written[a.number], b, PUBLIC_SEED, seed), b.points, a.number, b.number)
        for a, b in itertools.permutations(files, 2)
    )
    return *found[-1], above_half(found[:-1])


def above_half(found: Iterable[tuple]) -> int:
    """How many of these (points, of, ...) are more than half."""
    return sum(2 * points > of for points, of, *_ in found)


def gets(functions: dict[str, Any], where: LessonFiles, *seeds: int) -> int:
    """The points of one variant's answers in another one."""
    return sum(mark_of(each, functions[each.name], seeds).points for each in where.exercises)


def next_variant(lesson: str, earlier: list[int]) -> tuple[int, int, int, int, int]:
    """(number, points, of, whose, others): the next variant, where earlier answers get least.

    Of numbers that choose the same rules the first counts. points: the most that one of the earlier
    ones gets for public cases; hidden ones can only lose some of them. whose: its number. others:
    how many other earlier ones get more than half.
    """
    written = {n: runpy.run_path(str(lesson_files(f"{lesson}v{n}").answers)) for n in earlier}
    start, found = max(earlier) + 1, {}
    for number in range(start, start + NEXT):
        found.setdefault(tuple(rules(lesson, number)), number)

    def kept(number: int) -> tuple[int, int, int, int, int]:
        files = lesson_files(f"{lesson}v{number}")
        all_kept = sorted((gets(written[n], files, PUBLIC_SEED), files.points, n) for n in earlier)
        return number, *all_kept[-1], above_half(all_kept[:-1])

    return min(map(kept, found.values()), key=lambda each: each[1])


def by_other_rules(lesson: LessonFiles, variant: str) -> LessonFiles:
    """A variant, with a starter and answers of its own in a folder that lasts as long as we do."""
    number, changes = f"{lesson.number}v{variant}", chosen(lesson.number, int(variant))
    files = Path(made().name) / f"{number}.py", Path(made().name) / f"answers_{number}.py"
    files[0].write_text(starter(lesson.starter.read_text(), number, changes))
    files[1].write_text(answers(lesson.answers.read_text(), number, changes))
    return LessonFiles(number, exercises_of(number), *files)


@functools.cache
def made() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="refgf-variant-")
