"""The best bucket of PyTorch's DistributedDataParallel, Horovod and refgf, and the step with it.

DDP closes a bucket once it holds at least `bucket_cap_mb` MiB, counted in the order in which the
gradients were ready in the first step. Without the argument the first bucket is closed at 1 MiB and
the others at 25. (verified: torch/nn/parallel/distributed.py of PyTorch 2.13)

Horovod looks every HOROVOD_CYCLE_TIME for tensors that are ready, and fuses the first of them that
fit into HOROVOD_FUSION_THRESHOLD; 128 MiB and 1 ms since 0.21 (verified: its documentation and
release notes). A cycle begins a cycle time after the start of the last one, or at once if that one
took longer (verified: RunLoopOnce in horovod/common/operations.cc). That its calls are over by then
is inferred; with NCCL they may still be in flight. Idle cycles are not modelled: a gradient that
finds none in flight is sent at once, up to 1 ms too early.
"""

from functools import cache
from math import ceil
from typing import Any

from refgf.plan.question import Question
from refgf.plan.systems import FLOAT32, SYSTEMS
from refgf.plan.thetas import EQUAL
from refgf.predict.timeline import Gradients, lateness, lazy, predict

MIB = 1 << 20
DDP_DEFAULT_MIB, DDP_FIRST_MIB = 25, 1
DENSE = 1.01  # from one size that is tried to the next, in whole MiB: each of them up to 200
HOROVOD_DEFAULT_MIB, CYCLE_S = 128, 1e-3
FLAT = 0.02  # relative; steps so close to the best are as good, and a default is kept (chosen)


def ddp_groups(
    gradients: Gradients, cap_bytes: float, first_bytes: float | None = None
) -> list[range]:
    """A bucket is closed by the gradient that fills it to the cap."""
    if first_bytes is None:
        return lazy(gradients, cap_bytes - 1)
    first = lazy(gradients, first_bytes - 1)[:1]
    rest = lazy(gradients[first[0].stop :], cap_bytes - 1)
    return first + [range(first[0].stop + g.start, first[0].stop + g.stop) for g in rest]


def horovod_s(gradients: Gradients, question: Question, threshold: float) -> float:
    """End of the last fused call and of backward, which calls slow down as in timeline.predict."""
    allreduce_s, compute_s = cache(question.flat), gradients[-1][0]
    now_s, late_s, done = 0.0, 0.0, 0  # late_s: delay of backward by calls so far
    cycle_s = -CYCLE_S  # start of the last cycle
    while done < len(gradients):
        now_s = cycle_s = max(now_s, cycle_s + CYCLE_S, gradients[done][0] + late_s)
        ready = done
        while ready < len(gradients) and gradients[ready][0] + late_s <= now_s:
            ready += 1
        while done < ready:
            last, waiting = done + 1, gradients[done][1]
            while last < ready and waiting + gradients[last][1] <= threshold:
                waiting += gradients[last][1]
                last += 1
            call_s = allreduce_s(waiting) if waiting else 0.0
            late_s += lateness(call_s, compute_s - (now_s - late_s), question.overlap)
            now_s += call_s
            done = last
    return max(now_s, compute_s + late_s)


def of_ddp(question: Question) -> dict:
    """`advice` with bucket_cap_mb."""
    gradients, allreduce_s = in_float32(question), cache(question.flat)

    def step_s(cap_mib: float, first_mib: float | None = None) -> float:
        groups = ddp_groups(gradients, cap_mib * MIB, first_mib and first_mib * MIB)
        predicted = predict(gradients, groups, allreduce_s, question.overlap)
        return question.unmodelled.factor * (predicted.step_s + question.step.after_s)

    sweep = {cap: step_s(cap) for cap in sizes_mib(question)}
    default_s = step_s(DDP_DEFAULT_MIB, DDP_FIRST_MIB)
    best = smallest_of_best(sweep)
    return {"bucket_cap_mb": best} | advice(sweep, best, default_s)


def of_horovod(question: Question) -> dict:
    """`advice` with fusion_threshold_bytes: the default where none is more than FLAT faster."""
    gradients, after_s = in_float32(question), question.step.after_s
    tried, factor = [0, *sizes_mib(question)], question.unmodelled.factor
    sweep = {mib: factor * (horovod_s(gradients, question, mib * MIB) + after_s) for mib in tried}
    default_s = sweep[HOROVOD_DEFAULT_MIB]
    best = HOROVOD_DEFAULT_MIB if keeps_default(default_s, sweep) else smallest_of_best(sweep)
    return {"fusion_threshold_bytes": best * MIB} | advice(sweep, best, default_s)


def advice(sweep: dict[int, float], best: int, default_s: float) -> dict:
    """{"step_s", "default_step_s", "keep_default", "sweep": {MiB: step_s}}."""
    found = {"step_s": sweep[best], "default_step_s": default_s}
    return found | {"keep_default": keeps_default(default_s, sweep), "sweep": sweep}


def in_float32(question: Question) -> Gradients:
    return [(ready_s, FLOAT32 * elements) for ready_s, elements in question.step.ready]


def of_theta(question: Question) -> dict:
    """{"theta_bytes", "step_s", "all_bytes", "sweep": {bytes: step_s}, "ties", "near"} of `theta`.

    ties, near: the thetas around the best whose steps are at most EQUAL, or FLAT, longer.
    """
    theta, all_bytes = SYSTEMS["theta"], FLOAT32 * question.step.elements
    sweep = theta.sweep(question) or {0: question.step.compute_s}
    best = theta.best_theta(question) or 0
    found: dict[str, Any] = {
        "theta_bytes": best,
        "step_s": min(sweep.values()),
        "all_bytes": all_bytes,
    }
    found |= {"ties": around(sweep, best, EQUAL), "sweep": sweep}
    return found | {"near": around(sweep, best, FLAT)}


def around(sweep: dict[int, float], best: int, share: float) -> list[int]:
    """The consecutive sizes around `best` whose steps are at most this share above the least."""
    sizes = list(sweep)
    low = high = sizes.index(best)
    most_s = (1 + share) * min(sweep.values())
    while low > 0 and sweep[sizes[low - 1]] <= most_s:
        low -= 1
    while high + 1 < len(sizes) and sweep[sizes[high + 1]] <= most_s:
        high += 1
    return sizes[low : high + 1]


def sizes_mib(question: Question) -> list[int]:
    """Whole MiB, to Horovod's default and to all gradients: beyond that nothing changes."""
    most, found = max(HOROVOD_DEFAULT_MIB, ceil(FLOAT32 * question.step.elements / MIB)), [1]
    while found[-1] < most:
        found.append(min(most, max(found[-1] + 1, int(DENSE * found[-1]))))
    return found


def keeps_default(default_s: float, sweep: dict[int, float]) -> bool:
    """Is no size more than FLAT faster? Time per call that no input has would hide less."""
    return default_s <= (1 + FLAT) * min(sweep.values())


def smallest_of_best(sweep: dict[int, float]) -> int:
    """Of steps that are EQUAL the smaller bucket is taken, because it is sent earlier."""
    least_s = min(sweep.values())
    return next(size for size, seconds in sweep.items() if seconds <= (1 + EQUAL) * least_s)
