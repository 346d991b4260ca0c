"""Three kinds of foreign code, one interface: run(case) -> {"out.x": array, ...}, or a reason why there is none.

    PythonModule   a module with functions of the names and arguments in SPEC.md (isolated.py: in a process of its own)
    Command        a program that reads a folder with case.json and inputs.safetensors, and writes result.safetensors
                   (and, if it likes, trace.jsonl) into another
    Files          results that are already there: DIR/NAME.safetensors (and DIR/NAME.jsonl)

Only the first two execute anything, and only what the caller named.
"""

import importlib
import importlib.util
import inspect
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from refgf.oracle.judge.cases import inside, load_tensors, save_case
from refgf.oracle.judge.files import BadFile
from refgf.oracle.judge.functions import FUNCTIONS, PLAIN_SUMS
from refgf.oracle.judge.guard import ENDS, contained, told
from refgf.oracle.judge.trace import parse_event, read_trace


@dataclass
class Result:
    """outputs: {"out.x": array}, or None with the reason in `error`; trace: list of Event, or None."""

    outputs: dict | None = None
    error: str | None = None
    trace: list | None = None


class PythonModule:
    """A module by name (`package.module`) or by path (`file.py`), or any object with such functions.

    A function `allreduce(xs, wire=None)` stands in for the ones of a named order, for the profiles that accept any.
    An allreduce without the argument `wire` is not asked to do what only a wire type would need.
    """

    def __init__(self, module, timeout_s=60.0):
        self.module, self.timeout_s = (
            load_module(module) if isinstance(module, str) else module,
            timeout_s,
        )

    def provides(self, case):
        function = self.function(case)
        return callable(function) and (
            case.function not in PLAIN_SUMS or not case.arguments["wire"] or _takes_wire(function)
        )

    def function(self, case):
        general = getattr(self.module, "allreduce", None) if case.function in PLAIN_SUMS else None
        return getattr(self.module, case.function, general)

    def run(self, case):
        """Gives the functions copies, so that they may work in place. An exception in them is a failure, not an end."""
        case = replace(case, tensors={name: a.copy() for name, a in case.tensors.items()})
        function = self.function(case)
        if case.function in PLAIN_SUMS and not _takes_wire(function):
            function = _without_wire(function)
        try:
            module = SimpleNamespace(**{**vars(self.module), case.function: function})
            with np.errstate(all="ignore"), contained(self.timeout_s):
                return Result(FUNCTIONS[case.function].run(module, case), trace=self.trace(case))
        except ENDS as error:  # whatever somebody's code raises
            return Result(error=told(error, case.function))

    def trace(self, case):
        """ring_trace(n, p), direct_trace(n, p): optional functions that return a trace as a list of dicts."""
        function = getattr(self.module, case.function.replace("allreduce", "trace"), None)
        if not case.function.endswith("_allreduce") or function is None:
            return None
        p, n = case["in.x"].shape
        return [parse_event("trace", _as_json(event)) for event in function(n, p)]


def _as_json(event):
    return json.dumps(event if isinstance(event, dict) else vars(event))


def _takes_wire(function):
    """Can it be called with wire=...? What has no readable signature can, as far as is known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.name == "wire" or p.kind == p.VAR_KEYWORD for p in parameters)


def _without_wire(function):
    return lambda xs, wire=None: function(xs)


def load_module(name):
    """Import a module by its name, or from a path that ends in .py, which may import its neighbours."""
    path = Path(name)
    if name.endswith(".py") and not path.is_file():
        raise ValueError(
            f"verify: got {name}; wanted a Python file or the name of a module; next: check the path"
        )
    try:
        with contained():
            return _from_path(path) if name.endswith(".py") else importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever somebody's code raises
        raise ValueError(f"verify: importing {name} {told(error, name)}") from error


def _from_path(path):
    """Under a name of its own: a file json.py must not become everybody's `json`."""
    name = f"judged_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.append(str(path.resolve().parent))
    spec.loader.exec_module(module)
    return module


class Command:
    """A program, as one text: "./prog {case} {out}". Exit code 77 says that it does not implement a case's function."""

    NOT_IMPLEMENTED = 77

    def __init__(self, command, timeout_s=60.0):
        if "{case}" not in command or "{out}" not in command:
            raise ValueError(
                f"verify: got command {command!r}; wanted one with {{case}} and {{out}} in it"
            )
        self.words, self.timeout_s = shlex.split(command), timeout_s

    def provides(self, case):
        return True

    def close(self):
        """Nothing is open between two cases."""

    def run(self, case):
        with (
            tempfile.TemporaryDirectory(prefix="refgf-case-") as folder,
            tempfile.TemporaryFile() as said,
        ):
            inputs, out = Path(folder, "case"), Path(folder, "out")
            inputs.mkdir()
            out.mkdir()
            save_case(case, inputs, prefixes=("in",), stems=("case", "inputs"))
            words = [
                word.replace("{case}", str(inputs)).replace("{out}", str(out))
                for word in self.words
            ]
            code = self._exit_code(words, said)
            if code is None:
                return Result(error=f"did not end within {self.timeout_s:g} s")
            if code == self.NOT_IMPLEMENTED:
                return Result()
            if code != 0:
                return Result(
                    error=f"ended with {exit_name(code)}: {_last_words(said) or 'it printed nothing'}"
                )
            if not Path(out, "result.safetensors").exists():
                return Result(
                    error=f"the program wrote no result.safetensors into {{out}}: {_last_words(said)}".rstrip(
                        ": "
                    )
                )
            return read_result(out, "result.safetensors", "trace.jsonl")

    def _exit_code(self, words, said):
        """None after the time limit, which ends its children, too: it has a process group of its own."""
        try:
            program = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
        except OSError as error:
            raise ValueError(
                f"verify: cannot run {words[0]!r}: {error.strerror}; next: check the path"
            ) from None
        try:
            return program.wait(self.timeout_s)
        except BaseException as error:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise


def exit_name(code):
    """-6 is how Python says SIGABRT."""
    return (
        f"signal {signal.Signals(-code).name}"
        if -code in set(signal.Signals)
        else f"exit code {code}"
    )


def _last_words(file, count=300):
    file.seek(max(0, file.seek(0, 2) - count))
    return file.read(count).decode(errors="replace").strip()


class Files:
    """Results that somebody wrote into a folder. Cases without a file are not provided."""

    def __init__(self, folder):
        if not Path(folder).is_dir():
            raise ValueError(
                f"verify: got {folder}; wanted a folder with NAME.safetensors; next: check the path"
            )
        self.folder = folder

    def unknown(self, cases):
        """Results that belong to no case: misspelt, or of another set of cases."""
        names = {case.name for case in cases}
        return sorted(
            path.name for path in Path(self.folder).glob("*.safetensors") if path.stem not in names
        )

    def provides(self, case):
        return Path(self.folder, f"{case.name}.safetensors").exists()

    def close(self):
        """Nothing is open."""

    def run(self, case):
        return read_result(self.folder, f"{case.name}.safetensors", f"{case.name}.jsonl")


def read_result(folder, tensors, trace):
    """A result file and the trace beside it. A file that is not what it claims to be is a failure that names it."""
    try:
        outputs, _ = load_tensors(inside(folder, tensors))
        events = read_trace(inside(folder, trace)) if Path(folder, trace).exists() else None
        return Result(outputs, trace=events)
    except BadFile as error:
        return Result(error=str(error))
