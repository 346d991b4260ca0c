"""What students get in one archive: lessons, what they need, and nothing of the teacher's."""

import io
import re
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from refgf.course.lesson import LESSONS, lesson_files
from refgf.oracle.grade.marking import lessons as all_lessons

ROOT = LESSONS.parent
ARCHIVE, FOLDER = "refgf-students.zip", "refgf-students"
SCRIPTS = ("setup.sh", "run_autograder")
TAKEN = "refgf lessons figures pyproject.toml Makefile environment.yml environment-gpu.yml LICENSE"
PRIVATE = tuple(f"lessons/{folder}/" for folder in ("teaching", "slides", "solutions"))
PRIVATE += ("refgf/course/", "refgf/site/")
OF_A_LESSON = re.compile(r"(?:figures/|lessons/(?:student/|drawings/)?)(\d\d)[_.]")
CUTS = {  # what names a file that stays with the teacher: (which files, pattern): in its place
    (r"lessons/\d\d_.*\.py", r" *\((?:solutions|answers): lessons/[^)\n]*\)"): "",
    (r"lessons/README\.md", r"Solutions to the exercises are in `solutions/`, d"): "D",
    (r"lessons/README\.md", r"ideas in `drawings/`"): "ideas are in `drawings/`",
    (r"lessons/README\.md", r"(?s)\n## For the teacher\n.*"): "",
    (r"refgf/__main__\.py", r'    "course": .*\n'): "",
    (r"pyproject\.toml", r'"refgf\.(?:course|site)\b[^"]*",? ?'): "",
    (
        r"lessons/lab/merge/claims\.py|figures/09_.*\.json",
        r": the solutions prove the case of two gradients",
    ): "",
}
NAMED = re.compile(r"\b(?:teaching|solutions|answers)/|refgf\.course\b")

README = """# Lessons of refgf: {lessons}

    make setup                                       once: makes the environment .venv
    source .venv/bin/activate                        in each new terminal
    python -m refgf.doctor                           is this machine ready?
    mpiexec -n 4 python {script} --quick
    python -m refgf.oracle grade {number} lessons/student/{number}.py

Each lesson is a script: read its first page, write down your guess, run it. You write the functions
of `lessons/student/`. [lessons/README.md](lessons/README.md) says more. Of the Makefile's targets
`setup`, `demo`, `lesson-{target}` and `cluster-lesson-{target}` work here; most others need the
whole project.

{first_day}"""

ONLY = """This archive has lesson {}. What the page names of other lessons is not in it.

"""


def archive(lessons: list[str]) -> bytes:
    """The archive for these lessons: the files that git tracks, as they are now. 03v7: a variant.

    ValueError without git, and if a file would name what is withheld.
    """
    found: dict[str, bytes] = {}
    numbers = {lesson[:2] for lesson in lessons}
    for name in taken():
        of = OF_A_LESSON.match(name)
        if not name.startswith(PRIVATE) and (of is None or of[1] in numbers):
            found[name] = without_names(name, (ROOT / name).read_bytes())
    for lesson in lessons:
        del found[f"lessons/student/{lesson[:2]}.py"]
        found[f"lessons/student/{lesson}.py"] = lesson_files(lesson).starter.read_bytes()
    script = next(name for name in found if re.match(r"lessons/\d\d_", name))
    found["README.md"] = README.format(
        lessons=", ".join(lessons),
        number=lessons[0],
        target=lessons[0][:2] if len(lessons) == 1 else "NN",
        script=script,
        first_day=first_day(Path(script).stem),
    ).encode()
    if numbers != set(all_lessons()):
        for_all = found["lessons/README.md"].decode()
        found["lessons/README.md"] = (ONLY.format(", ".join(lessons)) + for_all).encode()
    return zipped({f"{FOLDER}/{name}": data for name, data in found.items()})


def first_day(script: str) -> str:
    """How to install, and what goes wrong: sections of a teacher's page for students.

    script: the name of a lesson that they have, in the place of the page's.
    """
    text = (LESSONS / "teaching" / "first-day.md").read_text()
    text = text[text.index("## How to install") : text.index("## The hour")].rstrip() + "\n"
    return text.replace("00_two_ranks", script)


def taken() -> list[str]:
    """The tracked files that students may get: no notes that a teacher keeps there."""
    command = ["git", "ls-files", "-z", "--", *TAKEN.split()]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(
            f"build: got {ROOT}, where git lists no files ({error}); wanted a clone, because only "
            "tracked files go to students; next: git init && git add . && git commit -m course"
        ) from error
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def without_names(name: str, data: bytes) -> bytes:
    """A file's text without the sentences that name answers; what is no text stays."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    for (files, pattern), instead in CUTS.items():
        if re.fullmatch(files, name):
            text = re.sub(pattern, instead, text)
    if found := NAMED.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(
            f"build: got {found[0]!r} in {name}, line {line}; wanted nothing that names answers in "
            "a file for students; next: reword it, or cut it in refgf/course/package.py"
        )
    return text.encode()


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    """An archive whose bytes depend on the files only; scripts are executable."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in sorted(files.items()):
            info = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o755 if name in SCRIPTS else 0o644) << 16
            made.writestr(info, data)
    return out.getvalue()
