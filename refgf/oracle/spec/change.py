"""Other rules for an exercise: lesson 03v7 is lesson 03 with the rules that the number 7 chooses.

A change is one record. Its function goes round the definition, round every typical mistake and
round the published answers alike, so each of them follows the new rule. Where it is left out, a
file follows the published rule, and is told so. Its words go into starter, parts and sentences.
"""

import copy
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refgf.oracle.spec.exercise import Exercise, Part, TypicalMistake, returned

Rule = Callable[[Callable], Callable]


def same(*arguments: Any) -> tuple:
    """The arguments of a case, which the new rule leaves as they are."""
    return arguments


@dataclass(frozen=True)
class Change:
    """around: a function by the published rule -> one by this rule; it needs NumPy only.

    says: what is so here, for who follows the published rule. asked: a case's arguments under it.
    words: {published text: its text here}; a typical mistake whose sentence becomes "" is dropped.
    """

    exercise: Exercise
    says: str
    around: Rule
    asked: Callable = same
    words: dict[str, str] = field(default_factory=dict)


# lesson: choices, each of several sets of changes
CHANGES: dict[str, list[list[list[Change]]]] = {}


def chosen(lesson: str, number: int) -> list[Change]:
    """One set of each choice. ValueError for a lesson without any."""
    if lesson not in CHANGES:
        raise ValueError(
            f"variant: got lesson {lesson}; wanted one that has other rules: {', '.join(CHANGES)}; "
            "next: change a rule by hand, as the page for teachers shows"
        )
    random = np.random.default_rng([number, int(lesson)])
    picked = [sets[random.integers(len(sets))] for sets in CHANGES[lesson]]
    return [change for changes in picked for change in changes]


def changed(exercise: Exercise, changes: list[Change]) -> Exercise:
    """The exercise by the new rules."""
    mine = [change for change in changes if change.exercise is exercise]
    if not mine:
        return exercise
    words = {old: new for change in mine for old, new in change.words.items()}
    new = copy.copy(exercise)  # it is not entered under the published number
    new.reference = around(exercise.reference, mine)
    new.parts = [
        Part(reworded(part.what, words), part.points, asked(part, mine), part.keeps)
        for part in exercise.parts
    ]
    new.mistakes = [
        TypicalMistake(sentence, around(mistake.function, mine))
        for mistake in exercise.mistakes
        if (sentence := reworded(mistake.sentence, words))
    ]
    for change in mine:
        without = around(exercise.reference, [other for other in mine if other is not change])
        new.mistakes.append(TypicalMistake(f"as in the published exercise; {change.says}", without))
    published = TypicalMistake("this answers the published exercise", exercise.reference)
    new.mistakes += [published] * (len(mine) > 1)
    return new


def around(function: Callable, changes: Iterable[Change]) -> Callable:
    return functools.reduce(lambda inner, change: change.around(inner), changes, function)


def asked(part: Part, changes: list[Change]) -> Callable:
    """The cases of a part, as they are asked under these rules."""
    return lambda random: [arguments_of(case, changes) for case in part.cases(random)]


def arguments_of(case: tuple, changes: list[Change]) -> tuple:
    return functools.reduce(lambda arguments, change: change.asked(*arguments), changes, case)


def reworded(text: str, words: dict[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def starter(text: str, name: str, changes: list[Change]) -> str:
    """The published starter by these rules, as file `name`: words, and computed examples."""
    lesson = name.partition("v")[0]
    text = re.sub(r"(?s)and let the lesson measure.*?\n\n.*?\n\n", "", text, count=1)
    text = text.replace(f"grade {lesson} ", f"grade {name} ").replace(
        f"lessons/student/{lesson}.py", f"{name}.py"
    )
    for change in changes:
        text = reworded(text, change.words)
    for exercise in {change.exercise.number: change.exercise for change in changes}.values():
        mine = [change for change in changes if change.exercise is exercise]

        def example(found: re.Match, exercise=exercise, mine=mine) -> str:
            given = eval(f"({found[1]},)", {"math": math})  # noqa: S307  of the project's starter
            arguments = arguments_of(tuple(map(arrays, given)), mine)
            result = returned(around(exercise.reference, mine), arguments)
            call = f"{exercise.name}({', '.join(map(shown, arguments))})"
            return f"{call}{found[2]}-> {shown(result)}"

        pattern = rf"(?<=    ){exercise.name}\((.*?)\)(\s+)-> (.+?)(?= {{3,}}|\n)"
        text = re.sub(pattern, example, text)
    return text


def answers(text: str, changes: list[Change]) -> str:
    """The published answers, each with the changes of its exercise around it."""
    functions = {change.around.__name__: change.around for change in changes}
    code = [inspect.getsource(function) for function in functions.values()]
    names = [(change.exercise.name, change.around.__name__) for change in changes]
    code += [f"{name} = {rule}({name})" for name, rule in names]
    return "\n\n".join([text, *code]) + "\n"


def arrays(value: Any) -> Any:
    """The lists of numbers in a list as arrays: what each rank has."""
    is_of_ranks = isinstance(value, list) and all(
        isinstance(mine, list) and not any(isinstance(x, list) for x in mine) for mine in value
    )
    return [np.array(mine, np.float32) for mine in value] if is_of_ranks and value else value


def shown(value: Any) -> str:
    """As a starter writes it: arrays as lists, 2.0 as 2.0, infinity as math.inf."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return str([int(x) if x == int(x) else x for x in value.tolist()])
    if isinstance(value, list | np.ndarray):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return "math.inf" if value == math.inf else str(value)
