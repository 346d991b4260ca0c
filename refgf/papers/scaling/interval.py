"""Predictions as intervals: every input with its values, its source and how well it is known.

An input has one value where it is known and the two ends of a range where it is not; discrete choices list all. The
interval of a prediction is the least and the greatest over all combinations, which is exact for predictions that rise
or fall with each input. A published number that an input was derived from is calibration, and never a result:
`Headline.is_result` is False then.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

LABELS = ("stated", "verified", "computed", "inferred", "unverified", "measured")


@dataclass(frozen=True)
class Input:
    """name of an argument of the prediction; its values; where they come from; `calibrated_from`: the headline whose
    published number they were derived from, if one was."""

    name: str
    values: tuple
    unit: str
    label: str
    source: str
    calibrated_from: str | None = None

    def __post_init__(self):
        if self.label not in LABELS or not self.values or not self.source:
            raise ValueError(
                f"Input {self.name!r}: got label {self.label!r}, {len(self.values)} values and source {self.source!r}; "
                f"wanted a label of {LABELS}, a value and a source"
            )


@dataclass(frozen=True)
class Headline:
    """A published number, and what predicts it: predict(**{input name: value}) -> a number in the same unit."""

    name: str
    published: float
    unit: str
    label: str
    source: str
    inputs: tuple[Input, ...]
    predict: Callable

    @property
    def is_result(self):
        """False if the number itself went in: then comparing it with the prediction says nothing."""
        return all(given.calibrated_from != self.name for given in self.inputs)

    def interval(self):
        """(low, high) over all combinations of the inputs' values."""
        return extremes(self.predict, self.inputs)

    @property
    def inside(self):
        low, high = self.interval()
        return low <= self.published <= high

    def widths(self):
        """{input name: high / low of the prediction when only this input varies}, widest first. The others stay at
        their first value."""
        found = {}
        for varied in self.inputs:
            if len(varied.values) > 1:
                kept = tuple(fixed(given) if given is not varied else given for given in self.inputs)
                low, high = extremes(self.predict, kept)
                found[varied.name] = high / low
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def fixed(given):
    return Input(given.name, given.values[:1], given.unit, given.label, given.source, given.calibrated_from)


def extremes(predict, inputs):
    names = [given.name for given in inputs]
    values = [predict(**dict(zip(names, chosen))) for chosen in product(*(given.values for given in inputs))]
    return min(values), max(values)
