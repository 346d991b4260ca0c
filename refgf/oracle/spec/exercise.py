"""What an exercise is: a function to write, cases that judge it, points, and typical mistakes.

EXERCISES has them by number: 06.2 is the second one of lesson 06. The first one is given.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

PUBLIC_SEED = 2019  # of the cases that everybody may see
Arguments = tuple[Any, ...]  # of one case
Drawn = Callable[[np.random.Generator], Sequence[Arguments]]
Function = TypeVar("Function", bound=Callable[..., Any])
EXERCISES: dict[str, "Exercise | Collective"] = {}


@dataclass(frozen=True)
class Part:
    """Some of an exercise's points, for all cases of one kind: "p divides n", "n < p".

    cases: random generator -> the arguments of each case. The teacher's seed makes new ones.
    keeps: the function must not change its arguments.
    """

    what: str
    points: int
    cases: Drawn
    keeps: bool = False


@dataclass(frozen=True)
class TypicalMistake:
    """A typical wrong function. A student's file that gives its results gets the sentence."""

    sentence: str
    function: Callable[..., Any]


@dataclass
class Exercise:
    """A function of the reference's name that returns what the reference returns.

    It may change its arguments, except in a part that `keeps` them.

    relative: results may differ by this times the largest wanted magnitude; 0: the same bits.
    """

    number: str
    reference: Callable[..., Any]
    name: str = ""
    relative: float = 0.0
    parts: list[Part] = field(default_factory=list)
    mistakes: list[TypicalMistake] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.name or self.reference.__name__
        add(self)

    def part(self, what: str, points: int, cases: Drawn, keeps: bool = False) -> None:
        self.parts.append(Part(what, points, cases, keeps))

    def mistake(self, sentence: str) -> Callable[[Function], Function]:
        """Register a typical wrong function, with what a student is told."""
        return registered(self.mistakes, sentence)

    def given(self, sentence: str, /, **changes: Callable[..., Any]) -> None:
        """Register the reference as a mistake that is given other arguments."""
        self.mistake(sentence)(given(self.reference, **changes))

    @property
    def points(self) -> int:
        return sum(part.points for part in self.parts)

    def wanted(self, arguments: Arguments) -> Any:
        """The right result of a case."""
        return returned(self.reference, arguments)


@dataclass
class Collective:
    """A function name(comm, x) that sums x over all ranks in place, with messages.

    reference: [x of each rank] -> [result of each rank]. sends: (n, p, rank) -> the messages of
    this rank as [(peer, start, stop)], in order. shapes: (p, n) of each case.
    scores: points for "values", "bits", "schedule", "messages", "bytes".
    """

    number: str
    name: str
    reference: Callable[..., Any]
    sends: Callable[[int, int, int], list[tuple[int, int, int]]]
    shapes: tuple[tuple[int, int], ...]
    scores: dict[str, int]
    mistakes: list[TypicalMistake] = field(default_factory=list)

    def __post_init__(self) -> None:
        add(self)

    def mistake(self, sentence: str) -> Callable[[Function], Function]:
        return registered(self.mistakes, sentence)

    @property
    def points(self) -> int:
        return sum(self.scores.values())


def add(exercise: Exercise | Collective) -> None:
    """Enter it under its number."""
    taken = EXERCISES.setdefault(exercise.number, exercise)
    if taken is not exercise:
        raise ValueError(
            f"exercise {exercise.number}: got {exercise.name}; wanted a number that is free, "
            f"{taken.name} has it; next: take the lesson's next number"
        )


def given(definition: Callable[..., Any], **changes: Callable[..., Any]) -> Callable[..., Any]:
    """The definition, called with other arguments. changes: {name: old value -> new one}"""
    signature = inspect.signature(definition)

    def wrong(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        for name, change in changes.items():
            bound.arguments[name] = change(bound.arguments[name])
        return definition(*bound.args, **bound.kwargs)

    return wrong


def registered(mistakes: list[TypicalMistake], sentence: str) -> Callable[[Function], Function]:
    """A decorator that adds its function to these mistakes."""

    def register(function: Function) -> Function:
        mistakes.append(TypicalMistake(sentence, function))
        return function

    return register


def returned(function: Callable[..., Any], arguments: Arguments) -> Any:
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


def tenths(random: np.random.Generator, *shape: int, dtype: DTypeLike = np.float32) -> np.ndarray:
    """Numbers of one decimal, from 0.1 to 1.9, of either sign. -> (*shape)"""
    return (_signed(random, 20, shape) / 10).astype(dtype)


def quarters(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Quarters from 0.25 to 4.75, of either sign. -> (*shape), float64

    Their sums and products have no rounding: they are the same in any order, 0 included.
    """
    return _signed(random, 20, shape) / 4


def not_in_float16(random: np.random.Generator, *shape: int) -> np.ndarray:
    """2049, 2053, ..., 4093: float16 rounds each down. -> (*shape), float32

    Their float32 sums are exact in any order.
    """
    return (2049 + 4 * random.integers(0, 512, shape)).astype(np.float32)


def _signed(random: np.random.Generator, stop: int, shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers from 1 to stop - 1, of either sign."""
    return random.integers(1, stop, shape) * random.choice([-1, 1], shape)
