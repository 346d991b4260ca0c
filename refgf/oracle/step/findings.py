"""The verdict on a training step, and its findings as text."""

from dataclasses import dataclass, field

from refgf.oracle.step.causes import Cause
from refgf.oracle.step.stages import JudgedStep

SHOWN = 4  # names of tensors in a line
SAME_FACTOR = 0.02  # relative


def listed(tensors: list[str]) -> str:
    return ", ".join(tensors[:SHOWN]) + ", ..." * (len(tensors) > SHOWN)


@dataclass
class StepFinding:
    """One cause in one stage. factor: of all these tensors; names: what explains it."""

    stage: str
    text: str
    names: list[str]
    factor: float | None
    tensors: list[str]
    steps: list[int] = field(default_factory=list)
    all_tensors: bool = False

    @property
    def unsaid(self) -> list[str]:
        """Names that the sentence does not have."""
        return [name for name in self.names if len(name) == 1 or name not in self.text]

    def by_chance(self, ranks: int) -> bool:
        """May the factor have its name by chance? Where it has several, or 2 and 4 mean much."""
        by_ranks = any("p" in name.split() or "sqrt(p)" in name for name in self.unsaid)
        few = self.stage != "gradient" and ranks in (2, 4) and by_ranks
        return self.factor is not None and (few or len(self.unsaid) > 1)

    def __str__(self) -> str:
        where = "all tensors" if self.all_tensors else listed(self.tensors)
        named = f" = {' or '.join(self.unsaid)}" * bool(self.unsaid and self.factor is not None)
        steps = ", ".join(map(str, self.steps))
        found, semicolon, action = self.text.partition("; next: ")
        return f"{self.stage}, step {steps}, {where}: {found}{named}{semicolon}{action}"


@dataclass
class StepCount:
    """Steps of the optimizer in all batches: made on p ranks, on one, and judged."""

    batches: int
    made: int
    on_one: int
    judged: int

    def __str__(self) -> str:
        if self.batches == self.made == self.on_one == self.judged:
            return f"{self.batches} steps"
        text = f"{self.judged} of {self.made} optimizer steps judged"
        text += f" ({self.on_one} on one rank)" * (self.on_one != self.made)
        return text + f" in {self.batches} batches" * (self.made != self.batches)


@dataclass
class StepVerdict:
    """right: every difference is rounding. telling: tensors in which a tenth would show."""

    source: str
    ranks: int
    steps: StepCount
    tensors: int
    telling: int
    rounding: float  # the largest bound of a gradient, as a share of its largest element
    findings: list[StepFinding]
    notes: list[str] = field(default_factory=list)  # of how the loop was judged

    @property
    def right(self) -> bool:
        return not self.findings

    @property
    def names(self) -> list[str]:
        return [name for finding in self.findings for name in finding.names]

    def __str__(self) -> str:
        head = f"{self.source}: {self.ranks} ranks against one, {self.steps}, "
        head += f"{self.tensors} tensors"
        head += "".join(f", {note}" for note in self.notes)
        if self.right:
            share = f"which may change a gradient by {self.rounding:.1e} of its largest element; "
            share += f"a tenth of it would show in {self.telling} of {self.tensors} tensors"
            return f"{head}\nright: equal within rounding ({share})"
        lines = [head, *(f"WRONG  {finding}" for finding in self.findings)]
        if any(finding.by_chance(self.ranks) for finding in self.findings):
            ranks = next(p for p in (3, 5) if self.ranks % p)
            lines.append(
                f"next: run with --ranks {ranks} to tell apart numbers that are equal here"
            )
        return "\n".join(lines)


def findings_of(stage: str, step: JudgedStep, found: dict[str, Cause]) -> list[StepFinding]:
    """Tensors with the same cause together; factors of one name are one cause."""
    groups: dict[tuple, StepFinding] = {}
    for t, (text, names, factor) in found.items():
        key = (*names,) if names else (text,)
        own = groups.setdefault(key, StepFinding(stage, text, names, factor, [], [step.number]))
        own.tensors.append(t)
    for finding in groups.values():
        finding.all_tensors = len(finding.tensors) == len(step.exact)
    return list(groups.values())


def merged(findings: list[StepFinding], tensors: int) -> list[StepFinding]:
    """The same cause in several steps, once. tensors: of the model."""
    once: list[StepFinding] = []
    for finding in findings:
        same = next((kept for kept in once if alike(kept, finding)), None)
        if same is None:
            once.append(finding)
            continue
        same.steps += [step for step in finding.steps if step not in same.steps]
        same.tensors += [t for t in finding.tensors if t not in same.tensors]
        same.names = [name for name in same.names if name in finding.names]
        same.all_tensors = len(same.tensors) == tensors
    return once


def alike(one: StepFinding, other: StepFinding) -> bool:
    """One cause? A factor that has a name in one step alone has none."""
    if one.stage != other.stage or (one.factor is None) != (other.factor is None):
        return False
    if one.factor is None:
        kinds = [(f.names, f.text.partition(";")[0] * (not f.names)) for f in (one, other)]
        return kinds[0] == kinds[1]
    if one.stage == "clip" and one.tensors == other.tensors:
        return one.names == other.names
    near = abs(one.factor - other.factor) <= SAME_FACTOR * abs(one.factor)
    return near and (one.names == other.names or not (one.names and other.names))
