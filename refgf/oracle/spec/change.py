"""Other rules for an exercise: lesson 03v7 is lesson 03 with the rules that the number 7 chooses.

A change is one record. Its function goes round the definition, round every typical mistake and
round the published answers alike, so each of them follows the new rule. Where it is left out, a
file follows the published rule, and is told so. Its words go into starter, parts and sentences.
"""

import copy
import functools
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refgf.oracle.spec.exercise import (
    Arguments,
    Collective,
    Drawn,
    Exercise,
    Part,
    TypicalMistake,
    returned,
)

Rule = Callable[[Callable[..., Any]], Callable[..., Any]]


def same(*arguments: Any) -> Arguments:
    """The arguments of a case, which the new rule leaves as they are."""
    return arguments


@dataclass(frozen=True)
class Change:
    """around: a function by the published rule -> one by this rule; it needs NumPy only, and may
    be a functools.partial of one.

    says: what is so here, for who follows the published rule. asked: a case's arguments under it.
    words: {published text: its text here}; a typical mistake whose sentence becomes "" is dropped.
    Of a collective: published, a right function by the published rule; acts_as, (rank, p) -> the
    published exercise's rank whose work it does.
    """

    exercise: Exercise | Collective
    says: str
    around: Rule
    asked: Callable[..., Any] = same
    words: dict[str, str] = field(default_factory=dict)
    published: Callable[..., Any] | None = None
    acts_as: Callable[[int, int], int] | None = None


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


def rules(lesson: str, number: int) -> list[str]:
    """What the number chooses, a sentence a rule."""
    return list(dict.fromkeys(change.says for change in chosen(lesson, number)))


def alike(lesson: str, number: int, most: int = 100) -> list[int]:
    """Of the `most` numbers below this one, those that choose the same rules."""
    mine = rules(lesson, number)
    return [n for n in range(max(0, number - most), number) if rules(lesson, n) == mine]


def changed(exercise: Exercise | Collective, changes: list[Change]) -> Exercise | Collective:
    """The exercise by the new rules; a collective takes one."""
    mine = [change for change in changes if change.exercise is exercise]
    if not mine:
        return exercise
    words = {old: new for change in mine for old, new in change.words.items()}
    new = copy.copy(exercise)  # it is not entered under the published number
    new.mistakes = [
        TypicalMistake(sentence, around(mistake.function, mine))
        for mistake in exercise.mistakes
        if (sentence := reworded(mistake.sentence, words))
    ]
    if isinstance(new, Collective):
        renumber(new, *mine)
        return new
    new.reference = around(exercise.reference, mine)
    new.parts = [
        Part(reworded(part.what, words), part.points, asked(part, mine), part.keeps)
        for part in new.parts
    ]
    for change in mine:
        without = around(exercise.reference, [other for other in mine if other is not change])
        new.mistakes.append(TypicalMistake(f"as in the published exercise; {change.says}", without))
    published = TypicalMistake("this answers the published exercise", exercise.reference)
    new.mistakes += [published] * (len(mine) > 1)
    return new


def renumber(collective: Collective, change: Change) -> None:
    """Give the order of adding and the messages of each rank to the rank that acts as it."""
    reference, sends, acts_as = collective.reference, collective.sends, change.acts_as
    assert acts_as and change.published, "a change of a collective has both"

    def actual(p: int) -> list[int]:
        return sorted(range(p), key=lambda rank: acts_as(rank, p))

    collective.reference = lambda xs: reference([xs[rank] for rank in actual(len(xs))])
    collective.sends = lambda n, p, rank: [
        (actual(p)[peer], start, stop) for peer, start, stop in sends(n, p, acts_as(rank, p))
    ]
    sentence = f"as in the published exercise; {change.says}"
    collective.mistakes.append(TypicalMistake(sentence, change.published))


def around(function: Callable[..., Any], changes: Iterable[Change]) -> Callable[..., Any]:
    return functools.reduce(lambda inner, change: change.around(inner), changes, function)


def asked(part: Part, changes: list[Change]) -> Drawn:
    """The cases of a part, as they are asked under these rules."""
    return lambda random: [arguments_of(case, changes) for case in part.cases(random)]


def arguments_of(case: Arguments, changes: list[Change]) -> Arguments:
    return functools.reduce(lambda arguments, change: change.asked(*arguments), changes, case)


def reworded(text: str, words: dict[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def starter(text: str, name: str, changes: list[Change]) -> str:
    """The published starter by these rules, as file `name`: words, and computed examples."""
    lesson, published = name.partition("v")[0], text
    text = re.sub(r"(?s)and let the lesson measure.*?\n\n.*?\n\n", "", text, count=1)
    text = text.replace(f"grade {lesson} ", f"grade {name} ").replace(
        f"lessons/student/{lesson}.py", f"{name}.py"
    )
    for change in changes:
        text = reworded(text, change.words)
    for exercise in {change.exercise.number: change.exercise for change in changes}.values():
        mine = [change for change in changes if change.exercise is exercise]
        if isinstance(exercise, Collective):
            continue
        types = exercise.parts[0].cases(np.random.default_rng(0))[0]

        def example(
            found: re.Match[str],
            exercise: Exercise = exercise,
            mine: list[Change] = mine,
            types: Arguments = types,
        ) -> str:
            given = eval(f"({found[1]},)", {"np": np})  # noqa: S307  our starter
            arguments = arguments_of(tuple(map(typed, given, types)), mine)
            result = returned(around(exercise.reference, mine), arguments)
            same_case = all(change.asked is same for change in mine)
            call = found[1] if same_case else ", ".join(map(shown, arguments))
            return f"{exercise.name}({call}){found[2]}-> {shown(result)}"

        pattern = rf"(?<=    ){exercise.name}\((.*?)\)(\s+)-> (.+?)(?= {{3,}}|\n)"
        text = re.sub(pattern, example, text)
    lines = [part for line in text.splitlines() for part in examples(line)]
    return "\n".join(filled(lines, set(published.splitlines()))) + "\n"


def examples(line: str) -> list[str]:
    """The examples of a line of more than 100 columns apart, and results if they do not fit."""
    start = indent(line)
    if len(line) <= 100:
        return [line]
    first, *others = re.split(r"(?<=\S) {3,}(?=\w+\()", line)
    if others:
        return [part for each in (first, *(start + o for o in others)) for part in examples(each)]
    call, *result = re.split(r"(?<=\)) +(?=-> )", line)
    return [call, *(f"{start}    {text}" for text in result)]


def indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))]


def filled(lines: list[str], known: set[str]) -> Iterator[str]:
    """Lines of at most 100 columns: a paragraph with a line that is not known is filled anew."""
    paragraphs: list[list[str]] = []
    for before, line in zip(["", *lines], lines):
        goes_on = prose(before) and prose(line) and not (before.endswith(".") and LABEL.match(line))
        paragraphs[-1:] = [[*paragraphs[-1], line]] if goes_on else [*paragraphs[-1:], [line]]
    for paragraph in paragraphs:
        if known.issuperset(paragraph):
            yield from paragraph
        else:
            start = indent(paragraph[0])
            text = start + " ".join(line.strip() for line in paragraph)
            yield from textwrap.wrap(text, 100, subsequent_indent=start, break_on_hyphens=False)


LABEL = re.compile(r" +[\w\[\], -]{1,30}: ")  # "chosen: chunk numbers", "Step 1, in the node: "


def prose(line: str) -> bool:
    """Words of a docstring, not a table, an example, a command or code."""
    indented = re.match(r' {4}(?! |"""$|# )', line)
    return bool(indented) and not re.search(r"\S {2,}|\) ->|^ +\w+(\(.+\)|: .+,)$", line)


def answers(text: str, name: str, changes: list[Change]) -> str:
    """The published answers as those of `name`, each with the changes of its exercise around it."""
    text = text.replace(f"lessons/student/{name.partition('v')[0]}.py", f"{name}.py")
    rules = [(change.exercise.name, parts_of(change.around)) for change in changes]
    for name in dict(rules):
        text = re.sub(rf"\b{name}\b", f"published_{name}", text)  # others go on calling it
    code = [inspect.getsource(rule) for rule in dict.fromkeys(rule for _, (rule, _) in rules)]
    if "import numpy" not in text:
        code.insert(0, "import numpy as np")
    done = set()
    for name, (rule, given) in rules:
        inner = name if name in done else f"published_{name}"
        code.append(f"{name} = {rule.__name__}({', '.join([inner, *given])})")
        done.add(name)
    return "\n\n".join([text, *code]) + "\n"


def parts_of(rule: Rule) -> tuple[Callable[..., Any], list[str]]:
    """(function, its keywords as code) of a rule that may be a functools.partial."""
    given = getattr(rule, "keywords", {})
    return getattr(rule, "func", rule), [f"{name}={value!r}" for name, value in given.items()]


def typed(value: Any, like: Any) -> Any:
    """An example's value with the types of a case's: its lists may be arrays."""
    if isinstance(like, np.ndarray):
        return np.array(value, like.dtype)
    if isinstance(value, list) and isinstance(like, list):
        return [typed(mine, like[0]) for mine in value]
    return value


def shown(value: Any) -> str:
    """As a starter writes it: arrays as lists, their 2.0 as 2, infinity as np.inf."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return f"[{', '.join(shown(x).removesuffix('.0') for x in value)}]"
    if isinstance(value, list | np.ndarray):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    if isinstance(value, dict | str):
        return json.dumps(value)
    if isinstance(value, np.float32) and 1e-3 <= abs(value) < np.inf:
        return str(round(float(value), 6))
    if isinstance(value, float) and np.isfinite(value):  # float64, too
        short = f"{value:.4g}".replace("e+0", "e")  # 6e9
        return (
            short
            if value >= 1e6 and float(short) == value
            else str(round(float(f"{value:.12g}"), 12) + 0.0)
        )
    return "np.inf" if value == np.inf else str(value)
