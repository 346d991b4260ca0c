"""The definitions with some functions replaced, in all definitions that call these."""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

PREFIX = "refgf.oracle.spec."
ROOTS: list[Callable[..., Any]] = []  # definitions of statements and of judged functions


def variant(**replacements: Callable[..., Any]) -> SimpleNamespace:
    """A module-like object in which the definitions call the replacements.

    All functions of this folder are copied, with copies of their modules' globals, so the
    definitions themselves stay as they are.
    """
    known = defined()
    unknown = set(replacements) - set(known)
    assert not unknown, f"{unknown} are not defined"
    copies = {known[name]: function for name, function in replacements.items()}
    spaces = {name: dict(vars(module)) for name, module in modules()}

    def copied(value: Any) -> Any:
        if is_of_spec(value) and value not in copies:
            space = spaces[value.__module__]
            copy = FunctionType(value.__code__, space, value.__name__, None, value.__closure__)
            copies[value] = copy
            copy.__defaults__ = tuple(map(copied, value.__defaults__ or ()))
            copy.__kwdefaults__ = value.__kwdefaults__
        return copies.get(value, value) if isinstance(value, FunctionType) else value

    for space in spaces.values():
        space.update({name: copied(value) for name, value in space.items()})
    return SimpleNamespace(**{name: copied(function) for name, function in known.items()})


def modules() -> list[tuple[str, Any]]:
    return [(name, module) for name, module in sys.modules.items() if name.startswith(PREFIX)]


def is_of_spec(value: Any) -> bool:
    return isinstance(value, FunctionType) and value.__module__.startswith(PREFIX)


def defined() -> dict[str, FunctionType]:
    """{name: function} of all definitions: those that are judged, and what these call."""
    return {function.__name__: function for root in ROOTS for function in called(root)}


@cache
def uses(name: str) -> set[str]:
    """Names of the definitions that a definition calls, directly or not, itself included.

    None for a name that only an implementation may have.
    """
    known = defined()
    return {function.__name__ for function in called(known[name])} if name in known else set()


@cache
def called(function: FunctionType) -> set[FunctionType]:
    """The functions of this folder that a function calls, directly or not, itself included."""
    found, pending = set(), [function]
    while pending:
        current = pending.pop()
        if is_of_spec(current) and current not in found:
            found.add(current)
            names = names_in(current.__code__)
            pending += [current.__globals__[name] for name in names if name in current.__globals__]
            pending += current.__defaults__ or ()
    return found


def names_in(code: CodeType) -> Iterator[str]:
    """Global names in a function's code, including its comprehensions and lambdas."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)
