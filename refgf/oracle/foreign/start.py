"""The process of foreign code. It is started as a script: python -P start.py JUDGE DESCRIPTOR [1]

    judge    ---- {"wall", "modules", "server", "arguments", ...} ---->
             <--- what stays open, before any foreign code runs -------
             ---- questions ---->   server.opened(**arguments): the first answer, and a function
             <--- answers -------   for the others; None if there will be none

JUDGE: its process number. First the keeper, while this process is small; then the wall and NumPy;
at the first question the foreign code. modules: {name: [path, code, is it a package]} of refgf
where nothing of refgf may be read; None: from the checkout. 1: this is a template (template.py),
whose forks go on from the keeper.
"""

import base64
import contextlib
import faulthandler
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import marshal
import os
import sys
from pathlib import Path
from types import ModuleType

ROOT = str(Path(__file__).resolve().parents[3])


class Carried(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules whose code has come with the settings."""

    def __init__(self, modules: dict[str, list]):
        self.modules = modules

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.modules:
            return None
        place, _, is_package = self.modules[name]
        spec = importlib.util.spec_from_loader(
            name, self, origin=place, is_package=bool(is_package)
        )
        spec.has_location = True  # gives the module a __file__
        return spec

    def exec_module(self, module: ModuleType) -> None:
        _, code, _ = self.modules[module.__name__]
        exec(marshal.loads(base64.b64decode(code)), vars(module))


def own_modules_first(more: list[str], last: list[str]) -> None:
    """Nothing in a working folder takes the place of Python's modules, or of NumPy or refgf."""
    stdlib = os.path.dirname(os.__file__)
    place = next((i + 1 for i, p in enumerate(sys.path) if p.startswith(stdlib)), 0)
    while place < len(sys.path) and sys.path[place].endswith("lib-dynload"):
        place += 1
    sys.path[place:place] = more
    sys.path += last


def leave_checkout(settings: dict) -> None:
    """What the judge's side has imported here is forgotten, and not found again."""
    sys.path.remove(ROOT)
    for name in [name for name in sys.modules if name.split(".")[0] == "refgf"]:
        del sys.modules[name]
    own_modules_first(settings["paths"], settings["last"])


def server_of(settings: dict) -> ModuleType:
    """Imported, with NumPy: by a template, whose forks then have all but their own modules."""
    if settings["modules"] is None:
        faulthandler.enable()  # a crash names its line on stderr
    else:
        others = [finder for finder in sys.meta_path if not isinstance(finder, Carried)]
        sys.meta_path[:] = [Carried(settings["modules"]), *others]
    return importlib.import_module(settings["server"])


def main() -> None:
    sys.path.insert(0, ROOT)
    from refgf.oracle.foreign import orphans

    judge, descriptor = int(sys.argv.pop(1)), int(sys.argv.pop(1))
    is_template = bool(sys.argv[1:] and sys.argv.pop(1))
    if not is_template:
        orphans.keep(judge)
    from refgf.oracle.foreign import wall
    from refgf.oracle.foreign.connection import Connection

    connection = Connection(descriptor)
    settings = json.loads(connection.question())
    if is_template:
        from refgf.oracle.foreign import template

        leave_checkout(settings)
        server_of(settings)
        connection = Connection(template.forks(connection))
        orphans.keep(judge)
        settings = json.loads(connection.question())
    still_open = wall.enter(settings["wall"])
    if not is_template:
        leave_checkout(settings)
    server = server_of(settings)
    connection.answer(json.dumps(still_open).encode())
    connection.question()
    found, answer = server.opened(**settings["arguments"])
    connection.answer(found)
    with contextlib.suppress(EOFError):
        while answer:
            found = answer(connection.question(), connection.exchange)
            with contextlib.suppress(Exception):  # the foreign code may have replaced it
                sys.stdout.flush()
            connection.answer(found)


if __name__ == "__main__":
    main()
