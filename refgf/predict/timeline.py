"""The time of one training step: gradients become ready one after another and are sent in groups.

The recurrence of MG-WFBP and of PyDTNN (verified in their code), with one queue for all calls:

    start of call i = max(end of call i-1, time at which the last gradient of its group is ready)
    end of call i   = start + T(bytes of the group)
    step            = max(end of computation, end of the last call)

    backward   |--fc8--|-----fc7-----|--------fc6--------|--conv5--|--conv4--|...
    calls              |--fc8--|     |--fc7--|           |---------fc6---------|--conv5 + conv4--|
                                                                               ^ waits for fc6

Gradients are [(ready_s, bytes)] in the order of generation: seconds since the start of the step,
and bytes on the wire. A group is a range of consecutive gradients. T is any function
bytes -> seconds: a Line of `cost.py`, a Curve of `fit.py`, a closed form.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Gradients = Sequence[tuple[float, float]]
CallTime = Callable[[float], float]


@dataclass(frozen=True)
class PredictedCall:
    """One allreduce of the gradients of a group: `bytes` on the wire from start_s to end_s."""

    start_s: float
    end_s: float
    bytes: float
    group: range


@dataclass(frozen=True)
class PredictedStep:
    """compute_s: forward and backward without communication. step_s: everything."""

    calls: tuple[PredictedCall, ...]
    compute_s: float
    step_s: float

    @property
    def exposed_s(self) -> float:
        """What communication adds to the computation."""
        return self.step_s - self.compute_s

    @property
    def communication_s(self) -> float:
        return sum(call.end_s - call.start_s for call in self.calls)


def eager(gradients: Gradients) -> list[range]:
    """One call per gradient: wait-free backpropagation (WFBP)."""
    return [range(i, i + 1) for i in range(len(gradients))]


def one_call(gradients: Gradients) -> list[range]:
    """One call after the last gradient (the MG-WFBP papers' SyncEASGD)."""
    return [range(len(gradients))] if gradients else []


def lazy(gradients: Gradients, threshold_bytes: float) -> list[range]:
    """Lazy allreduce: fire once the waiting bytes are greater than theta; flush at the end.

    theta = 0 is `eager`, infinity is `one_call`. (GradientFlow; the flush is inferred)
    """
    if not threshold_bytes >= 0:
        raise ValueError(
            f"lazy: got threshold_bytes {threshold_bytes}; wanted 0 to infinity; next: 65536"
        )
    groups, start, waiting = [], 0, 0.0
    for i, (_, nbytes) in enumerate(gradients):
        waiting += nbytes
        if waiting > threshold_bytes:
            groups.append(range(start, i + 1))
            start, waiting = i + 1, 0
    return groups + ([range(start, len(gradients))] if start < len(gradients) else [])


def predict(
    gradients: Gradients,
    groups: Sequence[range],
    allreduce_s: CallTime,
    overlap: float = True,
    compute_s: float | None = None,
) -> PredictedStep:
    """The step with one call of allreduce_s(bytes) per group; a group without bytes is no call.

    overlap: the fraction of its speed that computation keeps while a call is in flight. 1 or True:
    both run concurrently. 0 or False: computation stops. Between: they share cores (`fit.py`).
    compute_s: end of the computation without communication; by default the last gradient ends it.
    """
    require(gradients, groups, overlap)
    last_s = max((ready_s for ready_s, _ in gradients), default=0.0)
    compute_s = last_s if compute_s is None else compute_s
    calls, free_s, late_s = [], 0.0, 0.0  # late_s: delay of the computation by calls so far
    sizes = [sum(gradients[i][1] for i in group) for group in groups]
    for group, nbytes in (each for each in zip(groups, sizes) if each[1]):
        start_s = max(free_s, gradients[group[-1]][0] + late_s)
        free_s = start_s + allreduce_s(nbytes)
        late_s += lateness(free_s - start_s, compute_s - (start_s - late_s), overlap)
        calls.append(PredictedCall(start_s, free_s, nbytes, group))
    return PredictedStep(tuple(calls), compute_s, max(compute_s + late_s, free_s))


def lateness(call_s: float, work_left_s: float, overlap: float) -> float:
    """How much a call of call_s delays a computation that has work_left_s to do."""
    if work_left_s <= 0:
        return 0.0
    shared_s = call_s if overlap * call_s <= work_left_s else work_left_s / overlap
    return (1 - overlap) * shared_s


def require(gradients: Gradients, groups: Sequence[range], overlap: float) -> None:
    """ValueError unless gradients rise in time and the groups hold each of them once, in order."""
    ready_s, n = [seconds for seconds, _ in gradients], len(gradients)
    problem = ""
    if not 0 <= overlap <= 1:
        problem = f"got overlap {overlap}; wanted True, False or 0 <= overlap <= 1"
    elif ready_s != sorted(ready_s):
        problem = f"got ready times {ready_s[:6]}...; wanted the order of generation (rising)"
    elif [i for group in groups for i in group] != list(range(n)) or not all(groups):
        wanted = f"wanted each of the {n} gradients once, in order, and no empty group"
        problem = f"got groups {groups[:6]}...; {wanted}; next: eager, lazy or one_call"
    if problem:
        raise ValueError(f"predict: {problem}")
