"""The definitions with some functions replaced: how a seeded mistake reaches everything that uses what it replaces."""

import sys
from functools import cache
from types import FunctionType, SimpleNamespace

from refgf.oracle import definitions

PREFIX = "refgf.oracle.definitions."


def defined():
    """{name: function} of all functions in the definitions' modules."""
    modules = [module for name, module in sys.modules.items() if name.startswith(PREFIX)]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__.startswith(PREFIX)
    }


def variant(**replacements):
    """A module-like object in which the definitions call the replacements instead of the replaced functions."""
    shared = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(PREFIX):
            shared.update(vars(module))
    originals = defined()
    unknown = set(replacements) - set(originals)
    assert not unknown, f"{unknown} are not defined"
    for name, function in originals.items():
        defaults = tuple(replacements.get(getattr(d, "__name__", ""), d) for d in function.__defaults__ or ())
        shared[name] = FunctionType(function.__code__, shared, name, defaults, function.__closure__)
    shared.update(replacements)
    return SimpleNamespace(**{name: shared[name] for name in {*originals, *definitions.__all__}})


@cache
def uses(name):
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


def names_in(code):
    """Global names in a function's code, those inside its comprehensions and lambdas included."""
    inner = [name for constant in code.co_consts if hasattr(constant, "co_names") for name in names_in(constant)]
    return [*code.co_names, *inner]
