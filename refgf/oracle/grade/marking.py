"""Points and sentences for a student's file.

Where a result is wrong, every typical mistake of the exercise is run on the same arguments. One
that gives the same results explains them, and its sentence is shown.
"""

import importlib
import re
import zlib
from pathlib import Path
from types import ModuleType

import numpy as np

from refgf.oracle.grade.difference import brief, difference, plain
from refgf.oracle.grade.exercise import Collective, Exercise, Mistake, Part, returned
from refgf.oracle.grade.mark import NOT_JUDGED, Mark, PartMark
from refgf.oracle.grade.messages import mark_collective
from refgf.oracle.grade.sandbox import Sandbox
from refgf.oracle.grade.student_process import decoded, encoded

PUBLIC_SEED = 2019
PACKAGE = "refgf.oracle.grade.exercises"


def lessons() -> list[str]:
    """The numbers of the lessons that have exercises: ["00", "01", ...]."""
    folder = Path(__file__).with_name("exercises")
    return sorted(path.stem.removeprefix("lesson_") for path in folder.glob("lesson_*"))


def exercises_of(lesson: str) -> ModuleType:
    """EXERCISES and ALLOWED of a lesson's module. ValueError for an unknown lesson."""
    number = re.match(r"\d*", lesson)[0].zfill(2)  # 1, 01 and 01_ring_allreduce are the same
    if number not in lessons():
        raise ValueError(
            f"grade: got lesson {lesson!r}; wanted one of {', '.join(lessons())}; "
            "next: python -m refgf.oracle grade 01 lessons/student/01.py"
        )
    return importlib.import_module(f"{PACKAGE}.lesson_{number}")


def grade(file: str | Path, lesson: str, seed: int | None = None) -> list[Mark]:
    """The marks of a file. seed: the teacher's, for cases besides the public ones."""
    if not Path(file).is_file():
        raise ValueError(f"grade: got {file}, which is not a file; next: check the path")
    module = exercises_of(lesson)
    seeds = [PUBLIC_SEED] if seed is None else [PUBLIC_SEED, seed]
    with Sandbox(file, getattr(module, "ALLOWED", ())) as sandbox:
        return [mark(sandbox, exercise, seeds) for exercise in module.EXERCISES]


def mark(sandbox: Sandbox, exercise: Exercise | Collective, seeds: list[int]) -> Mark:
    if isinstance(exercise, Collective):
        return mark_collective(sandbox, exercise, seeds)
    found = Mark(exercise.name)
    for part in exercise.parts:
        cases = [arguments for seed in seeds for arguments in part.cases(source(seed, part))]
        sentence = first_failure(sandbox, exercise, cases)
        points = 0 if sentence else part.points
        found.parts.append(PartMark(part.what, points, part.points, sentence))
        if fatal(sentence):
            found.parts = [PartMark(p.what, 0, p.points, NOT_JUDGED) for p in exercise.parts]
            found.parts[0].sentence = sentence
            break
    return found


def source(seed: int, part: Part) -> np.random.Generator:
    """The random numbers of a part's cases."""
    return np.random.default_rng([seed, zlib.crc32(part.what.encode())])


def fatal(sentence: str) -> bool:
    """Does it end the whole exercise? What hangs or crashes is not started again."""
    starts = (
        "absent",
        "cannot be imported",
        "not written",
        "did not end",
        "ended its",
        "its process",
    )
    return sentence.startswith((*starts, "wrote into", "ran out")) or "may not" in sentence


def first_failure(sandbox: Sandbox, exercise: Exercise, cases: list[tuple]) -> str:
    """ "" if all cases are right, else a sentence on the first wrong one."""
    wrong = []
    for arguments in cases:
        answer = sandbox.ask({"call": exercise.name, "arguments": encoded(list(arguments))})
        if "error" in answer:
            return f"{answer['error']}{shown(arguments, answer['error'])}"
        result, wanted = decoded(answer["result"]), plain(exercise.wanted(arguments))
        if difference(result, wanted, exercise.relative):
            wrong.append((arguments, result, wanted))
    if not wrong:
        return ""
    named = typical(exercise.mistakes, wrong, exercise.relative)
    arguments, result, wanted = wrong[0]
    where = difference(result, wanted, exercise.relative)
    return (f"{named}: " if named else "") + f"{where}{shown(arguments)}"


def typical(mistakes: tuple[Mistake, ...], wrong: list, relative: float) -> str:
    """The sentence of the mistake that gives all these wrong results; "" if none does."""
    for mistake in mistakes:
        try:
            results = [plain(returned(mistake.function, arguments)) for arguments, _, _ in wrong]
        except Exception:  # noqa: BLE001  a mistake may fail for some arguments
            continue
        pairs = zip(results, wrong)
        if not any(difference(result, got, relative) for result, (_, got, _) in pairs):
            return mistake.sentence
    return ""


def shown(arguments: tuple, error: str = "") -> str:
    """The arguments of a case, if they are short."""
    if error and fatal(error):
        return ""
    text = ", ".join(brief(plain(argument)) for argument in arguments)
    return f", for ({text})" if len(text) <= 150 else ""
