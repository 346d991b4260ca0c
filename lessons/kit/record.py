"""What a lesson's JSON says beside its results: the machine, the sources, and values as JSON has them."""

import ast
import hashlib
import math
import platform
import sys
from dataclasses import asdict, is_dataclass
from pathlib import Path

import numpy as np

import refgf.launch as launch

ROOT = Path(__file__).resolve().parents[2]


def machine(options) -> dict:
    """What the numbers were measured on."""
    from threadpoolctl import threadpool_info

    blas = [f"{p['internal_api']} {p.get('architecture', '')} x {p['num_threads']}" for p in threadpool_info()]
    facts = {"cpu": cpu_name(), "cores": launch.job.cores, "python": platform.python_version(), "numpy": np.__version__}
    facts["blas"] = sorted(set(blas))
    if not options.threads:
        from mpi4py import MPI

        facts["mpi"] = MPI.Get_library_version().splitlines()[0].strip()
    return facts


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def sources(lesson: Path) -> dict[str, str]:
    """{file: hash of its code} of the lesson and of every module of the project that it has loaded."""
    files = {Path(m.__file__).resolve() for m in list(sys.modules.values()) if getattr(m, "__file__", None)}
    used = {f for f in files if f.suffix == ".py" and (ROOT / "refgf" in f.parents or ROOT / "lessons" in f.parents)}
    return {str(f.relative_to(ROOT)): code_hash(f) for f in sorted(used | {lesson})}


def code_hash(file: Path) -> str:
    """A hash of what the file does: docstrings, blank lines and lines of comment do not count."""
    text = file.read_text()
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            first, last = node.body[0].lineno, node.body[0].end_lineno
            lines[first - 1 : last] = [""] * (last - first + 1)
    code = [line.rstrip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:16]


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
