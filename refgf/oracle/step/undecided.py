"""Why there is no verdict: the sentences."""

import numpy as np

from refgf.oracle.step.causes import CALL
from refgf.oracle.step.findings import StepFinding, listed
from refgf.oracle.step.late import INSIDE, TENTH
from refgf.oracle.step.ranks import CannotJudge

LOSSY = "powerSGD", "quantization", "post_localSGD", "CSCHook", "GradientFlow"  # hooks' names
KNOWN_HOOKS = "torch.distributed.algorithms", "refgf."  # modules that define them
ALL_ZERO = (
    "step: cannot tell: the gradient of every tensor is 0 in every step, on p ranks and on one, so "
    "that there is nothing to judge; wanted a gradient other than 0; next: look at `loss`"
)


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
