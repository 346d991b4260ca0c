"""The teacher's page: installation, points, typical mistakes, the answers, the seed."""

from refgf.course.autograder.submission import HIDDEN, exercises
from refgf.course.lesson import LessonFiles
from refgf.course.platforms import PLATFORMS
from refgf.oracle.grade.marking import parts
from refgf.oracle.grade.sandbox import BYTES, SECONDS

PAGE = """# {title}: for the teacher

Keep this folder to yourself. It has the answers and the seed of the hidden cases.{teaching}

## Installation ({platform})
{install}
## Points

| exercise | part | points |
|---|---|---|
{points}

The answers (`answers_{number}.py`) get {full} of {of} points and the starter gets {start}: its
first exercise is given, as an example.

## Typical mistakes

A file whose wrong results are those of a typical mistake gets its sentence. Students also see the
smallest public case that fails: the call, what it returned and what was wanted.

| exercise | sentence | parts that it costs |
|---|---|---|
{mistakes}

## The seed of the hidden cases

Each part has public cases, which every checkout of refgf knows, and hidden ones, which come from
the seed {seed}. A part counts when both are right. Where only a hidden case is wrong, students read

> {hidden}

and never the case. A table of the public cases' results gets no points for hidden ones. The seed is
here and in `autograder/`, not in `starter/`. The same seed makes the same cases, so that marks can
be repeated:

    python -m refgf.course build {number} --for {platform} --seed {seed}

A build into the same folder keeps the seed. For a new term give another one with `--seed`.

## Limits

A file runs in a process of its own: {seconds:g} s for each call, {gib:g} GiB of memory, no
network, no other processes, no files to write. What breaks a limit costs its exercise only. The
functions that judge are the oracle's definitions, which are public; no test detects a copy of them.
"""


def page(lesson: LessonFiles, platform: str, seed: int, totals: dict[str, tuple[int, int]]) -> str:
    """Markdown. totals: (points, of) of "answers" and "starter"."""
    all_parts = [
        (exercise, what, count)
        for exercise in exercises(lesson.number)
        for what, count in parts(exercise)
    ]
    points = [row(exercise.name, what, count) for exercise, what, count in all_parts]
    mistakes = [
        row(exercise.name, mistake.sentence, ", ".join(mistake.loses))
        for exercise in exercises(lesson.number)
        for mistake in exercise.mistakes
    ]
    teaching = (
        f"\nHow to teach the lesson is in `lessons/teaching/{lesson.page.name}` of the project."
    )
    return PAGE.format(
        teaching=teaching if lesson.page.is_file() else "",
        title=lesson.title,
        number=lesson.number,
        platform=platform,
        install=PLATFORMS[platform].install(lesson),
        points="\n".join([*points, row("", "**sum**", f"**{lesson.points}**")]),
        mistakes="\n".join(mistakes),
        seed=seed,
        hidden=HIDDEN,
        full=totals["answers"][0],
        of=totals["answers"][1],
        start=totals["starter"][0],
        seconds=SECONDS,
        gib=BYTES / 2**30,
    )


def row(*cells: object) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"
