"""The record in a lesson's JSON next to its results: machine, code hash, values in JSON types."""

import ast
import functools
import hashlib
import json
import math
import platform
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path

import numpy as np

import refgf.launch as launch

ROOT = Path(__file__).resolve().parents[2]  # of a checkout, or refgf/shipped where installed
INSTALLED = Path(launch.__file__).resolve().parents[2]  # the folder of refgf; in a checkout ROOT
WRITABLE = ROOT if ROOT == INSTALLED else Path.cwd()  # where results/ is made
PACKAGES = ("comm", "nn", "exchange", "training", "predict")
DRAWN_ANEW = "claims.py", "picture.py", "gantt.py"  # ends of names
OF_STUDENTS = "yours.py"  # a lab's, on what --mine brings
MODULES = "refgf/ops.py", "refgf/device.py", "refgf/streams.py"
CORE = (*MODULES, "refgf/torch/", *(f"refgf/{package}/" for package in PACKAGES))
OF_CLAIMS_AND_TYPES = "kit.claims", "typing", "collections.abc", "numpy.typing"  # modules


def machine(options) -> dict:
    """The hardware and software that the numbers were measured on."""
    from threadpoolctl import threadpool_info

    blas = [
        f"{p['internal_api']} {p.get('architecture', '')} x {p['num_threads']}"
        for p in threadpool_info()
    ]
    facts = {
        "cpu": cpu_name(),
        "cores": launch.job.cores,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    facts["blas"] = sorted(set(blas))
    if not options.threads:
        from mpi4py import MPI

        facts["mpi"] = MPI.Get_library_version().splitlines()[0].strip()
    return facts


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def code_hash(lesson: Path, root: Path = ROOT) -> str:
    """One hash of a lesson, its lab and the core files on its import path.

    The import path is read from the sources, through every module of the project (kit and papers
    too), so the lesson need not run. Of each file only the syntax tree without docstrings and
    annotations counts: comments, docstrings, types, line breaks, claims and pictures never change
    the hash. `--plot` and docs/tools/gains.py make claims and pictures anew from the same numbers.
    """
    files = {file for file in import_path([lesson], root) if counts(file, root)}
    codes = sorted(code(file.read_text()) for file in {lesson, *files})
    return hashlib.sha256("\n".join(codes).encode()).hexdigest()[:16]


def counts(file: Path, root: Path = ROOT) -> bool:
    """Is this a file of the core or of the lessons' lab? A claim or a picture measures nothing."""
    base = root if file.is_relative_to(root) else INSTALLED
    place = file.relative_to(base).as_posix()
    return place.startswith((*CORE, "lessons/lab/")) and not file.name.endswith(DRAWN_ANEW)


def import_path(files: list[Path], root: Path = ROOT) -> set[Path]:
    """The project's files that these import, directly or not, and these themselves.

    Without a lab's yours.py and what it imports: only a run with --mine comes there.
    """
    seen, pending, known = set(files), list(files), set()
    while pending:
        names = imports(pending.pop().read_text()) - known
        known |= names
        found = {file for name in names for file in files_of(name, root)} - seen
        found = {file for file in found if file.name != OF_STUDENTS}
        seen |= found
        pending += found
    return seen


@functools.cache
def imports(text: str) -> frozenset[str]:
    """{"refgf.comm.ring", ...}: what a Python source imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


@functools.cache
def code(text: str) -> str:
    """The syntax tree of a Python source as text, without docstrings, annotations and claims."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not is_claim(node)]
    return repr(as_data(tree))


def as_data(node, in_class: bool = False):
    """A syntax tree as lists and tuples, without empty fields: Python versions differ in those.

    An annotated name in a class counts as one, because it is a dataclass's field; its type doesn't.
    """
    if isinstance(node, list):
        kept = [item for item in node if in_class or not is_declaration(item)]
        return [as_data(item, in_class) for item in kept if not is_docstring(item)]
    if not isinstance(node, ast.AST):
        return node
    if isinstance(node, ast.AnnAssign) and node.value and not in_class:
        node = ast.Assign([node.target], node.value)
    fields = [
        (name, as_data(value, isinstance(node, ast.ClassDef)))
        for name, value in ast.iter_fields(node)
        if value not in (None, []) and name not in ("annotation", "returns")
    ]
    return type(node).__name__, fields


def is_claim(node) -> bool:
    """CLAIMS = (...), and imports for claims and types: no measurement depends on them."""
    if isinstance(node, ast.ImportFrom):
        return node.module in OF_CLAIMS_AND_TYPES
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "CLAIMS" for target in node.targets
    )


def is_docstring(node) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def is_declaration(node) -> bool:
    """`name: type` without a value; outside a class it does nothing."""
    return isinstance(node, ast.AnnAssign) and node.value is None


def files_of(name: str, root: Path) -> list[Path]:
    """The project's files that importing a name executes: those of its packages, then its own."""
    parts = name.split(".")
    home = root if (root / "refgf").exists() else INSTALLED
    base = root / "lessons" if parts[0] in ("kit", "lab") else home
    places = [base.joinpath(*parts[: i + 1]) for i in range(len(parts))]
    files = [file for place in places for file in (place / "__init__.py", place.with_suffix(".py"))]
    return [file for file in files if file.exists()] if parts[0] in ("kit", "lab", "refgf") else []


def plain(value):
    """Dataclasses, NumPy numbers and infinities as JSON has them (infinity as the text "inf")."""
    if is_dataclass(value):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def kept(rank: int, parts: Iterator[dict] | dict, unfinished: Path) -> dict:
    """All that `parts` is or yields; each part is in this file as soon as it is measured."""
    found: dict = {}
    for part in [parts] if isinstance(parts, dict) else parts:
        found |= part
        if rank == 0:
            write(unfinished, plain(found))
    return found


def write(path: Path, result: dict) -> None:
    try:
        path.write_text(json.dumps(result, indent=1) + "\n")
    except OSError as error:
        raise ValueError(not_written(path, error)) from None


def not_written(path: Path, error: OSError) -> str:
    return f"{path}: got {error.strerror}; wanted room; next: make some, or --output FOLDER"
