"""A seeded mistake: the definition that it replaces, the statement that it violates, its name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

from refgf.oracle.judge.functions import FUNCTIONS
from refgf.oracle.seeded.variants import uses, variant

MISTAKES: list["Mistake"] = []


@dataclass(frozen=True)
class Mistake:
    """name: the sentence that a diagnosis prints; replaces: name of a definition."""

    name: str
    statement: str
    replaces: str
    function: Callable

    @cache  # noqa: B019  mistakes live as long as the program
    def module(self) -> SimpleNamespace:
        """The definitions with this mistake in them."""
        return variant(**{self.replaces: self.function})

    def reaches(self, function: str) -> bool:
        """Does the result of this judged function depend on the replaced definition?"""
        return any(self.replaces in uses(name) for name in (function, *FUNCTIONS[function].also))


def mistake(statement: str, replaces: str, name: str) -> Callable[[Callable], Callable]:
    """Register a wrong variant of the definition `replaces`."""

    def register(function: Callable) -> Callable:
        MISTAKES.append(Mistake(name, statement, replaces, function))
        return function

    return register
