"""Buffers: do ranks hold the same, and what one rank's training would hold?

A gradient is judged at the buffers that p ranks had, so that a wrong buffer is a finding of its
own. It is wrong where ranks differ when a forward reads it: then a checkpoint depends on the rank.
And it is wrong where all ranks hold another one than one rank's training and the gradient depends
on it, as on a codebook that is updated from each rank's own samples.
"""

import numpy as np

from refgf.oracle.step.causes import Cause
from refgf.oracle.step.findings import StepFinding, findings_of
from refgf.oracle.step.stages import JudgedStep, alike

NEXT = "next: dist.all_reduce what it is updated with, or let DDP broadcast buffers"


def differs(
    states: list[dict[str, np.ndarray]], one: dict[str, np.ndarray], saved: list[str]
) -> dict[str, list[int]]:
    """{buffer of the checkpoint: ranks that do not hold rank 0's}; not of a rank's own samples."""
    found = {}
    for name in saved:
        copies = [state.get(name) for state in states]
        if copies[0] is not None and name in one and copies[0].shape == one[name].shape:
            others = [r for r, a in enumerate(copies) if a is None or not alike(copies[0], a)]
            found |= {name: others} if others else {}
    return found


def unread(step: JudgedStep) -> list[str]:
    """Buffers that are not as on one rank, and that no gradient depends on."""
    calls = step.settings["calls"] == step.settings["calls_of_one"]
    read = any(change > step.bounds[t] for t, change in step.settings["moved"].items())
    known = step.settings["differ"]
    return [n for n in step.settings["apart"] if n not in known] if calls and not read else []


def judge_buffers(step: JudgedStep) -> list[StepFinding]:
    found: dict[str, Cause] = {}
    for name, ranks in step.settings["differ"].items():
        others = ", ".join(map(str, ranks))
        text = f"rank {others} holds other values than rank 0 when the model reads it; {NEXT}"
        found[name] = text, ["buffers differ"], None
    moved = [t for t, change in step.settings["moved"].items() if change > step.bounds[t]]
    if moved and step.settings["calls"] == step.settings["calls_of_one"]:
        text = (
            "all ranks hold other values than one rank's training, and the gradient depends on "
            f"them: are they updated from a rank's own samples? {NEXT}"
        )
        apart = [name for name in step.settings["apart"] if name not in found]
        found |= dict.fromkeys(apart, (text, ["buffers apart"], None))
    findings = findings_of("buffer", step, found)
    for finding in findings:
        finding.all_tensors = False
    return findings
