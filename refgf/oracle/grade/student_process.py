"""The process of a student's file, behind the wall of oracle/foreign. It gets arguments only.

It reads one request after the other and answers each, both JSON (`encoded`): unlike a pickle, an
answer can run nothing in the process that reads it.

    {"call": name, "arguments": [...]}   ->  {"result", "changed"} or {"error": sentence}
    {"collective": name, "xs": [...]}    ->  {"xs", "sends", ...} or {"error": sentence}

What the file prints goes into a pipe to the judge, which only shows it.

The wall is the kernel's. The audit hook here protects nothing: it says in a sentence what an
exercise does not need, where the kernel would say "Permission denied".
"""

import base64
import functools
import json
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from refgf.oracle.foreign import ranks

LONGEST = 1 << 17  # bytes of an answer
REFUSED = {
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen", "pty.spawn"),
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill"),
    *("os.killpg", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "os.chown"),
    *("os.symlink", "os.link", "os.putenv", "shutil.rmtree", "ctypes.dlopen", "sys.addaudithook"),
}


def encoded(value: Any) -> Any:
    """Nested lists, tuples, dicts, numbers, texts and arrays of numbers as JSON's types."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"an array of {value.dtype}; wanted numbers")
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": data, "dtype": value.dtype.name, "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [encoded(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[encoded(key), encoded(item)] for key, item in value.items()]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__}; wanted numbers, arrays, lists, tuples or None")


def decoded(value: Any) -> Any:
    """The inverse of `encoded`; tuples come back as lists."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if isinstance(value, dict) and "array" in value:
        data = base64.b64decode(value["array"])
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in "biuf":
            raise TypeError(f"an array of {dtype}; wanted numbers")
        return np.frombuffer(data, dtype).reshape(value["shape"]).copy()
    if isinstance(value, dict):
        return {decoded(key): decoded(item) for key, item in value["dict"]}
    return value


def guard(file: str, project: str, allowed: list[str]) -> None:
    """Refuse from now on what an exercise does not need. project: the folder with the answers."""

    def hook(event: str, arguments: tuple) -> None:
        if event == "import":
            name = str(arguments[0])
            if name.split(".")[0] in ("refgf", "lab", "kit") and not permitted(name, allowed):
                raise PermissionError(f"this exercise may not import {name}")
            if name.split(".")[0] == "mpi4py":
                raise PermissionError("an exercise may not import mpi4py; its ranks are in `comm`")
        elif event in REFUSED:
            raise PermissionError(f"an exercise may not use {event}")
        elif event == "open":
            refuse_file(file, project, allowed, *arguments[:3])

    sys.addaudithook(hook)


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
    module = ModuleType("student_" + os.path.basename(path).removesuffix(".py"))
    module.__file__, module.__source__ = path, source
    sys.modules[module.__name__] = module  # dataclasses look it up
    exec(compile(source, path, "exec"), vars(module))
    return module


@functools.cache
def of_rank(module: ModuleType, rank: int) -> ModuleType:
    """The file once more for each rank: like processes, ranks share no variables."""
    from_file = hasattr(module, "__source__")  # and not functions of the project's own
    return load(module.__file__, module.__source__) if rank and from_file else module


def sentence(error: BaseException, file: str) -> str:
    """What was raised, and on which line of the student's file."""
    if isinstance(error, NotImplementedError):
        return "not written yet"
    if isinstance(error, MemoryError):
        return f"ran out of memory{line_of(error, file)}"
    if isinstance(error, SystemExit):
        return f"called sys.exit{line_of(error, file)}"
    if type(error).__name__ in ("BdbQuit", "EOFError"):
        stopped = "stopped to ask you (breakpoint, pdb, input), but nobody can answer here"
        return f"{stopped}; next: call the function yourself{line_of(error, file)}"
    text = error.msg if isinstance(error, SyntaxError) else str(error)[:200]
    return f"raised {type(error).__name__}: {text}{line_of(error, file)}"


def line_of(error: BaseException, file: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == file:
        return f" (line {error.lineno})"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" (line {lines[-1]})" if lines else ""


def answer(module: Any, ranks: ModuleType, request: dict, file: str) -> dict:
    """The answer to one request."""
    name = request.get("call") or request["collective"]
    function = getattr(module, name, None)
    if not callable(function):
        return {"error": f"absent: the file has no function {name}"}
    try:
        if "call" in request:
            arguments = decoded(request["arguments"])
            result = function(*arguments)
            before = request["arguments"]
            try:
                changed = [i for i, a in enumerate(arguments) if encoded(a) != before[i]]
                return {"result": encoded(result), "changed": changed}
            except TypeError as error:
                return {"error": f"returned {error}"}
        xs, results, failures = decoded(request["xs"]), {}, {}

        def body(comm, x) -> None:
            try:
                own = of_rank(module, comm.Get_rank())
                results[comm.Get_rank()] = getattr(own, name)(comm, x)
            except BaseException as error:
                if not isinstance(error, ranks.AllRanksBlocked):
                    text = sentence(error, file)
                    unwritten = text == "not written yet"
                    failures[comm.Get_rank()] = (
                        text if unwritten else f"rank {comm.Get_rank()} {text}"
                    )
                raise

        comms, failure = ranks.run(xs, body, timeout_s=5.0)
        if failure:
            error = failures[min(failures)] if failures else failure
            return {"error": error, "sends": [comm.sends for comm in comms]}
        returned = results.get(0)
        returned = encoded(returned) if isinstance(returned, np.ndarray) else None
        found = {"xs": encoded([comm.x for comm in comms]), "returned": returned}
        found["late"] = any(comm.late for comm in comms)
        found["unfinished"] = [comm.unfinished() for comm in comms]
        return found | {"sends": [comm.sends for comm in comms]}
    except BaseException as error:  # noqa: BLE001  students' code may raise anything
        return {"error": sentence(error, file)}


def in_bytes(found: dict) -> bytes:
    """As JSON. A right answer has a few thousand bytes, and to compare far more takes long."""
    text = json.dumps(found).encode()
    if len(text) <= LONGEST:
        return text
    return json.dumps({"error": f"returned {len(text)} bytes; wanted at most {LONGEST}"}).encode()


def opened(
    file: str, source: str, project: str, allowed: list[str]
) -> tuple[bytes, Callable[[bytes], bytes]]:
    """What start.py runs: the file's text (in base64), imported, then the answer to a request."""
    sys.stdout.reconfigure(line_buffering=True)
    guard(file, project, allowed)
    try:
        np.seterr(all="ignore")
        module, failure = load(file, base64.b64decode(source)), None
    except BaseException as error:  # noqa: BLE001
        module, failure = None, {"error": f"cannot be imported: it {sentence(error, file)}"}

    def respond(question: bytes) -> bytes:
        return in_bytes(failure or answer(module, ranks, json.loads(question), file))

    return in_bytes({}), respond
