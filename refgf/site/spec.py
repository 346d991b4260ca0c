"""SPEC.md with an address for each statement, `spec/#R2`, and with what belongs to it.

Under each statement: its definition, its golden cases, the seeded mistakes that violate it, and the
lessons that use it.
"""

import ast
import functools
import inspect
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

from refgf.oracle.definitions import statements
from refgf.oracle.grade.marking import exercises_of, lessons
from refgf.oracle.spec.statement import MISTAKES
from refgf.oracle.spec.variants import ROOTS, called
from refgf.site.frame import contents, page
from refgf.site.markdown import Text, folded
from refgf.site.repository import Repository, lesson_numbers

ADDRESS, FILE = "spec/index.html", "refgf/oracle/SPEC.md"
ROW = re.compile(r"<tr>\n<td>([A-Z]\d+)</td>\n<td[^>]*>(.*?)</td>", re.S)
DEFINITIONS = ("refgf.oracle.definitions", "refgf.oracle.spec")
SHOWN = 3  # golden cases with a link


def spec_page(files: Repository) -> str:
    text = Text(files, ADDRESS, FILE)
    html = text.markdown(files.text(FILE))
    known = {found[1] for found in ROW.finditer(html)}
    html = ROW.sub(lambda row: statement(text, row[1], row[2], known), html)
    first, rest = html.split("</h1>", 1)
    about = "What each technique must produce, statement by statement."
    return page(ADDRESS, "Spec", f"{first}</h1>{contents(text.headings, 3)}{rest}", about)


def statement(text: Text, number: str, said: str, known: set[str]) -> str:
    """The first two cells of a row: an address, links to other statements, what belongs to it."""

    def linked(found: re.Match) -> str:
        other = found[0]
        return f'<a href="#{other}">{other}</a>' if other in known and other != number else other

    said = re.sub(r"\b[A-Z]\d+\b", linked, said)
    own = f'<a href="#{number}">{number}</a>'
    more = "".join(f"<div>{each}</div>" for each in belongings(text, number))
    said = f'<td class="prose">{said}<div class="more">{more}</div></td>'
    return f'<tr id="{number}">\n<td>{own}</td>\n{said}'


def belongings(text: Text, number: str) -> list[str]:
    """Definition, golden cases and mistakes of a statement, as HTML."""
    files, found = text.files, []
    function = statements().get(number)
    if function:
        file = Path(inspect.getfile(function)).resolve()
        path = file.relative_to(files.root).as_posix()
        line = inspect.getsourcelines(function)[1]
        href = text.link(f"{files.source(path)}#L{line}")
        found.append(f'definition: <a href="{href}"><code>{function.__name__}</code></a>')
    cases = golden_cases(files.root)[number]
    if cases:
        shown = cases[:SHOWN]
        links = [f'<a href="{text.link(files.copy(path))}">{name}</a>' for name, path in shown]
        rest = f" and {len(cases) - SHOWN} more" if len(cases) > SHOWN else ""
        found.append(f"golden cases: {', '.join(links)}{rest}")
    names = [mistake.name for mistake in MISTAKES if mistake.statement == number]
    if names:
        items = "".join(f"<li>{escape(name)}</li>" for name in names)
        found.append(folded(f"seeded mistakes: {len(names)}", f"<ul>{items}</ul>"))
    if function and (link := lesson_link(text, number, function.__name__)):
        found.append(link)
    return found


def lesson_link(text: Text, number: str, name: str) -> str:
    """Lessons that use a definition, else those that use others of its letter; "" if none does."""
    used = lessons_of(text.files.root)
    same = [each.__name__ for other, each in statements().items() if other[0] == number[0]]
    exact = used[name]
    lessons = exact or set().union(*(used[each] for each in same))
    links = [
        f'<a href="{text.link(f"lessons/{lesson}/index.html")}">{lesson}</a>'
        for lesson in sorted(lessons)
    ]
    about = "lessons" if exact else f"lessons on other statements of {number[0]}"
    return f"{about}: {', '.join(links)}" if links else ""


@functools.cache
def lessons_of(root: Path) -> dict[str, set[str]]:
    """{function of the definitions: lessons whose code, exercises or solutions use it}"""
    found = defaultdict(set)
    for number in lesson_numbers(root):
        (lesson,) = (root / "lessons").glob(f"{number}_*.py")
        files = [lesson, root / "lessons" / "solutions" / lesson.name]
        for folder in re.findall(r"^from lab\.(\w+) import", lesson.read_text(), re.M):
            files += (root / "lessons" / "lab" / folder).glob("*.py")
        used = {name for file in files for name in names_used(file.read_text(encoding="utf-8"))}
        for exercise in exercises_of(number) if number in lessons() else ():
            used |= definitions_of(exercise.reference)
        for name in used:
            found[name].add(number)
    return found


def definitions_of(reference: Callable) -> set[str]:
    """The definition that an exercise asks for, or those that its answer calls."""
    if reference in ROOTS:
        return {reference.__name__}
    return {function.__name__ for function in called(reference) & set(ROOTS)}


def names_used(code: str) -> Iterator[str]:
    """Names that a module takes from refgf.oracle.definitions."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(DEFINITIONS):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "definitions":
            yield node.attr


CASES: dict[Path, dict[str, list[tuple[str, str]]]] = {}


def golden_cases(root: Path) -> dict[str, list[tuple[str, str]]]:
    """{statement: [(name, path)]}, read once."""
    if root not in CASES:
        CASES[root] = defaultdict(list)
        for file in sorted((root / "refgf/oracle/golden").rglob("*.json")):
            case = json.loads(file.read_text())
            for number in case.get("statements", []):
                CASES[root][number].append((case["name"], file.relative_to(root).as_posix()))
    return CASES[root]
