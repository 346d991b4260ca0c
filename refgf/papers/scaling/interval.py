"""Predictions as intervals: every input with its values, its source and how well it is known.

A known input has one value, an uncertain one the two ends of its range, a discrete choice all of
its values. The interval of a prediction is the minimum and the maximum over all combinations. That
is exact for a prediction that is monotonic in each input. A published number from which an input
was derived is calibration, never a result: `Headline.is_result` is False then.

Everything that comes from a paper has a label:

    stated      in the paper's own abstract or summary, or in a press article on it (two: one names
                its publisher, of the other only the text is at hand)
    verified    read in public code or data of the authors (or another named source)
    computed    arithmetic on stated or verified facts
    inferred    a design reading of such facts, not a quotation
    unverified  general knowledge of the field; never shown as a quoted result
    measured    on the machine that the source names
    chosen      an assumption, until it is measured
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from refgf.arguments import checked

LABELS = ("stated", "verified", "computed", "inferred", "unverified", "measured", "chosen")


@checked
@dataclass(frozen=True)
class Input:
    """An argument of a prediction: its name, its values, and where they come from.

    calibrated_from: the headline whose published number they were derived from, if any.
    """

    name: str
    values: tuple
    unit: str
    label: str
    source: str
    calibrated_from: str | None = None

    def __post_init__(self) -> None:
        if self.label not in LABELS or not self.values or not self.source:
            raise ValueError(
                f"Input {self.name!r}: got label {self.label!r}, {len(self.values)} values and "
                f"source {self.source!r}; wanted a label of {LABELS}, a value and a "
                "source; next: say who measured it"
            )


@checked
@dataclass(frozen=True)
class Headline:
    """A published number and its prediction: predict(**{input name: value}), in the same unit."""

    name: str
    published: float
    unit: str
    label: str
    source: str
    inputs: tuple[Input, ...]
    predict: Callable[..., float]

    @property
    def is_result(self) -> bool:
        """False if the published number itself is among the inputs."""
        return all(given.calibrated_from != self.name for given in self.inputs)

    def interval(self) -> tuple[float, float]:
        """(low, high) over all combinations of the inputs' values."""
        predicted = every(self.predict, self.inputs).values()
        return min(predicted), max(predicted)

    @property
    def inside(self) -> bool:
        low, high = self.interval()
        return low <= self.published <= high

    def widths(self) -> dict[str, float]:
        """{input name: high / low of the prediction when only this input varies}, widest first.

        The other inputs have the values with which that is largest.
        """
        predicted, found = every(self.predict, self.inputs), {}
        for at, varied in enumerate(self.inputs):
            if len(varied.values) > 1:
                rows = {}
                for values, number in predicted.items():
                    rows.setdefault(values[:at] + values[at + 1 :], []).append(number)
                found[varied.name] = max(max(row) / min(row) for row in rows.values())
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def extremes(predict: Callable[..., float], inputs: Sequence[Input]) -> tuple[float, float]:
    predicted = combinations(predict, inputs).values()
    return min(predicted), max(predicted)


def combinations(predict: Callable[..., float], inputs: Sequence[Input]) -> dict[tuple, float]:
    """{a value of each input: prediction}"""
    names = [given.name for given in inputs]
    chosen = product(*(given.values for given in inputs))
    return {values: predict(**dict(zip(names, values))) for values in chosen}


every = cache(combinations)  # of the same headline: lesson, table and tests ask again
