"""A folder with a lesson's exercises for a platform: starter/, autograder/, instructor/."""

import json
import re
import secrets
from pathlib import Path

from refgf.course.autograder.submission import marks_of_file
from refgf.course.instructor import page
from refgf.course.lesson import LESSONS, LessonFiles, lesson_files
from refgf.course.package import ARCHIVE, archive, zipped
from refgf.course.platforms import PLATFORMS
from refgf.oracle.foreign.closure import closure
from refgf.oracle.grade.marking import divided, lessons, module_of
from refgf.oracle.grade.report import totals

MADE = ".refgf-course"  # lists the files of a build, so that the next one may replace them

STARTER = """# {title}

Fill in the functions of `{number}.py` and submit this file. Exercise 1 is done, as an example. You
need Python 3.11 or newer and NumPy.

{where}:

    python -m refgf.oracle grade {number} {file}
{unpublished}
It says which points you get and what is wrong. The marks that count use further cases, which are
not public, so a function must be right for any arguments.
{words}"""

PUBLIC = "To mark yourself, in a checkout of refgf"
PRIVATE = f"""To mark yourself, unpack `{ARCHIVE}`, which is beside this file. Its README says how
to install it. It has the same file, in `lessons/student/`. Then, in its folder"""

UNPUBLISHED = """
A public checkout does not know this lesson. If you were given `lesson_{number}.py`, put it into
`refgf/oracle/grade/exercises/` first. Otherwise your teacher runs the command.
"""


def build(
    lesson: str, platform: str, seed: int | None, folder: str | None, private: bool = False
) -> Path:
    """Write the three parts. Returns the folder.

    seed: of the hidden cases. None: that of an earlier build in the folder, else a new one.
    private: starter/ has an archive, too, with the lesson and all that it needs but answers.

    ValueError for an unknown lesson, a negative seed, and a folder that no build has made.
    """
    found = lesson_files(lesson)
    target = Path(folder or f"course-{found.number}-{platform}")
    if seed is None:
        seed = seed_of(target)
    if seed is None:
        seed = new_seed()
    if seed < 0:
        raise ValueError(f"build: got --seed {seed}; wanted 0 or more; next: --seed {-seed}")
    written = {
        **{f"starter/{name}": data for name, data in starter(found, private).items()},
        **{f"autograder/{name}": data for name, data in autograder(found, platform, seed).items()},
        **{f"instructor/{name}": data for name, data in instructor(found, platform, seed).items()},
    }
    if private:
        written[f"starter/{ARCHIVE}"] = archive([found.number])
    return write(target, written)


def build_for_students(lesson: str, folder: str | None) -> Path:
    """Write only the archive for students, of one lesson or of "all". Returns the folder."""
    numbers = lessons() if lesson == "all" else [lesson_files(lesson).number]
    name = lesson if lesson == "all" else numbers[0]
    return write(Path(folder or f"course-{name}-students"), {ARCHIVE: archive(numbers)})


def write(target: Path, written: dict[str, bytes]) -> Path:
    """Write these files in place of an earlier build's."""
    remove_earlier_build(target)
    for name, data in written.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (target / MADE).write_text("\n".join(sorted(written)) + "\n")
    return target


def new_seed() -> int:
    return secrets.randbelow(9 * 10**8) + 10**8


def seed_of(target: Path) -> int | None:
    """The seed of a build, from the teacher's page; None where there is none."""
    page = target / "instructor" / "README.md"
    found = re.search(r"--seed (\d+)$", page.read_text(), re.MULTILINE) if page.is_file() else None
    return int(found[1]) if found else None


def remove_earlier_build(target: Path) -> None:
    """Remove the files of an earlier build; what was added to them stays."""
    if not target.exists():
        return
    if not target.is_dir() or (any(target.iterdir()) and not (target / MADE).is_file()):
        raise ValueError(
            f"build: got {target}, which exists and which no build has made; wanted a new folder; "
            "next: name another one with --output, or remove it"
        )
    if (target / MADE).is_file():
        for name in (target / MADE).read_text().splitlines():
            (target / name).unlink(missing_ok=True)


def starter(lesson: LessonFiles, private: bool = False) -> dict[str, bytes]:
    """What students get. private: the archive, too, which is added later."""
    words = lesson.words()
    head = ["", "## Words", ""]
    if divided(lesson.number)[1]:
        head += [f"As in the published lesson. Where `{lesson.number}.py` differs, it counts.", ""]
    table = [*head, "| word | what it means | first met in |", "|---|---|---|", *words]
    text = "\n".join([*table, ""]) if words else ""
    extra = "" if lesson.page.is_file() else UNPUBLISHED.format(number=lesson.number)
    name = lesson.starter.name
    readme = STARTER.format(
        title=lesson.title,
        number=lesson.number,
        where=PRIVATE if private else PUBLIC,
        file=f"lessons/student/{name}" if private else name,
        unpublished=extra,
        words=text,
    )
    found = {name: lesson.starter.read_bytes(), "README.md": readme.encode()}
    return found | encoded(licence())


def autograder(lesson: LessonFiles, platform: str, seed: int) -> dict[str, bytes]:
    """What the platform runs: its own files, and a bundle of refgf with the settings."""
    module = PLATFORMS[platform]
    bundle, libraries = closure([module.AUTOGRADER, module_of(lesson.number)])
    assert set(libraries) <= {"numpy", "safetensors"}, libraries
    settings = {"lesson": lesson.number, "seed": seed}
    bundle["course.json"] = json.dumps(settings) + "\n"
    bundle |= licence()
    prefix = getattr(module, "BUNDLE", "")
    files = module.files(lesson) | {prefix + name: text for name, text in bundle.items()}
    return {module.ZIP: zipped(files)} if module.ZIP else encoded(files)


def instructor(lesson: LessonFiles, platform: str, seed: int) -> dict[str, bytes]:
    """What only the teacher gets. The answers and the starter are marked with this seed."""
    found = {
        name: totals(marks_of_file(file, lesson.number, seed))
        for name, file in (("answers", lesson.answers), ("starter", lesson.starter))
    }
    points, of = found["answers"]
    if points < of:
        raise ValueError(
            f"build: got {points} of {of} points for {lesson.answers} with seed {seed}; wanted "
            f"all; next: python -m refgf.oracle grade {lesson.number} {lesson.answers} "
            f"--seed {seed}"
        )
    text = page(lesson, platform, seed, found)
    return {
        "README.md": text.encode(),
        f"answers_{lesson.number}.py": lesson.answers.read_bytes(),
    }


def licence() -> dict[str, str]:
    return {"LICENSE": (LESSONS.parent / "LICENSE").read_text()}


def encoded(files: dict[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in files.items()}
