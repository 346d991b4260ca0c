"""The interval of a predicted step, and which input makes it wide.

Inputs are the latency (alpha), the time per byte (beta) and the pace of a rank. Where the latency
is the mean of a ring's hops, the latency of the hops between nodes is another one (hops), and so is
the link inside a node, for which the mean hop stands in rows with two levels (inside). Where the
hops of a flat ring differ, its step pays the mean latency, or that of the slowest hop (ring). Calls
that are longer or shorter than all measured ones have a range of their own (sizes). A step never
gets faster if one of them grows, so the lowest and the highest values together give the interval.
The calls of a row are those of its step at both ends: no theta is chosen again. What the formulas
leave out (contention, stragglers, casts) is an input of its own, if the question has it:
calibration.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from refgf.plan.question import Question, ranges, varied
from refgf.plan.systems import SYSTEMS


@dataclass(frozen=True)
class PlannedStep:
    """widths: {input: width of the interval if only this input varies / step_s}, widest first."""

    system: str
    step_s: float
    low_s: float
    high_s: float
    widths: dict[str, float]

    @property
    def widest(self) -> str:
        name, width = next(iter(self.widths.items()))
        return name if width > 1e-9 else "none"


def planned(system: str, question: Question) -> PlannedStep | None:
    """None if the system does not apply to this question."""
    step_s = SYSTEMS[system].step_s
    middle_s = step_s(question)
    if middle_s is None:
        return None
    inputs, question = (
        ranges(question),
        replace(question, groups=question.groups or SYSTEMS[system].best_calls(question)),
    )
    ends_s = [
        step_s(varied(question, **{name: both[end] for name, both in inputs.items()}))
        for end in (0, 1)
    ]
    widths = {}
    for name, both in inputs.items():
        low_s, high_s = (step_s(varied(question, **{name: factor})) for factor in both)
        widths[name] = (high_s - low_s) / middle_s
    widths = dict(sorted(widths.items(), key=lambda pair: -pair[1]))
    return PlannedStep(system, middle_s, *ends_s, widths)


def curve(on: Callable[[int], Question], sizes: list[int]) -> dict[str, dict[int, float | None]]:
    """{system: {ranks: efficiency in percent, T(exchange off) / T(exchange on)}}.

    on: the question on so many ranks. None: the system does not apply, or a link is not known.
    """
    found: dict[str, dict[int, float | None]] = {name: {} for name in SYSTEMS}
    for size in sizes:
        asked = on(size)
        asked = replace(asked, ranks_per_node=min(size, asked.ranks_per_node))
        for name, system in SYSTEMS.items():
            step_s = None if asked.lacks_inside else system.step_s(asked)
            found[name][size] = None if step_s is None else 100 * asked.step.compute_s / step_s
    return found
