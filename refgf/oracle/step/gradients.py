"""The stage `gradient`: is it the global batch's, where it is communicated?"""

import numpy as np

from refgf.oracle.step.clipping import decays_alone, factor_of, near, norm_of
from refgf.oracle.step.compared import JudgedStep, Whole, close
from refgf.oracle.step.fits import Cause
from refgf.oracle.step.hypotheses import CALL, gradient_causes
from refgf.oracle.step.verdict import StepFinding, findings_of

SAME_NORM = 1e-3  # relative
CLIPPED_EARLY = Cause(
    "each rank clips its own gradient, and communicates afterwards; "
    "next: clip what was communicated",
    ["clipped before communication"],
)
CLIP_ROUNDINGS = 64  # norm, division and product, with the sum of squares of any length


def judge_gradients(
    step: JudgedStep, inside: set[str]
) -> tuple[list[StepFinding], dict[str, Whole]]:
    """(findings, {tensor: its right gradient before clipping}).

    After backward it is right where DDP or FSDP communicate it, at clipping or at the optimizer
    where the step does that itself. Ranks that clip different gradients and then use the same one
    communicate after clipping: that is wrong where the clipping changed anything. Where the step
    calls communicated(), it is judged there alone. inside: tensors whose gradient no stage shows.
    """
    scale, stages = step.scale or 1.0, step.stages
    wrong, right, early, changed, dropped = {}, {}, {}, {}, []
    for t, exact in step.exact.items():
        if t in outside(step) or t in inside:
            continue
        backward = scaled(stages["backward"].get(t), 1 / scale)
        late, used = stages["clip"].get(t), stages["used"].get(t)
        too_early = late and used and used.agree and not late.agree
        late = None if too_early else late
        for state in (late,) if late else (used, backward):
            if state and state.agree and step.is_exact(t, state.value):
                right[t] = state
                by_optimizer = scaled(used, 1 / scale)  # a fused one takes the scale out of it
                if state is backward and used and not step.is_exact(t, by_optimizer.value):
                    changed[t] = used
                elif state is backward and not used and stages["used"] and exact.any():
                    dropped.append(t)  # .grad = None before the optimizer's step
                break
        else:
            by_backward = backward and backward.agree and not backward.sharded
            state = late or (backward if by_backward else used or backward)
            seen = by_backward and scale == 1.0 and step.is_exact(t, backward.value)
            seen = seen and not step.communicated
            if too_early:
                early[t] = CLIPPED_EARLY
            elif late and seen and as_on_one_rank(step, t, late):
                right[t] = changed[t] = late  # communicated rightly, then as one rank does
            elif state is not None:
                wrong[t] = state
            elif exact.any() and stages["used"]:
                wrong[t] = Whole([np.zeros(exact.shape)], [()])
    names, norm = changed_after(step, changed)
    step.changed = names + dropped, None if dropped else norm
    unseen = changed_by_own_code(step, wrong, right)
    found = gradient_causes(step, wrong)
    for t in unseen:
        found[t] = found[t]._replace(text=f"{found[t].text}; {CALL}")
    found_early = findings_of("clip", step, early)
    return findings_of("gradient", step, found) + found_early, right


def changed_after(step: JudgedStep, changed: dict[str, Whole]) -> tuple[list[str], float | None]:
    """(tensors that the sum over ranks is right in and that own code then changes, their norm).

    Decay is left out. The norm is known where all are multiplied by one factor below 1, and it may
    be clipping: in all steps that clip, it is the same.
    """
    names = [t for t in changed if step.of_one(t) is not None]
    if not names or decays_alone(step, names):
        return [], None
    backward = {t: step.stages["backward"][t].value / (step.scale or 1) for t in names}
    k = factor_of({t: (backward[t], changed[t].value) for t in names}, near(step))
    norm = norm_of(changed[t].value for t in names)
    return names, norm if k is not None and 0 < k < 1 else None


def unclipped(changes: list[tuple[list[str], float | None]]) -> set[str]:
    """Tensors that own code changes after the sum over ranks, if it does not clip by their norm.

    changes: of `changed_after`, in each step.
    """
    found = [(names, norm) for names, norm in changes if names]
    norms = [norm for _, norm in found if norm is not None]
    if len(norms) == len(found) > 1 and max(norms) - min(norms) <= SAME_NORM * max(norms):
        return set()
    return {t for names, _ in found for t in names}


def changed_by_own_code(
    step: JudgedStep, wrong: dict[str, Whole], right: dict[str, Whole]
) -> list[str]:
    """Tensors of `wrong` that own code changed where the sum over ranks is not seen.

    What is as on one rank is no mistake: it leaves `wrong`. Where it may hide one, it is "unseen".
    """
    stages = step.stages
    taken = {t: (stages["clip"].get(t), stages["used"].get(t)) for t in wrong}
    changed = [t for t, state in wrong.items() if any(state is own for own in taken[t])]
    if step.communicated or not (changed and changed_alone(step)):
        return []
    alike = all(as_on_one_rank(step, t, state) for t, state in wrong.items())
    decays = alike and decays_alone(step, changed)
    not_unscaled = step.scale not in (None, 1.0)
    not_unscaled &= any(t in stages["clip"] for t in changed) and not decays
    if not_unscaled or not alike:  # the first: clipped as it is after scale()
        return [] if not_unscaled else changed
    right |= {t: wrong[t] for t in changed if t in stages["clip"]}
    step.unseen = set([] if decays else changed)
    wrong.clear()
    return []


def changed_alone(step: JudgedStep) -> bool:
    """Is one rank's gradient right after backward, and changed before the optimizer gets it?"""
    both = [(own, step.of_one(t), t) for t, own in step.replay["backward"].items()]
    both = [pair for pair in both if pair[1] is not None]
    return any(step.is_exact(t, own) and not step.is_exact(t, later) for own, later, t in both)


def as_on_one_rank(step: JudgedStep, tensor: str, state: Whole) -> bool:
    """Does the optimizer get the same?"""
    wanted = step.of_one(tensor)
    if wanted is None or not state.agree:
        return False
    bound = CLIP_ROUNDINGS * step.unit * float(np.abs(wanted).max(initial=0.0))
    bound += 2 * step.bounds[tensor]
    return close(state.value, wanted, bound)


def outside(step: JudgedStep) -> set[str]:
    """Tensors of no optimizer, on p ranks and on one: what is in their .grad changes nothing."""
    return step.stages["backward"].keys() - step.optimized if step.optimized else set()


def scaled(state: Whole | None, factor: float) -> Whole | None:
    return state and Whole([factor * copy for copy in state.copies], state.shards)
