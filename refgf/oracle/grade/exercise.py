"""What an exercise is: a function to write, cases that judge it, points, and typical mistakes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PUBLIC_SEED = 2019  # of the cases that everybody may see
Cases = Callable[[np.random.Generator], Sequence[tuple]]


@dataclass(frozen=True)
class Part:
    """Some of an exercise's points, for all cases of one kind: "p divides n", "n < p".

    cases: random generator -> the arguments of each case. The teacher's seed makes new ones.
    keeps: the function must not change its arguments.
    """

    what: str
    points: int
    cases: Cases
    keeps: bool = False


@dataclass(frozen=True)
class Mistake:
    """A typical wrong function. A student's file that gives its results gets the sentence.

    loses: the parts whose points it costs.
    """

    sentence: str
    function: Callable
    loses: tuple[str, ...]


@dataclass(frozen=True)
class Exercise:
    """A function `name` that returns what `reference` returns.

    It may change its arguments, except in a part that `keeps` them.

    relative: results may differ by this times the largest wanted magnitude; 0: the same bits.
    """

    name: str
    reference: Callable
    parts: tuple[Part, ...]
    mistakes: tuple[Mistake, ...] = ()
    relative: float = 0.0

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)

    def wanted(self, arguments: tuple) -> Any:
        """The right result of a case."""
        return returned(self.reference, arguments)


@dataclass(frozen=True)
class Collective:
    """A function name(comm, x) that sums x over all ranks in place, with messages.

    wanted: [x of each rank] -> [result of each rank]. sends: (n, p, rank) -> the messages of this
    rank as [(peer, start, stop)], in order. shapes: (p, n) of each case.
    points: for "values", "bits", "schedule", "messages", "bytes".
    """

    name: str
    reference: Callable
    sends: Callable[[int, int, int], list[tuple[int, int, int]]]
    shapes: tuple[tuple[int, int], ...]
    scores: dict[str, int]
    mistakes: tuple[Mistake, ...] = ()

    @property
    def points(self) -> int:
        return sum(self.scores.values())


def returned(function: Callable, arguments: tuple) -> Any:
    """function(*arguments) on copies, because a function may work in place."""
    with np.errstate(all="ignore"):
        return function(*copied(arguments))


def copied(value: Any) -> Any:
    """A deep copy of nested lists, tuples and dicts of arrays and numbers."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return value
