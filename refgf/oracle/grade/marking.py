"""Points and sentences for a student's file.

Where a result is wrong, every typical mistake of the exercise is run on the arguments of all its
cases. One that gives all the file's results, wrong and right ones, explains them, and its sentence
is shown, with the smallest case that is wrong.
"""

import ast
import functools
import importlib
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refgf.oracle import spec
from refgf.oracle.foreign.process import CannotStart
from refgf.oracle.foreign.report import as_name
from refgf.oracle.foreign.untrusted import BadFile, read_bytes
from refgf.oracle.grade.difference import ONLY_TYPE, difference, plain
from refgf.oracle.grade.encoding import decoded, encoded
from refgf.oracle.grade.mark import FORBIDDEN, NOT_JUDGED, Mark, PartMark
from refgf.oracle.grade.messages import mark_collective
from refgf.oracle.grade.sandbox import LARGEST_FILE, NO_TIME, Sandbox
from refgf.oracle.grade.shown import (
    call,
    chosen_output,
    failure,
    hidden_call,
    size,
    without_line,
    without_text,
)
from refgf.oracle.grade.student_process import sentence as raised
from refgf.oracle.spec.change import changed, chosen
from refgf.oracle.spec.exercise import (
    EXERCISES,
    PUBLIC_SEED,
    Collective,
    Exercise,
    Part,
    TypicalMistake,
    returned,
)

PACKAGE = "refgf.oracle.grade.exercises"
OWN = Path(__file__).with_name("exercises")
STILL_OPEN: set[str] = set()  # what the wall of this machine has left open, for the report
WRONG_KINDS = (AttributeError, TypeError, ValueError)
UNREAD = (ValueError, SyntaxError, RecursionError, MemoryError)  # what ast.parse raises
ALONE = "right alone, wrong after other calls: what does your file keep from call to call?"
AS_PUBLISHED = ("as in the published exercise", "this answers the published exercise")
BEFORE_A_CALL = ("absent", "cannot be imported", "not written")


@dataclass(frozen=True)
class GradedCall:
    """The arguments of a call. hidden: from the teacher's seed, so never shown."""

    arguments: tuple
    hidden: bool


@dataclass(frozen=True)
class CallResult:
    """A call and its result. error: why there is none."""

    case: GradedCall
    result: Any
    wanted: Any
    wrong: bool
    error: str = ""


@dataclass
class Answers:
    """Of a part's calls: what is said of one that ends the exercise, and of changed arguments."""

    results: list[CallResult]
    error: str = ""
    changes: str = ""

    @property
    def wrong(self) -> list[CallResult]:
        return [each for each in self.results if each.wrong]


def lessons() -> list[str]:
    """The numbers of the lessons that have exercises: ["00", "01", ...]."""
    own = (path.stem.removeprefix("lesson_") for path in OWN.glob("lesson_*"))
    return sorted({*own, *(number.partition(".")[0] for number in EXERCISES)})


def exercises_of(lesson: str) -> list[Exercise | Collective]:
    """In their order. ValueError for an unknown lesson. 03v7: lesson 03, other rules."""
    number, variant = divided(lesson)
    if number not in lessons():
        raise ValueError(
            f"grade: got lesson {lesson!r}; wanted one of {', '.join(lessons())}; "
            "next: python -m refgf.oracle grade 01 lessons/student/01.py"
        )
    importlib.import_module(module_of(number))
    found = [EXERCISES[each] for each in sorted(EXERCISES) if each.startswith(f"{number}.")]
    changes = chosen(number, int(variant)) if variant else []
    return [changed(exercise, changes) for exercise in found]


def divided(lesson: str) -> tuple[str, str]:
    """("03", "7") of 03v7, ("01", "") of 1, 01 and 01_ring_allreduce; ("all", "") of others."""
    found = re.match(r"(\d+)(?:v(\d+)$|_|$)", lesson)
    return (found[1].zfill(2), found[2] or "") if found else (lesson, "")


def module_of(number: str) -> str:
    """The module with the exercises of a lesson: all of spec, or a file of a teacher's own."""
    is_own = any(OWN.glob(f"lesson_{number}*"))
    return f"{PACKAGE}.lesson_{number}" if is_own else spec.__name__


def grade(file: str | Path, lesson: str, seed: int | None = None) -> list[Mark]:
    """The marks of a file. seed: the teacher's, for cases besides the public ones."""
    if not os.path.lexists(file):
        raise ValueError(f"grade: got {file}, which is not a file; next: check the path")
    seeds = [PUBLIC_SEED] if seed is None else [PUBLIC_SEED, seed]
    marks, still_open = marks_of(Path(file), lesson, functools.partial(mark, seeds=seeds))
    STILL_OPEN.update(still_open)
    return marks


def marks_of(
    file: Path, lesson: str, how: Callable[[Sandbox, Exercise | Collective], Mark]
) -> tuple[list[Mark], set[str]]:
    """The marks of a file, and what the wall of this machine has left open.

    What cannot be read gets no points, so that one file stops nobody's marks. Nor does a link,
    which could name any file.
    """
    exercises = exercises_of(lesson)
    try:
        if file.is_symlink():
            raise BadFile(f"{as_name(str(file))}: got a link; wanted the file itself")
        with Sandbox(file) as sandbox:
            marks = [how(sandbox, exercise) for exercise in exercises]
        name_the_first(marks, read_bytes(file, LARGEST_FILE))
    except BadFile as error:
        return [no_points(exercise, f"could not be read: {error}") for exercise in exercises], set()
    name_the_lesson(marks, file, lesson)
    return marks, set(sandbox.server.still_open)


def answered(file: Path) -> str:
    """The lesson that a file answers, by the name in its starter's docstring: "03v7"; "" if none.

    A starter says how it is marked: python -m refgf.oracle grade 03v7 03v7.py.
    """
    try:
        text = ast.get_docstring(ast.parse(read_bytes(file, LARGEST_FILE))) or ""
    except UNREAD:
        return ""
    found = re.search(r"\b(\d\d(?:v\d+)?)\.py\b", text)
    return found[1] if found else ""


def name_the_lesson(marks: list[Mark], file: Path, lesson: str) -> None:
    """Say in the first lost part that the file answers another lesson, or by other rules."""
    theirs, ours = answered(file), in_short(lesson)
    lost = [part for mark in marks for part in mark.parts if part.points < part.of]
    if lost and theirs and theirs != ours:
        lost[0].sentence += (
            f"; its first lines say that this file answers {in_words(theirs)}, and it is "
            f"marked here by {in_words(ours)}: "
            f"python -m refgf.oracle grade {theirs} {as_name(file.name)}"
        )


def in_short(lesson: str) -> str:
    """ "01_ring_allreduce" -> "01", 03v7 as it is"""
    return "v".join(filter(None, divided(lesson)))


def in_words(lesson: str) -> str:
    """ "03v7" -> "variant 7 of lesson 03" """
    number, variant = divided(lesson)
    return f"variant {variant} of lesson {number}" if variant else f"lesson {number} as published"


def name_the_first(marks: list[Mark], source: bytes) -> None:
    """Say to callers which function to mend first: one with a mistake, as they have.

    Of several the first, in the order of the exercises.
    """
    try:
        functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    except UNREAD:
        return
    uses = {
        function.name: {
            node.func.id
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        for function in functions
    }
    for _ in uses:  # what is called by what is called ...
        for names in uses.values():
            names.update(*(uses.get(name, ()) for name in list(names)))
    lost = {mark.name: first_lost(mark) for mark in marks if mark.points < mark.of}
    for name, mine in lost.items():
        callers = [lost[other] for other in lost if other != name and name in uses.get(other, ())]
        if any(part.sentence.startswith(("cannot be imported", NO_TIME)) for part in callers):
            return  # no function's fault
        callers = [part for part in callers if may_cost(mine.sentence, part.sentence)]
        for part in callers:
            part.sentence = f"it calls {name}, which may be why: mend that first; {part.sentence}"
        if callers:
            return


def first_lost(mark: Mark) -> PartMark:
    """The first of its parts that says why it is lost."""
    return next(part for part in mark.parts if part.sentence not in ("", NOT_JUDGED))


def may_cost(sentence: str, callers: str) -> bool:
    """Can what is said of a function be why another one, which calls it, loses marks?

    Right numbers of another type only if that raises there, or if the caller returns it.
    """
    own_fault = ONLY_TYPE in sentence and ONLY_TYPE not in callers
    return not own_fault or bool(re.search("raised (Type|Attribute)Error", callers))


def mark(sandbox: Sandbox, exercise: Exercise | Collective, seeds: list[int]) -> Mark:
    """The marks of an exercise, which gets processes of its own."""
    sandbox.fresh()
    try:
        how = mark_collective if isinstance(exercise, Collective) else mark_function
        return how(sandbox, exercise, seeds)
    except CannotStart:
        raise
    except (ArithmeticError, LookupError, MemoryError, RecursionError, *WRONG_KINDS) as error:
        return no_points(exercise, f"could not be judged: {type(error).__name__}")


def parts(exercise: Exercise | Collective) -> Iterator[tuple[str, int]]:
    """(what, points) of each part."""
    if isinstance(exercise, Collective):
        yield from exercise.scores.items()
    else:
        yield from ((part.what, part.points) for part in exercise.parts)


def no_points(exercise: Exercise | Collective, sentence: str) -> Mark:
    lost = [PartMark(what, 0, points, NOT_JUDGED) for what, points in parts(exercise)]
    lost[0].sentence = sentence
    return Mark(exercise.name, lost)


def mark_function(sandbox: Sandbox, exercise: Exercise, seeds: list[int]) -> Mark:
    found, calls, parts_asked = Mark(exercise.name), [], []
    for part in exercise.parts:
        parts_asked.append(answers(sandbox, exercise, part, cases_of(part, seeds), calls))
        if parts_asked[-1].error:
            found = no_points(exercise, parts_asked[-1].error)
            break
    else:
        results = [result for asked in parts_asked for result in asked.results]
        named = typical(exercise.mistakes, results, exercise.relative)
        for part, asked in zip(exercise.parts, parts_asked):
            sentence = first_failure(sandbox, exercise, asked, named, len(calls) > 1)
            points = 0 if sentence else part.points
            found.parts.append(PartMark(part.what, points, part.points, sentence))
    if seeds == [PUBLIC_SEED]:  # a file could print hidden cases, even in a public call
        found.printed = chosen_output(calls)
    return found


def cases_of(part: Part, seeds: list[int]) -> list[GradedCall]:
    """The public cases before hidden ones, and small ones first: they are shown if they fail."""
    cases = [
        GradedCall(arguments, hidden=seed != PUBLIC_SEED)
        for seed in seeds
        for arguments in part.cases(source(seed, part))
    ]
    return sorted(cases, key=lambda case: (case.hidden, size(case.arguments)))


def source(seed: int, part: Part) -> np.random.Generator:
    """The random numbers of a part's cases."""
    return np.random.default_rng([seed, zlib.crc32(part.what.encode())])


def fatal(sentence: str) -> bool:
    """Does it end the whole exercise? What hangs or crashes is not started again."""
    starts = ("did not end", NO_TIME, "ended its", "its process", "wrote into", "ran out", "closed")
    starts += ("gave an answer",)
    return sentence.startswith((*BEFORE_A_CALL, *starts)) or bool(FORBIDDEN.search(sentence))


def answers(
    sandbox: Sandbox, exercise: Exercise, part: Part, cases: list[GradedCall], calls: list
) -> Answers:
    """The results of a part's cases, up to a call that ends the exercise.

    calls: gets (call, is it wrong, what it printed) of each case.
    """
    found = Answers([])
    for case in cases:
        request = {"call": exercise.name, "arguments": encoded(list(case.arguments))}
        answer = sandbox.ask(request, case.hidden)
        calls.append([call(exercise.name, case.arguments), "error" in answer, sandbox.printed])
        wanted, error = plain(exercise.wanted(case.arguments)), answer.get("error", "")
        if fatal(error):
            found.error = error_sentence(exercise.name, case, error)
            break
        result = None if error else decoded(answer["result"])
        wrong = bool(error or difference(result, wanted, exercise.relative))
        calls[-1][1] = wrong
        found.results.append(CallResult(case, result, wanted, wrong, error))
        if not wrong and part.keeps and answer.get("changed") and not found.changes:
            where = (hidden_call if case.hidden else call)(exercise.name, case.arguments)
            found.changes = f"it changes its arguments in place; wanted new arrays, for {where}"
    return found


def first_failure(
    sandbox: Sandbox, exercise: Exercise, asked: Answers, named: str, several: bool
) -> str:
    """A sentence on the first wrong case, "" if all are right. named: the file's mistake."""
    if not asked.wrong:
        return asked.changes
    first = asked.wrong[0]
    if first.error:
        said = error_sentence(exercise.name, first.case, first.error)
        return f"{named}; {said}" if named else said
    if first.case.hidden:
        where = hidden_call(exercise.name, first.case.arguments)
        return f"{named or 'wrong'}, for {where}"
    values = exercise.name, first.case.arguments, first.result, first.wanted
    said = failure(*values, exercise.relative)
    if named:
        return f"{named}; {said}"
    alone = several and right_alone(sandbox, exercise, first)
    return f"{ALONE}; {said}" if alone else said


def right_alone(sandbox: Sandbox, exercise: Exercise, wrong: CallResult) -> bool:
    """Is a wrong result right where the file is called once? Then it keeps something."""
    request = {"call": exercise.name, "arguments": encoded(list(wrong.case.arguments))}
    answer = sandbox.alone(request)
    return "error" not in answer and not difference(
        decoded(answer["result"]), wrong.wanted, exercise.relative
    )


def error_sentence(name: str, case: GradedCall, error: str) -> str:
    """What went wrong, and for which call."""
    if case.hidden:
        return f"{without_text(error)}, for {hidden_call(name, case.arguments)}"
    if error.startswith(BEFORE_A_CALL):
        return error
    return f"{error}, for {call(name, case.arguments)}"


def typical(mistakes: list[TypicalMistake], results: list[CallResult], relative: float) -> str:
    """The sentence of the mistake that gives all these results, wrong ones and right ones.

    Of several, that of a variant's own rule that is left out. "" if there is none.
    """
    wrong_first = sorted(results, key=lambda each: not each.wrong)
    if not wrong_first or not wrong_first[0].wrong:
        return ""
    found = [m for m in mistakes if all(gives(m, each, relative) for each in wrong_first)]
    own = [mistake for mistake in found if mistake.sentence.startswith(AS_PUBLISHED)]
    return next((mistake.sentence for mistake in own + found), "")


def gives(mistake: TypicalMistake, made: CallResult, relative: float) -> bool:
    """Is the result of a file, or what it raised, that of the mistake?"""
    try:
        with np.errstate(all="ignore"):
            mine = plain(returned(mistake.function, made.case.arguments))
    except Exception as error:  # noqa: BLE001  a mistake may fail for some arguments
        return raised(error, "") == without_line(made.error)
    return not made.error and not difference(made.result, mine, relative)
