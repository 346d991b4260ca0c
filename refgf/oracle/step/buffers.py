"""Buffers: do ranks hold the same, and what one rank's training would hold?

A gradient is judged at the buffers that p ranks had, so that a wrong buffer is a finding of its
own. It is wrong where ranks differ when a forward reads it: then a checkpoint depends on the rank.
And it is wrong where all ranks hold another one than one rank's training and the gradient depends
on it, as on a codebook that is updated from each rank's own samples.
"""

from refgf.oracle.step.compared import JudgedStep, alike
from refgf.oracle.step.fits import Cause
from refgf.oracle.step.verdict import StepFinding, findings_of

NEXT = "next: dist.all_reduce what it is updated with, or let DDP broadcast buffers"


def differing(step: JudgedStep) -> dict[str, list[int]]:
    """{buffer of the checkpoint: ranks that do not hold rank 0's}; not of a rank's own samples."""
    found, one = {}, step.one["state"]
    for name in step.saved:
        copies = [record["state"].get(name) for record in step.records]
        if copies[0] is not None and name in one and copies[0].shape == one[name].shape:
            others = [r for r, a in enumerate(copies) if a is None or not alike(copies[0], a)]
            found |= {name: others} if others else {}
    return found


def read(step: JudgedStep) -> bool:
    """Does a gradient depend on buffers that are not as on one rank?"""
    return any(change > step.bounds[t] for t, change in step.answer["moved"].items())


def unread(step: JudgedStep) -> list[str]:
    """Buffers that are not as on one rank, and that no gradient depends on."""
    if step.calls != step.calls_of_one or read(step):
        return []
    known = differing(step)
    return [name for name in step.answer["apart"] if name not in known]


def judge_buffers(step: JudgedStep) -> list[StepFinding]:
    found: dict[str, Cause] = {}
    for name, ranks in differing(step).items():
        others = ", ".join(map(str, ranks))
        text = f"rank {others} holds other values than rank 0 when the model reads it; {NEXT}"
        found[name] = Cause(text, ["buffers differ"])
    if read(step) and step.calls == step.calls_of_one:
        text = (
            "all ranks hold other values than one rank's training, and the gradient depends on "
            f"them: are they updated from a rank's own samples? {NEXT}"
        )
        apart = [name for name in step.answer["apart"] if name not in found]
        found |= dict.fromkeys(apart, Cause(text, ["buffers apart"]))
    findings = findings_of("buffer", step, found)
    for finding in findings:
        finding.all_tensors = False
    return findings
