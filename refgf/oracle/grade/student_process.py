"""The process of a student's file, behind the wall of oracle/foreign. It gets arguments only.

It reads one request after the other and answers each, both JSON (`encoded`): unlike a pickle, an
answer can run nothing in the process that reads it.

    {"call": name, "arguments": [...]}                 {"result", "changed"} or {"error": sentence}
    {"collective": name, "x": array, "rank", "size"}   {"x", "returned"} or {"error": sentence}

Each rank of a collective has a process of its own; what it asks before it answers is in rank.py.

What the file prints goes into a pipe to the judge, which only shows it.

The wall is the kernel's. The audit hook here protects nothing: it says in a sentence what an
exercise does not need, where the kernel would say "Permission denied".
"""

import base64
import json
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from refgf.oracle.foreign.ranks import Comm
from refgf.oracle.grade.encoding import DEEP, decoded, encoded, in_bytes
from refgf.oracle.grade.rank import Channel

WIDE = "it has null bytes, as UTF-16 has; next: save it as UTF-8"
NOTEBOOK = "it is a notebook, not a Python file; next: export it as .py"
PROVIDED = sys.stdlib_module_names | {"numpy"}
REFUSED = {
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen", "pty.spawn"),
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill"),
    *("os.killpg", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.chown"),
    *("os.symlink", "os.link", "shutil.rmtree", "ctypes.dlopen", "sys.addaudithook"),
}


def guard(file: str, project: str, allowed: list[str]) -> None:
    """Refuse from now on what an exercise does not need. project: the folder with the answers."""

    def hook(event: str, arguments: tuple) -> None:
        if event == "import":
            refuse_import(str(arguments[0]), allowed)
        elif event in REFUSED:
            raise PermissionError(f"an exercise may not use {event}")
        elif event == "open":
            refuse_file(file, project, allowed, *arguments[:3])

    sys.addaudithook(hook)


def refuse_import(name: str, allowed: list[str]) -> None:
    """Only Python's own modules and NumPy, whatever is installed: marks are equal everywhere."""
    package = name.partition(".")[0]
    if package in ("refgf", "lab", "kit") and not permitted(name, allowed):
        raise PermissionError(f"this exercise may not import {name}")
    if package == "mpi4py":
        raise PermissionError("an exercise may not import mpi4py; its ranks are in `comm`")
    known = package in (*PROVIDED, "refgf", "lab", "kit") or package.startswith("_sysconfigdata")
    if not known:
        only = "only NumPy and Python's own modules are there"
        raise ModuleNotFoundError(f"No module named {package!r}; {only}")


def permitted(name: str, allowed: list[str]) -> bool:
    """Is it an allowed module, in one, or a package of one?"""
    pairs = [(f"{name}.", f"{module}.") for module in allowed]
    return any(a.startswith(b) or b.startswith(a) for a, b in pairs)


def refuse_file(student: str, project: str, allowed: list[str], path, mode, flags) -> None:
    """Nothing may be written. Of the project, only the student's file and ALLOWED may be read."""
    if isinstance(path, int):
        return
    name = os.path.realpath(os.fsdecode(path))
    writes = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR)) or any(c in str(mode) for c in "wax+")
    if writes and name != os.devnull:
        raise PermissionError(f"an exercise may not write {os.fsdecode(path)}")
    if name.startswith("/proc/"):  # the judge's memory and command line
        raise PermissionError(f"an exercise may not read {os.fsdecode(path)}")
    inside = name.startswith(project + os.sep) and "site-packages" not in name
    if name != student and inside and not permitted(module_name(name, project), allowed):
        raise PermissionError(f"an exercise may not read {os.fsdecode(path)}")


def module_name(path: str, project: str) -> str:
    """project/refgf/comm/__pycache__/ring.cpython-311.pyc -> refgf.comm.ring"""
    parts = [part for part in os.path.relpath(path, project).split(os.sep) if part != "__pycache__"]
    parts[-1] = parts[-1].split(".")[0]
    return ".".join(part for part in parts if part != "__init__")


def load(path: str, source: bytes) -> ModuleType:
    """The text of a Python file as a module."""
    if b"\0" in source:
        raise SyntaxError(WIDE)
    if source.lstrip().startswith(b"{") and b'"cells"' in source:
        raise SyntaxError(NOTEBOOK)
    module = ModuleType("student_" + os.path.basename(path).removesuffix(".py"))
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look it up
    exec(compile(source, path, "exec"), vars(module))
    return module


def sentence(error: BaseException, file: str) -> str:
    """What was raised, and on which line of the student's file."""
    if isinstance(error, NotImplementedError) and as_given(error):
        return "not written yet"
    if isinstance(error, MemoryError):
        return f"ran out of memory{line_of(error, file)}"
    if isinstance(error, SystemExit):
        return f"ended the program (SystemExit){line_of(error, file)}"
    if type(error).__name__ in ("BdbQuit", "EOFError"):
        stopped = "stopped to ask you (breakpoint, pdb, input), but nobody can answer here"
        return f"{stopped}; next: call the function yourself{line_of(error, file)}"
    text = error.msg if isinstance(error, SyntaxError) else str(error)[:200]
    said = f"raised {type(error).__name__}: {text}".removesuffix(": ")
    return f"{said}{line_of(error, file)}"


def as_given(error: NotImplementedError) -> bool:
    """Was the called function's one line that of the starter, which raises this error?"""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    if len(codes) < 2 or codes[-2].co_filename == codes[-1].co_filename:  # its file calls it
        return False
    lines = {line for *_, line in codes[-1].co_lines()} - {None, codes[-1].co_firstlineno}
    return len(lines) <= 1 and codes[-1].co_names == ("NotImplementedError",)


def line_of(error: BaseException, file: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == file:
        return f" (line {error.lineno})"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" (line {lines[-1]})" if lines else ""


def answer(module: Any, request: dict, file: str) -> dict:
    """The answer to a call."""
    name = request["call"]
    function = getattr(module, name, None)
    if not callable(function):
        return {"error": f"absent: the file has no function {name}"}
    try:
        arguments = decoded(request["arguments"])
        result = function(*arguments)
        try:
            found = encoded(result)
        except TypeError as error:
            return {"error": f"returned {error}"}
        except RecursionError:
            return {"error": DEEP}
        pairs = zip(arguments, request["arguments"])
        return {"result": found, "changed": [i for i, pair in enumerate(pairs) if changed(*pair)]}
    except BaseException as error:  # noqa: BLE001  students' code may raise anything
        return {"error": sentence(error, file)}


def changed(argument: Any, before: Any) -> bool:
    """before: as it was encoded."""
    try:
        return encoded(argument) != before
    except (TypeError, RecursionError):  # a list may hold anything by now, itself too
        return True


def answer_of_rank(
    module: Any, request: dict, file: str, exchange: Callable[[bytes], bytes]
) -> dict:
    """What a rank of a collective has in the end. exchange: see rank.py."""
    function = getattr(module, request["collective"], None)
    if not callable(function):
        return {"error": f"absent: the file has no function {request['collective']}"}
    x = decoded(request["x"])
    comm = Comm(Channel(request["size"], x, exchange), request["rank"], x)
    try:
        returned = function(comm, x)
    except BaseException as error:  # noqa: BLE001
        return {"error": sentence(error, file)}
    before = decoded(request["x"])
    if (x.shape, x.dtype) != (before.shape, before.dtype):
        left = f"left x as {x.dtype} of shape {x.shape}"
        return {"error": f"{left}; wanted {before.dtype} of shape {before.shape}"}
    sums = np.asarray(returned) if issubclass(type(returned), np.ndarray) else None
    numbers = sums is not None and sums.dtype.kind in "biuf"
    return {"x": encoded(x), "returned": encoded(sums) if numbers else None}


def opened(
    file: str, source: str, project: str, allowed: list[str]
) -> tuple[bytes, Callable[..., bytes]]:
    """What start.py runs: the file's text (in base64), imported, then the answer to a request."""
    sys.stdout.reconfigure(line_buffering=True)
    guard(file, project, allowed)
    try:
        np.seterr(all="ignore")
        module, failure = load(file, base64.b64decode(source)), None
    except BaseException as error:  # noqa: BLE001
        module, failure = None, {"error": f"cannot be imported: it {sentence(error, file)}"}

    def respond(question: bytes, exchange: Callable[[bytes], bytes]) -> bytes:
        request = json.loads(question)
        if failure or "call" in request:
            return in_bytes(failure or answer(module, request, file))
        return in_bytes(answer_of_rank(module, request, file, exchange))

    return in_bytes({}), respond
