"""Is this training step rounding or a bug? Runs it on p ranks, judges each stage on its own.

start       all ranks begin with the same parameters
gradient    before clipping: the gradient of `loss` on the whole batch, within its bound.
            The raw gradient is judged, because Adam hides factors from the update
clip        what the optimizer gets, next to one rank's that clips the same gradient
update      the parameters, next to one rank's whose optimizer gets the same gradient
"""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from refgf.oracle.step import buffers, clipping, compared, gradients, hypotheses, updates, verdict
from refgf.oracle.step.compared import STAGES, TENTH, JudgedStep, Whole, close, listed
from refgf.oracle.step.fits import Cause
from refgf.oracle.step.ranks import CannotJudge, Ranks
from refgf.oracle.step.verdict import StepCount, StepFinding, StepVerdict, findings_of

ZERO = 1e-12  # of the largest gradient
STEPS = 3


def judge(
    source: str,
    ranks: int | Ranks = 2,
    steps: int = STEPS,
    seed: int = 0,
    timeout_s: float = 60.0,
    batch_norm: str = "refuse",
) -> StepVerdict:
    """Run FILE.py (or FILE.py:NAME) on `ranks` ranks and on one, and compare every stage.

    Raises CannotJudge, a ValueError, with a sentence. ranks: a Ranks that is already running saves
    its start. batch_norm: "whole" judges it with the statistics of all ranks' samples.
    """
    path, _, name = str(source).partition(":")
    if not Path(path).is_file():
        raise CannotJudge(
            f"step: got {path}, which is no file; wanted a Python file; next: check the path"
        )
    if steps < 1:
        raise CannotJudge(f"step: got {steps} steps; wanted at least 1")
    source = f"{Path(path).resolve()}:{name}".removesuffix(":")
    request = {"source": source, "seeds": list(range(seed, seed + steps))}
    request["batch_norm"] = batch_norm
    if isinstance(ranks, Ranks):
        return _judged(request, ranks)
    with Ranks(ranks, timeout_s) as running:
        return _judged(request, running)


def _judged(request: dict[str, Any], running: Ranks) -> StepVerdict:
    found = running.run(request)
    for rank, other in enumerate(found):
        if other["shapes"] != found[0]["shapes"]:
            raise CannotJudge(f"step, rank {rank}: its model has other parameters than rank 0's")
        verdict.require_turns(f"rank {rank}", other["steps"], "rank 0", found[0]["steps"])
    count = len(found[0]["steps"])
    held = [{kind: compared.stage(found, i, kind) for kind in STAGES} for i in range(count)]
    forced = [compared.forced_in(stages, found[0], number) for number, stages in enumerate(held)]
    coarsest = {"coarsest": found[0]["coarsest"]}
    answer = running.reference(request | coarsest | {"forced": forced})
    verdict.require_turns("p ranks", found[0]["steps"], "one rank", answer["replay"])
    none = without_step(found, answer["replay"])
    if none:
        raise CannotJudge(verdict.no_step(none))
    free = functools.cache(lambda: free_steps(running, request, forced, answer))
    findings: list[StepFinding] = []
    steps: list[JudgedStep] = []
    for number, stages in enumerate(held):
        one, exact = answer["replay"][number], answer["exact"][number]["gradients"]
        if number and not all(w.agree for w in stages["before"].values()):
            break  # ranks have diverged: the step before says why
        here = skipped([record["steps"][number] for record in found])
        if here != skipped([one]):
            if findings:
                break  # the sides make other steps from here on
            who = f"{running.size} ranks" if here else "one rank"
            raise CannotJudge(verdict.skips_differ(one["batch"], who))
        if here:
            continue
        if not finite(exact.values()):
            if findings:
                break
            got = [w.value for kind in ("used", "backward") for w in stages[kind].values()]
            raise CannotJudge(verdict.not_finite(one["batch"], exact, not finite(got)))
        step = compared.assembled(number, found, stages, answer, steps[-1] if steps else None)
        state = {key: one[key] for key in ("trained", "eval", "turn")} | forced[number]
        own = request | state | {"seeds": request["seeds"][one["batch"] :][:1]}
        step.samples = lambda t, own=own: running.reference(own | {"tensors": t})
        step.free = lambda number=number: [after[number] for after in free()]
        findings += judge_step(step)
        steps.append(step)
    return verdict_of(request, found, answer, steps, findings)


def verdict_of(
    request: dict, found: list[dict], answer: dict, steps: list[JudgedStep], findings: list
) -> StepVerdict:
    """Of all steps. Raises CannotJudge where there are no findings, but might be."""
    names = {t for exact in answer["exact"] for t in exact["gradients"]}  # trained in any step
    findings = verdict.merged(findings, len(names))
    verdict.require_no_lossy_hook(findings, found[0]["hooks"])
    verdict.require_whole_batches(findings, found[0]["steps"])
    shares, judged = {}, 0
    for step in steps:
        judged += optimizer_steps(step.records)
        if optimizer_steps(step.records):
            shares |= rounding_shares(step, shares)
    hidden = set().union(*(step.hidden for step in steps))
    unseen = gradients.unclipped([step.changed for step in steps]).union(
        *(step.unseen for step in steps)
    )
    faint = [t for t, share in shares.items() if share > TENTH]
    if not findings and hidden:
        raise CannotJudge(verdict.hidden_inside(sorted(hidden)))
    if not findings and unseen:
        raise CannotJudge(verdict.changed_unseen(sorted(unseen)))
    if not findings and not shares:
        raise CannotJudge(verdict.ALL_ZERO)
    if not findings and faint:
        raise CannotJudge(verdict.cannot_tell(found[0]["coarsest"], shares, faint))
    counts = len(found), step_count(found, answer["replay"], judged), len(names)
    wire, apart = (
        set().union(*(s.wire for s in steps)),
        {n: 0 for s in steps for n in buffers.unread(s)},
    )
    named = all(f.factor is not None for f in findings)  # signs are numbers of every type, too
    notes = [f"communicated in {' and '.join(sorted(wire))}"] * bool(wire and named)
    if found[0]["normalised"] and request["batch_norm"] == "whole":
        notes.append("batch normalisation with the statistics of all ranks' samples")
    if apart:
        notes.append(f"buffers not as on one rank, which no gradient reads: {listed(apart)}")
    rounding = max(shares.values(), default=0.0)
    telling = len(shares) - len(faint)
    return StepVerdict(request["source"], *counts, telling, rounding, findings, notes)


def free_steps(
    running: Ranks, request: dict, forced: list[dict], answer: dict
) -> list[list[dict[str, np.ndarray]]]:
    """Parameters after each step on one rank, whose gradients are its own, for each noise."""
    start = [{key: own[key] for key in ("before", "state")} for own in forced]
    bounds = [exact["rounding"] for exact in answer["exact"]]
    noises = [noise | {"bounds": bounds} for noise in updates.NOISES]
    found = running.reference(request | {"forced": start, "noises": noises})["free"]
    return [
        [compared.in_float64({t: array for t, (_, array) in after.items()}) for after in steps]
        for steps in found
    ]


def rounding_shares(step: JudgedStep, before: dict[str, float]) -> dict[str, float]:
    """{tensor: the share of its gradient that rounding may change}, the least of all steps.

    Of single elements next to the largest, or of the factor of all. A gradient that is 0 but for
    the roundings of float64 is left out.
    """
    sizes = {t: float(np.abs(g).max(initial=0.0)) for t, g in step.exact.items()}
    least = ZERO * max(sizes.values(), default=0.0)
    found = {t: max(step.bounds[t] / s, step.factors[t]) for t, s in sizes.items() if s > least}
    found = {t: share for t, share in found.items() if t not in gradients.outside(step)}
    return {t: min(share, before.get(t, share)) for t, share in found.items()}


def skipped(records: list[dict]) -> bool:
    """Did a GradScaler skip this step on all these ranks, because gradients were not finite?"""
    if any(record["scale"] is None or record["used"] for record in records):
        return False
    return not finite(array for record in records for _, array in record["backward"].values())


def without_step(found: list[dict], replay: list[dict]) -> list[int]:
    """Batches with a backward call, but without a step of the optimizer, on p ranks and on one."""
    return [
        records[-1]["batch"]
        for records in zip(*(rank["steps"] for rank in found), replay)
        if all(own["backward"] and not (own["used"] or own["changed"]) for own in records)
        and not any(skipped([own]) for own in records)
    ]


def finite(arrays: Iterable[np.ndarray]) -> bool:
    return all(np.isfinite(array).all() for array in arrays)


def optimizer_steps(records: list[dict]) -> int:
    """Steps of the optimizer in one step, of the rank and the tensor that has most."""
    seen = max((n for record in records for n in record["updates"].values()), default=0)
    return seen or int(any(record["changed"] for record in records))


def step_count(found: list[dict], replay: list[dict], judged: int) -> StepCount:
    ranks = zip(*(rank["steps"] for rank in found))
    made = sum(optimizer_steps(list(records)) for records in ranks)
    batches = len({own["batch"] for own in replay})
    return StepCount(batches, made, sum(optimizer_steps([own]) for own in replay), judged)


def judge_step(step: JudgedStep) -> list[StepFinding]:
    if step.first:
        other = [t for t, w in step.stages["before"].items() if not w.agree]
        if other:
            text = "ranks begin with different parameters; next: broadcast rank 0's, or one seed"
            return [StepFinding("start", text, ["different start"], None, other, [0])]
    apart = [t for t, w in step.stages["after"].items() if not w.agree]
    used = [bool(record["used"]) for record in step.records]
    if apart and any(used) and not all(used):
        ranks = ", ".join(str(rank) for rank, own in enumerate(used) if not own)
        text = f"rank {ranks} makes no step of the optimizer, the other ranks do"
        return findings_of("update", step, dict.fromkeys(apart, Cause(text, ["step left out"])))
    late, wrong_before = updates.late_tensors(step), set(step.late)
    found, step.hidden = updates.judge_late(step, late) if late else ([], set())
    seen = {t for t in late if (w := step.stages["backward"].get(t)) and w.agree}
    step.hidden -= seen
    findings, right = gradients.judge_gradients(step, (late - seen) | wrong_before)
    modes = other_modes(step) if findings else None
    if modes:
        wrong = [t for finding in findings for t in finding.tensors]
        findings += findings_of("gradient", step, dict.fromkeys(wrong, modes))
    if compared.whole_batch_everywhere(step):
        text = (
            "every rank computes the gradient of the whole batch, not of its share; next: give "
            "rank r its own samples, as batch[rank::size] or a DistributedSampler does"
        )
        cause = Cause(text, ["whole batch"])
        findings += findings_of("gradient", step, dict.fromkeys(step.exact, cause))
    findings += judge_clip(step, right) + updates.judge_update(step, late | wrong_before) + found
    if buffers.differing(step):  # that explains it
        findings = [f for f in findings if f.names or f.factor is not None]
    return buffers.judge_buffers(step) + findings


def other_modes(step: JudgedStep) -> Cause | None:
    """Modules in another mode than on one rank: the reason, where gradients are wrong."""
    differ = [set(record["eval"]) ^ set(step.one["eval"]) for record in step.records]
    ranks, modules = [str(rank) for rank, own in enumerate(differ) if own], set().union(*differ)
    if not ranks:
        return None
    prefixes = {name.rpartition(".")[0] for name in modules}
    names = sorted(modules - prefixes) or ["the model"]
    text = f"{listed(names)} in another mode, train() or eval(), on rank {', '.join(ranks)} than "
    return Cause(text + "on one rank; next: set it alike on all", ["mode"])


def used_bound(step: JudgedStep, tensor: str) -> float:
    """Of the largest element: clipping and decay may cancel in a small one."""
    largest = np.abs(step.replay["used"][tensor]).max(initial=0.0)
    bound = gradients.CLIP_ROUNDINGS * step.unit * float(largest)
    if not (tensor in step.stages["clip"] and tensor in step.replay["clip"]):
        bound = bound + 2 * step.bounds[tensor]  # the replay has its own gradient, too
    return bound


def judge_clip(step: JudgedStep, right: dict[str, Whole]) -> list[StepFinding]:
    """What the optimizer gets. right: gradients before clipping that are right."""
    states, base, wrong, clips = {}, {}, [], False  # clips: one rank does
    for t, before in right.items():
        state, wanted = step.stages["used"].get(t), step.replay["used"].get(t)
        if state is None or wanted is None:
            continue
        if before is state and (t in step.stages["clip"] or not one_is_right(step, t)):
            continue  # not clipped; or looked at before the sum over ranks
        states[t], base[t] = state, before
        bound = used_bound(step, t)
        if not state.agree or not close(state.value, wanted, bound):
            wrong.append(t)
        clips |= not close(before.value, wanted, bound)
    if not wrong:
        return []
    chosen = {t: states[t] for t in wrong}
    decayed = clipping.decay_cause(step, chosen, base)
    if decayed:
        return findings_of("gradient", step, dict.fromkeys(wrong, decayed))
    cause = clipping.clip_cause(step, states, base)
    if not step.stages["clip"] and not (clips and cause.names):  # changed after backward
        found = dict.fromkeys(wrong, hypotheses.CHANGED_APART)
        if all(state.agree for state in chosen.values()):
            found = hypotheses.gradient_causes(step, chosen)
        return findings_of("gradient", step, found)
    return findings_of("clip", step, dict.fromkeys(wrong, cause))


def one_is_right(step: JudgedStep, tensor: str) -> bool:
    """On one rank, before it clips: else the gradient that p ranks get rightly is not its own."""
    base = step.replay["clip"].get(tensor, step.replay["backward"].get(tensor))
    return base is not None and step.is_exact(tensor, base)
