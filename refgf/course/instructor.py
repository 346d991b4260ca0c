"""The teacher's page: installation, points, typical mistakes, the answers, the seed."""

from refgf.course.autograder.submission import HIDDEN, exercises
from refgf.course.lesson import LessonFiles
from refgf.course.platforms import PLATFORMS
from refgf.oracle.grade.marking import parts
from refgf.oracle.grade.sandbox import BUSIEST, BYTES, FILE_S, SECONDS
from refgf.oracle.grade.trusted import costs

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

A build into the same folder keeps the seed; one for another platform draws its own. So give the
same `--seed` to all platforms of a class, and another one in a new term.

## Limits

Each exercise runs in two new processes, one for public and one for hidden cases, with {gib:g} GiB
of memory. Where ranks send messages, each rank has processes of its own. What breaks a limit costs
its exercise only. A process gets the file's text and the arguments of its calls, never the results
that are wanted, nor the seed.

The import of a file may take {seconds:g} s, and so may each call. All imports and calls of a file
together may take {file_s:g} s, and each gets at most half of what is left: after several endless
loops there is still time for the other functions. Where other programs compute, all of these are
longer: by the machine's load for each processor, at most {busiest:g} times. A function that gets
too little loses its points, its sentence begins with "no time left", and the table says "no time".
Marks made before stay. Starting the processes is not counted: it takes seconds, on a busy machine
more.

On Linux the kernel keeps it from all else: other files, the network, other processes. As root it
becomes another user. It uses namespaces where they are allowed, and Landlock and seccomp, which
work inside containers, too. Without namespaces it can ask for a file's size and time (stat), not
for its contents. Where these are missing (macOS; Linux before 5.13 in a container that allows no
namespaces), the autograder prints that marks are not safe, and what a file could do.

Messages go through the judge, which matches, counts and delivers them. So no file behind this wall
can make up what it sent, or take another rank's numbers. It can switch off the checks of its own
arrays (no change before Wait): then it gets the marks of a file that sends copies.

Not secret: the hidden cases that an exercise is called with, from the file that solves it. It can
tell nobody, but for right or wrong in each part. The functions that judge are the oracle's
definitions, which are public; no test detects a copy of them.

`--solutions private` puts `refgf-students.zip` into `starter/`: the lesson, and what it needs,
without answers, solutions and pages for teachers. It marks on the student's own machine, so it has
`refgf/oracle/spec`: each exercise's definition and typical mistakes as code, of another form than
the answers'. And the project is public. `--variant N` asks by other rules, so that the published
answers get few marks. The other rules are public, too, and so is the command that writes the
answers to each N. So change N each year: `--after N` in place of `--variant N` takes the next
number, that in which the answers to N get least (`--after 7,12`: to both), and says how many points
that is. And talk five minutes with each student about their code.
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
        row(exercise.name, mistake.sentence, ", ".join(costs(exercise, mistake)))
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
        file_s=FILE_S,
        busiest=BUSIEST,
        gib=BYTES / 2**30,
    )


def row(*cells: object) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"
