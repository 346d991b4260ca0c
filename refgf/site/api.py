"""The API reference of the core, from its signatures and docstrings: nothing is imported.

An anchor is the module's path and the name: `api/#comm.ring.allreduce`.
"""

import ast
from collections.abc import Iterator
from html import escape
from pathlib import Path

from refgf.site.frame import contents, page
from refgf.site.markdown import Text, folded, plain, python
from refgf.site.repository import Repository

ADDRESS = "api/index.html"
PARTS = ("comm", "nn", "exchange", "training", "predict", "ops.py", "device.py", "streams.py")
ABOUT = "Functions and classes of the core, with what each takes, returns, raises and costs."
Definition = ast.FunctionDef | ast.ClassDef


def api_page(files: Repository) -> str:
    text = Text(files, ADDRESS, "refgf/READING.md")
    body = [module_html(text, path) for path in modules(files.root)]
    reading = text.link(files.address("refgf/READING.md"))
    first = f'<p>{ABOUT} <a href="{reading}">READING.md</a> has the order in which to read it.</p>'
    head = f"<h1>API of the core</h1>\n{first}{contents(text.headings)}"
    return page(ADDRESS, "API of the core", head + "\n".join(body), ABOUT)


def modules(root: Path) -> Iterator[str]:
    """Paths of the core's modules that define something."""
    for part in PARTS:
        place = root / "refgf" / part
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            if any(public(node) for node in ast.parse(file.read_text(encoding="utf-8")).body):
                yield file.relative_to(root).as_posix()


def public(node: ast.stmt) -> bool:
    return isinstance(node, Definition) and not node.name.startswith("_")


def module_html(text: Text, path: str) -> str:
    """A module: its docstring folded behind the first line, then what it defines."""
    files, code = text.files, text.files.text(path)
    tree = ast.parse(code)
    source = text.link(files.source(path))
    name = path.removeprefix("refgf/").removesuffix(".py").replace("/", ".")
    text.headings.append((2, name, path))
    broken = path.replace("/", "/<wbr>")  # over two lines on a phone
    first, _, rest = (ast.get_docstring(tree) or "").partition("\n")
    found = [f'<h2 id="{name}"><a href="{source}"><code>{broken}</code></a></h2>']
    found.append(f"<p>{escape(first)}</p>")
    if rest.strip():
        found.append(folded("More about it", plain(rest.strip("\n"), "doc")))
    for node in tree.body:
        if public(node):
            found += member(node, name, source)
        elif made := partial_name(node):
            found.append(f'<h3 id="{name}.{made}">{title(made, node, source)}</h3>')
            above = code.splitlines()[node.lineno - 2]  # its comment
            found.append(python(f"{above}\n{ast.unparse(node)}"))
    return "\n".join(found)


def partial_name(node: ast.stmt) -> str | None:
    """The name of a function that functools.partial makes."""
    called = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    if called and ast.unparse(node.value.func) == "functools.partial":
        return ast.unparse(node.targets[0])
    return None


def member(node: Definition, place: str, source: str, level: int = 3) -> Iterator[str]:
    """A function, or a class with its fields and methods."""
    anchor = f"{place}.{node.name}"
    yield f'<h{level} id="{anchor}">{title(node.name, node, source)}</h{level}>'
    yield python(signature(node))
    if docstring := ast.get_docstring(node):
        yield plain(docstring, "doc")
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if public(inner):
                yield from member(inner, anchor, source, level + 1)


def title(name: str, node: ast.stmt, source: str) -> str:
    return f'<a href="{source}#L{node.lineno}"><code>{name}</code></a>'


def signature(node: Definition) -> str:
    """The lines above a docstring, with a class's fields and the arguments of its `__init__`."""
    decorators = [f"@{ast.unparse(each)}" for each in node.decorator_list]
    if isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return "\n".join([*decorators, f"def {node.name}({ast.unparse(node.args)}){returns}"])
    bases = ", ".join(map(ast.unparse, node.bases))
    lines = [*decorators, f"class {node.name}{f'({bases})' * bool(bases)}"]
    for inner in node.body:
        if isinstance(inner, ast.AnnAssign):
            lines.append(f"    {ast.unparse(inner)}")
        elif isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
            lines += [f"    {line}" for line in signature(inner).splitlines()]
    return "\n".join(lines)
