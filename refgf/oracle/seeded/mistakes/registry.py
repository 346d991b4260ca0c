"""Mistakes of techniques that are no records yet."""

from collections.abc import Callable

from refgf.oracle.spec.statement import MISTAKES, Mistake


def mistake(statement: str, replaces: str, name: str) -> Callable[[Callable], Callable]:
    """Register a wrong variant of the definition `replaces`."""

    def register(function: Callable) -> Callable:
        MISTAKES.append(Mistake(name, statement, replaces, function))
        return function

    return register
