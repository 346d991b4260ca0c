"""A seeded mistake: which definition it replaces, which statement it violates, and what it looks like."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from refgf.oracle.judge.functions import CALLS
from refgf.oracle.seeded.variants import uses, variant

MISTAKES = []


@dataclass(frozen=True)
class Mistake:
    name: str
    statement: str
    replaces: str
    function: Callable

    @cache  # noqa: B019  there are as many as there are mistakes
    def module(self):
        """The definitions with this mistake in them."""
        return variant(**{self.replaces: self.function})

    def reaches(self, function):
        """Does the result of this judged function depend on what the mistake replaces?"""
        return any(self.replaces in uses(name) for name in (function, *CALLS[function].also))


def mistake(statement, replaces, name):
    """Register a wrong variant of the definition `replaces`."""

    def register(function):
        MISTAKES.append(Mistake(name, statement, replaces, function))
        return function

    return register
