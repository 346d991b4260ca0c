"""Foreign code behind one interface: run(case) -> {"out.x": array, ...}, or why there is no result.

    PythonModule   a module with functions of the names and arguments in SPEC.md
                   (isolation.py: in a process of its own)
    Command        a program that reads case.json and inputs.safetensors from one folder and writes
                   result.safetensors, and optionally trace.jsonl, into another
    Files          results that exist already: DIR/NAME.safetensors, optionally DIR/NAME.jsonl

Only the first two execute anything, and only what the caller named.
"""

import importlib
import importlib.util
import inspect
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, Any

import numpy as np

from refgf.oracle.foreign import orphans, ranks, scratch
from refgf.oracle.foreign.guard import ENDS, contained, describe
from refgf.oracle.foreign.process import Program, limited
from refgf.oracle.foreign.report import exit_name, shown
from refgf.oracle.foreign.untrusted import BadFile, read_bytes
from refgf.oracle.judge.cases import inside, load_tensors, save_case
from refgf.oracle.judge.trace import TraceEvent, parse_event, read_trace
from refgf.oracle.spec.calls import Outputs
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.plain_sums import PLAIN_SUMS
from refgf.oracle.spec.statement import FUNCTIONS

IMPORT_S = 60.0  # time limit of importing a module
LARGEST_OUTPUT = 1 << 28  # bytes of a file that a program writes
WANTED_MODULE = "wanted the name of a module that can be imported, or a path that ends in .py"


@dataclass
class Result:
    """outputs: {"out.x": array}; None if the function is not implemented, or with an `error`.

    general: `allreduce` took the place of a function that names its order.
    """

    outputs: Outputs | None = None
    error: str | None = None
    trace: list[TraceEvent] | None = None
    general: bool = False


class PythonModule:
    """A module by name (`package.module`) or path (`file.py`), or any object with such functions.

    A function `allreduce(xs, wire=None)` takes the place of those of a named order, for the
    profiles that accept any order. So does `allreduce(comm, x)`, which sums x in place: it runs on
    a thread per rank. An allreduce without the argument `wire` is judged only by cases without a
    wire type.
    """

    def __init__(self, module: Any, timeout_s: float = 60.0):
        self.module = load_module(module) if isinstance(module, str) else module
        self.timeout_s = timeout_s

    def provides(self, case: Case) -> bool:
        function = self.function(case)
        wired = case.function in PLAIN_SUMS and case.arguments["wire"]
        return callable(function) and (not wired or _takes_wire(function))

    def function(self, case: Case) -> Callable | None:
        plain_sum = case.function in PLAIN_SUMS
        general = getattr(self.module, "allreduce", None) if plain_sum else None
        function = getattr(self.module, case.function, general)
        return _on_threads(function) if plain_sum and _takes_comm(function) else function

    def run(self, case: Case) -> Result:
        """Functions get copies, so they may work in place. An exception in them is a failure.

        NotImplementedError is none: the case is not judged, as after a program's exit code 77.
        """
        case = replace(case, tensors={name: a.copy() for name, a in case.tensors.items()})
        function, general = self.function(case), not hasattr(self.module, case.function)
        if case.function in PLAIN_SUMS and not _takes_wire(function):
            function = _without_wire(function)
        try:
            module = SimpleNamespace(**{**vars(self.module), case.function: function})
            with np.errstate(all="ignore"), contained(self.timeout_s):
                outputs = FUNCTIONS[case.function].run(module, case)
                return Result(outputs, trace=self.trace(case), general=general)
        except NotImplementedError:
            return Result()
        except ENDS as error:  # foreign code may raise anything
            return Result(error=describe(error, case.function), general=general)

    def trace(self, case: Case) -> list[TraceEvent] | None:
        """From ring_trace(n, p) or direct_trace(n, p): optional functions that return dicts."""
        function = getattr(self.module, case.function.replace("allreduce", "trace"), None)
        if not case.function.endswith("_allreduce") or function is None:
            return None
        p, n = case["in.x"].shape
        return [parse_event("trace", _as_json(event)) for event in function(n, p)]


def _as_json(event: Any) -> str:
    return json.dumps(event if isinstance(event, dict) else vars(event))


def _takes_wire(function: Callable) -> bool:
    """Can it be called with wire=...? True if its signature cannot be read."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.name == "wire" or p.kind == p.VAR_KEYWORD for p in parameters)


def _takes_comm(function: Callable | None) -> bool:
    """Is it a function of one rank, (comm, x)?"""
    try:
        return list(inspect.signature(function).parameters)[:1] == ["comm"]
    except (TypeError, ValueError):
        return False


def _on_threads(function: Callable) -> Callable:
    """allreduce(comm, x) as a function of all ranks' arrays."""

    def allreduce(xs):
        comms, failure = ranks.run(list(xs), function)
        if failure:
            raise RuntimeError(failure)
        return [comm.x for comm in comms]

    return allreduce


def _without_wire(function: Callable) -> Callable:
    return lambda xs, wire=None: function(xs)


def load_module(name: str) -> ModuleType:
    """Import a module by name, or from a path that ends in .py, which may import its neighbours."""
    path = Path(name) if name.endswith(".py") else None
    named = path or all(part.isidentifier() for part in name.split("."))
    if not named or os.path.isdir(name):
        got = f"{name}, a folder" if os.path.isdir(name) else name
        raise ValueError(f"verify: got {got}; {WANTED_MODULE}; next: check the path")
    try:
        if path:
            read_bytes(path)
    except BadFile as error:
        raise ValueError(f"verify: got {error}") from None
    try:
        with contained(IMPORT_S):
            return _from_path(path) if path else importlib.import_module(name)
    except ENDS as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and not path and f"{name}.".startswith(f"{missing}."):
            got = f"got {name}, but there is no module {missing}; {WANTED_MODULE}"
            raise ValueError(f"verify: {got}; next: the path, as ./{name}.py") from None
        raise ValueError(
            f"verify: importing {name} {describe(error, name)}; {WANTED_MODULE}; next: import it "
            "in a Python of your own, which shows the whole traceback"
        ) from error


def _from_path(path: Path) -> ModuleType:
    """Under a name of its own, so that a file json.py does not become the `json` of all modules."""
    name = f"judged_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.append(str(path.resolve().parent))
    spec.loader.exec_module(module)
    return module


class Command:
    """A program, as one text: "./prog {case} {out}". Exit code 77: function not implemented."""

    NOT_IMPLEMENTED = 77

    def __init__(self, command: str, timeout_s: float = 60.0):
        if "{case}" not in command or "{out}" not in command:
            raise ValueError(
                f"verify: got command {command!r}; wanted one with {{case}} and {{out}} in it"
            )
        self.words, self.timeout_s = shlex.split(command), timeout_s

    def provides(self, case: Case) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open between two cases."""

    def run(self, case: Case) -> Result:
        with scratch.folder("refgf-case-") as folder, tempfile.TemporaryFile() as log:
            inputs, out = Path(folder, "case"), Path(folder, "out")
            inputs.mkdir()
            out.mkdir()
            save_case(case, inputs, prefixes=("in",), stems=("case", "inputs"))
            places = {"{case}": str(inputs), "{out}": str(out)}
            code = self._exit_code([_replaced(word, places) for word in self.words], log)
            if code is None:
                return Result(error=f"did not end within {self.timeout_s:g} s")
            if code == self.NOT_IMPLEMENTED:
                return Result()
            if code != 0:
                output = _tail(log) or "it printed nothing"
                return Result(error=f"ended with {exit_name(code)}: {output}")
            if not Path(out, "result.safetensors").exists():
                error = f"the program wrote no result.safetensors into {{out}}: {_tail(log)}"
                return Result(error=error.rstrip(": "))
            return read_result(out, "result.safetensors", "trace.jsonl")

    def _exit_code(self, words: list[str], log: IO[bytes]) -> int | None:
        """None after the time limit. Its children end with it: it has its own process group."""
        try:
            program = Program(words, preexec_fn=limited(LARGEST_OUTPUT), stdout=log, stderr=log)
        except OSError as error:
            raise ValueError(
                f"verify: got {words[0]!r}, which cannot run: {error.strerror}; wanted a program; "
                "next: check the path"
            ) from None
        try:
            return program.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            program.end()
            orphans.end_children()


def _replaced(word: str, places: dict[str, str]) -> str:
    for name, path in places.items():
        word = word.replace(name, path)
    return word


def _tail(log: IO[bytes], count: int = 300) -> str:
    log.seek(max(0, log.seek(0, 2) - count))
    return shown(log.read(count).decode(errors="replace").strip())


class Files:
    """Results in a folder. Cases without a file are not provided."""

    def __init__(self, folder: Path | str):
        if not Path(folder).is_dir():
            raise ValueError(
                f"verify: got {folder}; wanted a folder with NAME.safetensors; next: check the path"
            )
        self.folder = folder

    def unknown(self, cases: list[Case]) -> list[str]:
        """Results that belong to no case: misspelt, or of another set of cases."""
        names = {case.name for case in cases}
        files = Path(self.folder).glob("*.safetensors")
        return sorted(path.name for path in files if path.stem not in names)

    def provides(self, case: Case) -> bool:
        return Path(self.folder, f"{case.name}.safetensors").exists()

    def close(self) -> None:
        """Nothing is open."""

    def run(self, case: Case) -> Result:
        return read_result(self.folder, f"{case.name}.safetensors", f"{case.name}.jsonl")


def read_result(folder: Path | str, tensors: str, trace: str) -> Result:
    """A result file and the trace next to it. A bad file is a failure that names it."""
    try:
        outputs, _ = load_tensors(inside(folder, tensors))
        events = read_trace(inside(folder, trace)) if Path(folder, trace).exists() else None
        return Result(outputs, trace=events)
    except BadFile as error:
        return Result(error=str(error))
