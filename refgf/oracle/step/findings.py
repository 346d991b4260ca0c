"""The verdict on a training step, and its findings as text."""

from dataclasses import dataclass, field

from refgf.oracle.step.causes import Cause
from refgf.oracle.step.stages import JudgedStep

SHOWN = 4  # names of tensors in a line


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

    def __str__(self) -> str:
        shown = ", ".join(self.tensors[:SHOWN]) + ", ..." * (len(self.tensors) > SHOWN)
        where = "all tensors" if self.all_tensors else shown
        more = [name for name in self.names if len(name) == 1 or name not in self.text]
        named = "".join(f" = {name}" for name in more) if self.factor is not None else ""
        steps = ", ".join(map(str, self.steps))
        return f"{self.stage}, step {steps}, {where}: {self.text}{named}"


@dataclass
class StepVerdict:
    """right: every difference is rounding. telling: tensors in which a factor 1/2 would show."""

    source: str
    ranks: int
    steps: int
    tensors: int
    telling: int
    rounding: float  # the largest bound of a gradient, as a share of its largest element
    findings: list[StepFinding]
    wire: list[str] = field(default_factory=list)  # 16-bit types that gradients are sent in

    @property
    def right(self) -> bool:
        return not self.findings

    @property
    def names(self) -> list[str]:
        return [name for finding in self.findings for name in finding.names]

    def __str__(self) -> str:
        head = f"{self.source}: {self.ranks} ranks against one, {self.steps} steps, "
        head += f"{self.tensors} tensors"
        head += f", communicated in {' and '.join(self.wire)}" if self.wire else ""
        if self.right:
            share = f"which may change a gradient by {self.rounding:.1e} of its largest element; "
            share += f"half of it or twice would show in {self.telling} of {self.tensors} tensors"
            return f"{head}\nright: equal within rounding ({share})"
        return "\n".join([head, *(f"WRONG  {finding}" for finding in self.findings)])


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


def merged(findings: list[StepFinding]) -> list[StepFinding]:
    """The same finding in several steps, once."""
    once: dict[tuple, StepFinding] = {}
    for finding in findings:
        key = finding.stage, *finding.names, *finding.tensors
        if key in once:
            once[key].steps += finding.steps
        else:
            once[key] = finding
    return list(once.values())
