"""The smallest set of files that some modules of refgf need, read from their imports."""

import ast
import base64
import functools
import marshal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def closure(modules: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Everything that modules of refgf import, in functions too.

    modules: full names. Returns ({path: text} of refgf's files, libraries outside the standard
    library).
    """
    files, libraries, pending = {}, set(), list(modules)
    while pending:
        name = pending.pop()
        if name.split(".")[0] != "refgf":
            libraries.add(name.split(".")[0])
            continue
        path = module_file(name)
        place = path.relative_to(ROOT).as_posix()
        if place not in files:
            files[place] = path.read_text(encoding="utf-8")
            pending += [*imported(files[place]), *parents(name)]
    return dict(sorted(files.items())), sorted(libraries - set(sys.stdlib_module_names))


@functools.cache
def carried(*modules: str) -> dict[str, list]:
    """{module: [path, code, is it a package]} of their closure, to be imported without files.

    code: of this Python, marshalled, in base64. Each process would compile the text anew: 25 ms.
    """
    found = {}
    for place, text in closure(modules)[0].items():
        is_package = place.endswith("/__init__.py")
        name = place.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        code = marshal.dumps(compile(text, str(ROOT / place), "exec"))
        found[name] = [str(ROOT / place), base64.b64encode(code).decode(), is_package]
    return found


def module_file(name: str) -> Path:
    path = ROOT.joinpath(*name.split("."))
    package = path / "__init__.py"  # an older version may have left a folder without one
    return package if package.is_file() else path.with_suffix(".py")


@functools.cache  # most of a build's time
def imported(text: str) -> list[str]:
    """The modules that a file imports."""
    found = []
    for node in statements(text):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [node.module, *(name for name in names if module_file(name).is_file())]
    return found


def statements(text: str) -> Iterator[ast.AST]:
    """Those of a file, at any depth; expressions, which are most of it, import nothing."""
    pending: list[ast.AST] = [ast.parse(text)]
    while pending:
        yield (node := pending.pop())
        for inner in ("body", "orelse", "finalbody", "handlers", "cases"):
            pending += getattr(node, inner, ())


def parents(name: str) -> list[str]:
    """refgf.oracle.grade -> [refgf, refgf.oracle]"""
    parts = name.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]
