"""A mutant: one of the project's modules with one text in its source replaced, imported beside the real ones.

Where `old` is empty `new` is put at the end of the module.

`killed_by` names what must notice it:

    values      a golden case: wrong numbers; the diagnosis must then contain `looks`
    messages    the trace: a send without its receive, or other messages or elements than R6, D4
    deadlock    the trace: ranks wait for each other if sends block
    refused     a golden case: the project itself raises an exception
    FILE::NAME  a test of the suite, where no statement of SPEC speaks of it
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent


@dataclass(frozen=True)
class Mutant:
    module: str
    what: str
    old: str
    new: str
    looks: str = ""
    killed_by: str = "values"

    @property
    def statement(self):
        """The statement that it violates, as the diagnosis tells it; the order of summation is R2 or D1."""
        return self.looks.partition("violates ")[2].rstrip(")") or None

    @property
    def by_a_test(self):
        return "::" in self.killed_by


class MutatingFinder(importlib.abc.MetaPathFinder):
    """Imports one module from its changed source. The bytecode cache is neither read nor written."""

    def __init__(self, mutant):
        self.mutant = mutant

    def find_spec(self, name, path=None, target=None):
        if name != self.mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = MutatingLoader(name, spec.origin, self.mutant)
        return spec


class MutatingLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name, path, mutant):
        super().__init__(name, path)
        self.mutant = mutant

    def get_code(self, name):
        source = self.get_source(name)
        count = source.count(self.mutant.old)
        if self.mutant.old and count != 1:
            raise LookupError(f"{self.mutant.what}: its text is {count} times in {name}; next: choose another text")
        source = source.replace(self.mutant.old, self.mutant.new) if self.mutant.old else source + self.mutant.new
        return compile(source, self.path, "exec")


@contextlib.contextmanager
def mutated(mutant):
    """Everything of the project that is imported inside is the mutated one, and so is every test. Afterwards all is as before.

    The oracle stays as it is.
    """
    saved = {name: sys.modules.pop(name) for name in list(sys.modules) if mutable(name)}
    finder = MutatingFinder(mutant)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if mutable(name)]:
            del sys.modules[name]
        sys.modules.update(saved)
        for name, module in saved.items():  # a parent package holds its children as attributes, too
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                setattr(sys.modules[parent], child, module)


def mutable(name):
    """Is this a module of the project, or a test on top of it? Not the oracle, nor what starts and ends processes."""
    if name.startswith("refgf."):
        return name.split(".")[1] not in ("oracle", "launch")
    file = getattr(sys.modules.get(name), "__file__", None)
    return bool(file) and TESTS in Path(file).parents and Path(file).parent != HERE and name not in ("conftest", "jobs")
