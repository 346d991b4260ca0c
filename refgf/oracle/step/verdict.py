"""The verdict on a training step as text: its findings, or why there is none."""

from dataclasses import dataclass, field

import numpy as np

from refgf.oracle.step.compared import TENTH, JudgedStep, listed
from refgf.oracle.step.fits import Cause
from refgf.oracle.step.hypotheses import CALL
from refgf.oracle.step.ranks import CannotJudge

SAME_FACTOR = 0.02  # relative
INSIDE = (
    "gradients are summed inside the optimizer's step, or parameters after it; next: in that step, "
    "call refgf.oracle.step.communicated() when .grad holds the sum"
)
LOSSY = "powerSGD", "quantization", "post_localSGD", "CSCHook", "GradientFlow"  # hooks' names
KNOWN_HOOKS = "torch.distributed.algorithms", "refgf."  # modules that define them
ALL_ZERO = (
    "step: cannot tell: the gradient of every tensor is 0 in every step, on p ranks and on one, so "
    "that there is nothing to judge; wanted a gradient other than 0; next: look at `loss`"
)


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


# -- why there is no verdict


def skips_differ(number: int, who: str) -> str:
    return (
        f"step: cannot tell: in step {number} a GradScaler skipped the optimizer's step on {who} "
        "only, because scaled gradients were infinite there; wanted the same steps on p ranks and "
        "on one; next: a smaller init_scale"
    )


def cannot_tell(coarsest: str, shares: dict[str, float], hidden: list[str]) -> str:
    share = max(shares.values())
    where = f"the gradients of {listed(hidden)}" if hidden else "every gradient"
    wanted = "float32 without autocast" if coarsest.endswith("16") else "float64"
    return (
        f"step: cannot tell: nothing is off by more than rounding, but the rounding of {coarsest} "
        f"may change {where} by {share:.1e} of the largest element, so that a lost sample or a "
        f"factor of 1.1 might not show; wanted at most {TENTH}; next: {wanted}"
    )


def changed_unseen(tensors: list[str]) -> str:
    return (
        "step: cannot tell: code of the step's own changes gradients after backward, on p ranks as "
        f"on one ({listed(tensors)}), which may hide a wrong factor; {CALL}"
    )


def no_step(batches: list[int]) -> str:
    return (
        f"step: train makes no step of the optimizer in batch {', '.join(map(str, batches))}, on p "
        "ranks and on one; wanted one for each batch, because batch(seed) is the batch of one "
        "optimizer step; next: accumulate over micro-batches that train splits from one batch"
    )


def not_finite(number: int, gradients: dict[str, np.ndarray], held: bool) -> str:
    """gradients: of `loss`; held: are those of p ranks infinite or NaN, too?"""
    bad = [t for t, g in gradients.items() if not np.isfinite(g).all()]
    what = "NaN" if any(np.isnan(gradients[t]).any() for t in bad) else "infinite"
    where = "on p ranks and on one" if held else "on one rank, of the whole batch"
    return (
        f"step: cannot tell: in step {number} the gradient of {listed(bad)} is {what} {where}, so "
        "that there is nothing to judge; wanted finite numbers; next: look at `loss`"
    )


def hidden_inside(tensors: list[str]) -> str:
    return (
        f"step: cannot tell: parameters are as on one rank, but so would they be after a gradient "
        f"that is {1 + TENTH:g} times as large ({listed(tensors)}); {INSIDE}"
    )


def require_turns(who: str, steps: list[dict], whose: str, others: list[dict]) -> None:
    """Raises CannotJudge where optimizers make steps in turn, in other turns on one side."""
    turns, wanted = ([(own["batch"], own["turn"]) for own in side] for side in (steps, others))
    if turns != wanted:
        batch = min(batch for batch, _ in set(turns) ^ set(wanted))
        got, right = (sum(b == batch for b, _ in side) for side in (turns, wanted))
        raise CannotJudge(
            f"step: {who}: in batch {batch} backward and an optimizer's step follow each other "
            f"{got} times; wanted {right} times, as on {whose}; next: the same turns everywhere"
        )


def require_no_lossy_hook(findings: list[StepFinding], hooks: list[str]) -> None:
    """Raises CannotJudge where one explains all findings; else findings say that there is one."""
    vague = [f for f in findings if f.factor is None and set(f.names) <= {"not communicated"}]
    shown = ", ".join(hook.replace(":", ".") for hook in hooks)
    known = [own for hook in hooks for own in hook.split(" of ") if own.startswith(KNOWN_HOOKS)]
    lossy = any(word in own for own in known for word in LOSSY)
    if lossy and vague and len(vague) == len(findings):
        raise CannotJudge(
            f"step: cannot tell: DDP's communication hook {shown} compresses gradients, or leaves "
            "some uncommunicated; wanted one whose result is the mean; next: judge the loop "
            "without it, and the hook by refgf.oracle.torch_ddp.checked(hook)"
        )
    for finding in vague if hooks else ():
        finding.text += (
            f"; gradients pass through the communication hook {shown}: is it lossy? next: judge "
            "the loop without it, and the hook by refgf.oracle.torch_ddp.checked(hook)"
        )


def require_whole_batches(findings: list[StepFinding], steps: list[dict]) -> None:
    """Raises CannotJudge where several steps of one batch are perhaps of its micro-batches."""
    again = {
        own["batch"]
        for own, later in zip(steps, steps[1:])
        if own["batch"] == later["batch"] and set(own["used"]) & set(later["used"])
    }
    gradients = [f for f in findings if f.stage == "gradient"]
    if again and gradients and all(f.factor is None for f in gradients):
        raise CannotJudge(
            f"step: cannot tell: the same tensors get several optimizer steps in batch "
            f"{min(again)}, each judged by `loss` of the whole batch, and that is not what they "
            f"get ({gradients[0]}); wanted one step for each batch(seed), or steps on all of it; "
            "next: let batch(seed) be the batch of one optimizer step"
        )
