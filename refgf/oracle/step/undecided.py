"""Why there is no verdict: the sentences."""

import numpy as np

from refgf.oracle.step.causes import CALL
from refgf.oracle.step.findings import listed

TENTH = 0.1  # of a gradient: where rounding hides more, nothing is called right
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
