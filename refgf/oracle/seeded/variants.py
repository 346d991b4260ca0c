"""The definitions with some functions replaced, in all definitions that call these."""

import sys
from functools import cache
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

from refgf.oracle import definitions

PREFIX = "refgf.oracle.spec."


def defined() -> dict[str, FunctionType]:
    """{name: function} of all functions in the definitions' modules."""
    modules = [module for name, module in sys.modules.items() if name.startswith(PREFIX)]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__.startswith(PREFIX)
    }


def variant(**replacements: FunctionType) -> SimpleNamespace:
    """A module-like object in which the definitions call the replacements.

    All functions are copied with one shared dictionary of globals, so the definitions themselves
    stay as they are.
    """
    shared: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(PREFIX):
            shared.update(vars(module))
    originals = defined()
    unknown = set(replacements) - set(originals)
    assert not unknown, f"{unknown} are not defined"
    for name, function in originals.items():
        defaults = function.__defaults__ or ()
        defaults = tuple(replacements.get(getattr(d, "__name__", ""), d) for d in defaults)
        shared[name] = FunctionType(function.__code__, shared, name, defaults, function.__closure__)
    shared.update(replacements)
    return SimpleNamespace(**{name: shared[name] for name in {*originals, *definitions.__all__}})


@cache
def uses(name: str) -> set[str]:
    """Names of the definitions that a definition calls, directly or not, itself included."""
    functions, found, pending = defined(), set(), [name]
    while pending:
        current = pending.pop()
        if current in functions and current not in found:
            found.add(current)
            function = functions[current]
            pending += names_in(function.__code__)
            pending += [getattr(default, "__name__", "") for default in function.__defaults__ or ()]
    return found


def names_in(code: CodeType) -> list[str]:
    """Global names in a function's code, including its comprehensions and lambdas."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*code.co_names, *(name for constant in inner for name in names_in(constant))]
