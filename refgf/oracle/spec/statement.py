"""A statement of SPEC.md is one record, and this is its form.

A technique is a file of this folder, or a folder. There a statement stands with what belongs to it:

    def choose(values, percent):
        \"""C5: the max(1, ceil(C percent / 100)) most important of C chunks are chosen.

        Source: chosen.
        \"""

    # its row in SPEC.md is the first paragraph and the source: `make spec` writes it
    C5 = Statement("C5", choose)

    # how verify calls it, what its result's indices mean, which arguments are arrays
    CHOOSE = JudgedFunction(choose, "C5", {"chosen": ("place",)}, "values")

    # arguments and inputs that nobody can know before
    CHOOSE.fresh(lambda d: {"percent": d.integer(1, 100), "values": d.normal(d.n)})

    # cases that are files, each with what it must show
    @CHOOSE.golden
    def choices() -> Cases:
        case = CHOOSE.case("choose-43", "rounded up", percent=43, values=[3, 5, 5, 1, 5, 0, 7])
        yield case.shows(len(case["out.chosen"]) == 4, "4 of 7")

    # what students of lesson 06 write as their third function, and what gives points
    CHOOSE_06 = Exercise("06.3", choose)
    CHOOSE_06.part("equal values: the lower number is chosen", 1, equal_ones)

    # a wrong variant: what `verify` says of it, and what a student is told
    @C5.mistake("rounded down")
    @CHOOSE_06.mistake("you round the number of chunks down; wanted up")
    def rounded_down(values, percent): ...

    # a wrong variant that is the definition, given other arguments
    C5.given("the least important chunks", values=np.negative)

A statement without a function that verify calls has no JudgedFunction: the cases of another one
name it. verify, export, the pytest plugin, grade, the site and SPEC.md read the registries here and
in exercise.py. Which marks a mistake loses is computed (grade/trusted.py) and approved.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from refgf.oracle.spec.calls import Outputs, Run, named, same_bits
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw
from refgf.oracle.spec.exercise import Function, given
from refgf.oracle.spec.variants import ROOTS, uses, variant

Cases = Iterator[Case]
Fresh = TypeVar("Fresh", bound=Callable[[Draw], Given])  # draws a fresh case
Bound = TypeVar("Bound", bound=Callable[[Case], Given])  # how far results may be off
STATEMENTS: dict[str, "Statement"] = {}
FUNCTIONS: dict[str, "JudgedFunction"] = {}
MISTAKES: list["Mistake"] = []


class Statement:
    """number: "C5". definition: its docstring begins with the number, then says the statement."""

    def __init__(self, number: str, definition: Callable[..., Any]):
        self.number, self.definition = number, definition
        STATEMENTS[number] = self
        ROOTS.append(definition)

    @property
    def text(self) -> str:
        """The first paragraph of the docstring, as SPEC.md prints it."""
        said = self._paragraph(f"{self.number}: ")
        return said.removesuffix(".")

    @property
    def source(self) -> str:
        return self._paragraph("Source: ").removesuffix(".")

    def _paragraph(self, start: str) -> str:
        paragraphs = (inspect.getdoc(self.definition) or "").split("\n\n")
        found = next((p for p in paragraphs if p.startswith(start)), "")
        return " ".join(found.removeprefix(start).split())

    @property
    def row(self) -> str:
        """Its line in SPEC.md."""
        return f"| {self.number} | {self.text} | {self.source} |"

    def mistake(
        self, name: str, replaces: Callable[..., Any] | None = None
    ) -> Callable[[Function], Function]:
        """Register a wrong variant of the definition, or of the one that it replaces.

        name: the sentence of a diagnosis.
        """

        def register(function: Function) -> Function:
            replaced = (replaces or self.definition).__name__
            MISTAKES.append(Mistake(name, self.number, replaced, function))
            return function

        return register

    def given(self, name: str, /, **changes: Callable[..., Any]) -> None:
        """Register the definition as a mistake that is given other arguments."""
        self.mistake(name)(given(self.definition, **changes))


@dataclass(frozen=True)
class Mistake:
    """A seeded mistake. name: what a diagnosis says; replaces: name of a definition."""

    name: str
    statement: str
    replaces: str
    function: Callable[..., Any]

    @cache  # noqa: B019  mistakes live as long as the program
    def module(self) -> SimpleNamespace:
        """The definitions with this mistake in them."""
        return variant(**{self.replaces: self.function})

    def reaches(self, function: str) -> bool:
        """Does the result of this judged function depend on the replaced definition?"""
        return any(self.replaces in uses(name) for name in (function, *FUNCTIONS[function].also))


def by_name(module: Any, case: Case) -> Outputs:
    """Call the case's function with its arrays in order, and its arguments by name."""
    judged = FUNCTIONS[case.function]
    arrays = (case[f"in.{name}"] for name in judged.inputs.split())
    known = inspect.signature(judged.definition).parameters
    settings = {name: a for name, a in case.arguments.items() if name in known}
    result = getattr(module, judged.name)(*arrays, **settings)
    return named(judged.axes, result if len(judged.axes) > 1 else [result])


@dataclass
class JudgedFunction:
    """A function that `verify` calls, of the name and arguments of its definition.

    statements: what its cases show, unless they say it themselves.
    axes: {"NAME": what each index of this result means}; "messages, bytes": what 0 and 1 count.
    inputs: names of its arrays, in order; what else a case gives are arguments.
    run: (module, case) -> {"out.NAME": array}; without it, the arrays and then arguments by name.
    also: definitions that `run` calls besides this one.
    """

    definition: Callable[..., Any]
    statements: str
    axes: Mapping[str, tuple[str, ...]]
    inputs: str = ""
    run: Run = by_name
    also: tuple[str, ...] = ()
    generators: list[Callable[[], Cases]] = field(default_factory=list)
    draw: Callable[[Draw], Given] | None = None
    bound: Callable[[Case], Given] | None = None

    def __post_init__(self) -> None:
        FUNCTIONS[self.name] = self
        ROOTS.append(self.definition)

    @property
    def name(self) -> str:
        return self.definition.__name__

    def golden(self, generator: Callable[[], Cases]) -> Callable[[], Cases]:
        """Register a generator of golden cases."""
        self.generators.append(generator)
        return generator

    def fresh(self, draw: Fresh) -> Fresh:
        """Register what draws the arguments and inputs of a fresh case."""
        self.draw = draw
        return draw

    def bounds(self, bound: Bound) -> Bound:
        """Register how far results may be off whose bits are open: {"NAME": array}."""
        self.bound = bound
        return bound

    def within(self, case: Case) -> Case:
        """The case, with the bounds of its results."""
        bounds = self.bound(case) if self.bound else {}
        case.tensors |= {f"bound.{name}": np.asarray(array) for name, array in bounds.items()}
        return case

    def case(
        self,
        name: str,
        why: str,
        /,
        statements: str = "",
        family: str = "values",
        bfloat16: tuple[str, ...] = (),
        **given: Any,
    ) -> Case:
        """A case with these arguments and inputs, and the definitions' results."""
        arguments, tensors = self.divided(given)
        shown = (statements or self.statements).split()
        case = Case(name, self.name, shown, why, family, arguments, tensors, bfloat16)
        return fill(case, definitions())

    def divided(self, given: Given) -> tuple[Given, dict[str, np.ndarray]]:
        """(arguments, {"in.NAME": array}) of what a case gives."""
        names = self.inputs.split()
        arguments = {key: value for key, value in given.items() if key not in names}
        return arguments, {f"in.{key}": np.asarray(given[key]) for key in given if key in names}


@cache
def definitions() -> SimpleNamespace:
    return variant()


def fill(case: Case, module: Any) -> Case:
    """Add the results of the definitions, or of any module, to a case that has inputs only."""
    results = FUNCTIONS[case.function].run(module, case)
    case.tensors.update({name: plain_array(value) for name, value in results.items()})
    if "in.x" in case.bfloat16:
        case.bfloat16 += tuple(name for name in results if case[name].dtype == np.float32)
    return case


def plain_array(value: Any) -> np.ndarray:
    """An array of a type that files hold: a bool becomes 0 or 1."""
    value = np.asarray(value)
    return value.astype(np.uint8) if value.dtype == bool else value


def differs_with(case: Case, **replacements: Callable[..., Any]) -> bool:
    """Has the case other bits with these definitions replaced?"""
    with np.errstate(all="ignore"):
        other = FUNCTIONS[case.function].run(variant(**replacements), case)
    return any(not same_bits(other[name], case[name]) for name in other)


def golden_cases() -> list[Case]:
    """All golden cases of the registered functions."""
    with np.errstate(all="ignore"):
        every = (getattr(function, "generators", ()) for function in FUNCTIONS.values())
        return [case for generators in every for generator in generators for case in generator()]
