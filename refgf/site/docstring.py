"""The parts of a lesson's docstring, and of the functions in its exercises and solutions."""

import ast
import re
import textwrap
from dataclasses import dataclass

SECTION = re.compile(
    r"^(QUESTION|IDEA|MESSAGES|PREDICTION|NOW CHANGE SOMETHING|APPENDIX|A COLLEAGUE SAYS)(?:\s+|$)"
)
CHANGE = "NOW CHANGE SOMETHING"


@dataclass(frozen=True)
class LessonText:
    """sections: {"QUESTION": text, ...}. write_down: what to guess. after: what follows that."""

    title: str
    commands: str
    sections: dict[str, str]
    write_down: str
    after: str
    exercises: list[str]


def lesson_text(code: str) -> LessonText:
    """Take a lesson's docstring apart."""
    first, *lines = ast.get_docstring(ast.parse(code), clean=False).splitlines()
    blocks = {"": []}
    name = ""
    for line in lines:
        if found := SECTION.match(line):
            name = found[1]
            line = " " * found.end() + line[found.end() :]
            line = "" if name == CHANGE else line  # behind it: where the solutions are
        elif line and not line.startswith(" ") and name != "WRITE":
            name = "WRITE"
        blocks.setdefault(name, []).append(line)
    parts = {key: dedented(value) for key, value in blocks.items()}
    commands, changes = parts.pop(""), parts.pop(CHANGE)
    context, write_down, after = guess(parts.pop("WRITE"))
    if context:
        parts["PREDICTION"] += f"\n\n{context}"
    title = first.partition(": ")[2].rstrip(".")
    return LessonText(title, commands, parts, write_down, after, numbered(changes))


def dedented(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n")


def guess(text: str) -> tuple[str, str, str]:
    """(what stands before it, "Before you run it, write down: ...", what follows)"""
    before, start, rest = text.partition("Before you run it")
    asked, _, after = (start + rest).partition("\n\n")
    return before.strip(), asked, after.strip()


def numbered(text: str) -> list[str]:
    """The items of "1. ... 2. ...", without their numbers."""
    return [
        textwrap.dedent("   " + item).strip() for item in re.split(r"^\d+\. ", text, flags=re.M)[1:]
    ]


def spaced(text: str) -> str:
    """With an empty line around code that is only set apart by its indentation."""
    found, code = [], False
    for line in text.splitlines():
        indented = line.startswith("    ")
        if line and found and found[-1] and indented != code:
            found.append("")
        found.append(line)
        code = indented if line else code
    return "\n".join(found)


def between(code: str, start: str, stop: str) -> tuple[str, str]:
    """(the rest of the first line that begins with `start`, the lines up to `stop`)"""
    _, _, rest = code.partition(f"\n{start}")
    first, _, body = rest.partition("\n")
    return first.strip(" -,:"), body.partition(f"\n{stop}")[0].strip("\n")


def solutions(code: str) -> dict[int, tuple[str, str]]:
    """{number of the exercise: (answer, the code that checks it)}"""
    found = {}
    for node in ast.parse(code).body:
        text = isinstance(node, ast.FunctionDef) and ast.get_docstring(node)
        if text and (number := re.match(r"(\d+)\. ", text)):
            answer = text[number.end() :]
            found[int(number[1])] = answer, ast.get_source_segment(code, node)
    return found


@dataclass(frozen=True)
class Function:
    """A function to write: "Exercise 2 (easy, 10 minutes)", its first lines, a hint or nothing."""

    title: str
    code: str
    hint: str


def functions(code: str) -> list[Function]:
    """The exercises of lessons/student."""
    found = []
    for block in re.split(r"^# (?=Exercise \d)", code, flags=re.M)[1:]:
        title, _, rest = block.partition("\n")
        hint = re.search(r"\n\n    Hint: (.*?)(?=\n\n|\n    \"\"\")", rest, re.S)
        if hint:
            rest = rest.replace(hint[0], "", 1)
        text = textwrap.dedent("    " + hint[1]) if hint else ""
        found.append(Function(title, rest.strip("\n"), text))
    return found
