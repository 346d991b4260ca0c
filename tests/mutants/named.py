"""Runs one test of the suite, named "predict/test_fit.py::test_exact_points", with whatever of the project is imported now.

Not by pytest: a call of the function for each of its parameters, without those marked `long`. Fixtures are those below
and the test file's own.
"""

import contextlib
import importlib
import inspect
import itertools
import sys
import tempfile
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
BROKEN = (NameError, ImportError, SyntaxError, TypeError, AttributeError)  # a mutant that does not even run is no mutant
sys.path += [str(folder) for folder in (TESTS, *TESTS.iterdir()) if folder.is_dir() and str(folder) not in sys.path]


def is_red(place):
    """Does the test fail?"""
    file, _, name = place.partition("::")
    module = importlib.import_module(Path(file).stem)
    try:
        run(module, getattr(module, name))
    except BROKEN:
        raise
    except (Exception, pytest.fail.Exception):
        return True
    return False


def run(module, function):
    for arguments in parameters(function):
        with contextlib.ExitStack() as stack:
            function(**arguments, **fixtures(module, function, stack, arguments))


def parameters(function):
    """[{name: value}] of all combinations of its `parametrize` marks."""
    sets = []
    for mark in (mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"):
        names = mark.args[0].replace(",", " ").split() if isinstance(mark.args[0], str) else mark.args[0]
        rows = [row for row in mark.args[1] if not is_long(row)]
        rows = [getattr(row, "values", row) if type(row).__name__ == "ParameterSet" else row for row in rows]
        sets.append([dict(zip(names, row if len(names) > 1 or isinstance(row, tuple) and len(row) == 1 else [row]))
                     for row in rows])  # fmt: skip
    return [{name: value for row in rows for name, value in row.items()} for rows in itertools.product(*sets)]


def is_long(row):
    return any(mark.name == "long" for mark in getattr(row, "marks", ()))


def fixtures(module, function, stack, known):
    """{name: value} of the arguments that are not known; what they open is closed with the stack."""
    known = dict(known)
    wanted = [name for name in inspect.signature(function).parameters if name not in known]
    for name in wanted:
        if name in FIXTURES:
            known[name] = stack.enter_context(FIXTURES[name]())
        else:
            made = inspect.unwrap(getattr(module, name))
            known[name] = made(**fixtures(module, made, stack, {}))
    return {name: known[name] for name in wanted}


@contextlib.contextmanager
def on_ranks():
    threads = importlib.import_module("refgf.comm.threads")
    yield lambda function, *args, sizes=(1, 2, 3, 5): [threads.run(p, function, *args) for p in sizes]


@contextlib.contextmanager
def tmp_path():
    with tempfile.TemporaryDirectory(prefix="refgf-mutant-") as folder:
        yield Path(folder)


FIXTURES = {"on_ranks": on_ranks, "tmp_path": tmp_path, "monkeypatch": pytest.MonkeyPatch.context}
