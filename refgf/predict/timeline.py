"""The time of one training step: gradients become ready one after another, and travel in groups.

The recurrence of MG-WFBP and of PyDTNN (verified in their code), with one queue for all calls:

    start of call i = max(end of call i-1, time at which the last gradient of its group is ready)
    end of call i   = start + T(bytes of the group)
    step            = max(end of computation, end of the last call)

    backward   |--fc8--|-----fc7-----|--------fc6--------|--conv5--|--conv4--|...
    calls              |--fc8--|     |--fc7--|           |------fc6------|--conv5 + conv4--|
                                                                         ^ waited for the call before it

Gradients are [(ready_s, bytes)] in the order of generation, counted from the start of the step; bytes are those on the
wire. A strategy is a list of groups, each a range of consecutive gradients: `eager`, `lazy`, `one_call`, or made by
hand (`explicit`). T is any function bytes -> seconds: a refgf.predict.cost.Line, a closed form, a measured table.
"""

from dataclasses import dataclass
from math import inf, isnan


@dataclass(frozen=True)
class Call:
    """One allreduce: from start_s to end_s, `bytes` on the wire, gradients tensors.start .. tensors.stop - 1."""

    start_s: float
    end_s: float
    bytes: int
    tensors: range


@dataclass(frozen=True)
class Timeline:
    """A predicted step. compute_s: end of forward and backward alone; exposed_s: what communication adds to it."""

    calls: tuple[Call, ...]
    compute_s: float
    step_s: float

    @property
    def exposed_s(self):
        return self.step_s - self.compute_s

    @property
    def communication_s(self):
        return sum(call.end_s - call.start_s for call in self.calls)


def eager(gradients):
    """One call a gradient: wait-free backpropagation (WFBP)."""
    return [range(i, i + 1) for i in range(len(gradients))]


def one_call(gradients):
    """One call after the last gradient (the MG-WFBP papers' SyncEASGD)."""
    return [range(len(gradients))] if gradients else []


def lazy(gradients, threshold_bytes):
    """Lazy allreduce: send all that waits once it is more than theta bytes; the rest after the last gradient.

    theta = 0 is `eager`, infinity is `one_call`. (GradientFlow; the rule is stated, the final flush inferred)
    """
    if isnan(threshold_bytes) or threshold_bytes < 0:
        raise ValueError(f"lazy: got threshold_bytes {threshold_bytes}, wanted 0 <= bytes <= infinity")
    groups, start, waiting = [], 0, 0
    for i, (_, nbytes) in enumerate(gradients):
        waiting += nbytes
        if waiting > threshold_bytes:
            groups.append(range(start, i + 1))
            start, waiting = i + 1, 0
    return groups + ([range(start, len(gradients))] if start < len(gradients) else [])


def explicit(counts):
    """Groups from the number of gradients in each: [2, 1] -> the first two together, then the third."""
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    return [range(end - count, end) for count, end in zip(counts, ends)]


def predict(gradients, groups, allreduce_s, overlap=True, compute_s=None):
    """Timeline of one step.

    overlap: the share of its speed that computation keeps while a call runs. True or 1: calls run beside it. False or
    0: it stands still, so every later gradient is late by the length of the call. In between: cores that serve both
    (`kept_share` measures it).
    compute_s: end of the computation without communication; by default the last gradient ends it.
    """
    require(gradients, groups, overlap)
    compute_s = max((ready for ready, _ in gradients), default=0.0) if compute_s is None else compute_s
    calls, free_s, late_s = [], 0.0, 0.0  # late_s: how far the computation is behind itself without communication
    for group in groups:
        nbytes = sum(gradients[i][1] for i in group)
        start_s = max(free_s, gradients[group[-1]][0] + late_s)
        free_s = start_s + allreduce_s(nbytes)
        late_s += lateness(free_s - start_s, compute_s - (start_s - late_s), overlap)
        calls.append(Call(start_s, free_s, nbytes, group))
    return Timeline(tuple(calls), compute_s, max(compute_s + late_s, free_s))


def lateness(call_s, work_left_s, overlap):
    """How much later a computation with work_left_s to do ends because of a call of call_s beside it."""
    if work_left_s <= 0:
        return 0.0
    beside_s = call_s if overlap * call_s <= work_left_s else work_left_s / overlap
    return (1 - overlap) * beside_s


def kept_share(compute_s, call_s, both_s):
    """The share of its speed that computation keeps beside a call (`overlap` of `predict`), from three measured times.

    compute_s and call_s: each alone; both_s: until both are over that started together. Work is conserved: by what both
    take longer than the computation, the call has kept cores from it. 1: neither notices the other (a network engine
    beside a GPU); 0: the cores do one or the other. Rounded into 0 .. 1. ValueError unless 0 < call_s <= compute_s: a
    computation that ends before the call cannot show what it lost.
    """
    if not 0 < call_s <= compute_s:
        raise ValueError(
            f"kept_share: got {compute_s} s of computation beside a call of {call_s} s, wanted one at least as long as "
            "the call: measure with a longer one"
        )
    return min(1.0, max(0.0, 1 - (both_s - compute_s) / call_s))


def require(gradients, groups, overlap):
    """Raise ValueError unless gradients come in order of time and the groups hold each of them once, in order."""
    if not 0 <= overlap <= 1:
        raise ValueError(f"predict: got overlap {overlap}, wanted True, False or a share of speed between 0 and 1")
    ready = [seconds for seconds, _ in gradients]
    if any(later < earlier for earlier, later in zip(ready, ready[1:])):
        raise ValueError(f"predict: got ready times {ready[:6]}..., wanted them in the order of generation (rising)")
    if [i for group in groups for i in group] != list(range(len(gradients))) or not all(groups):
        raise ValueError(
            f"predict: got groups {groups[:6]}..., wanted each of the {len(gradients)} gradients once, in order, and "
            "no empty group: use eager, lazy, one_call or explicit"
        )


def thresholds(gradients, per_octave=2):
    """Values of theta for a sweep: 0, then evenly spaced in the logarithm from the smallest gradient, then infinity."""
    sizes = [nbytes for _, nbytes in gradients if nbytes > 0]
    values, theta = [0], min(sizes, default=1)
    while theta < sum(sizes):
        values.append(round(theta))
        theta *= 2 ** (1 / per_octave)
    return sorted({*values, inf})


def best_theta(gradients, allreduce_s, candidates=None, overlap=True):
    """(theta, Timeline) of the fastest step over `candidates` (default `thresholds`); the smallest theta of equals."""
    sweep = [
        (theta, predict(gradients, lazy(gradients, theta), allreduce_s, overlap))
        for theta in sorted(thresholds(gradients) if candidates is None else candidates)
    ]
    if not sweep:
        raise ValueError("best_theta: got no candidates, wanted at least one theta in bytes")
    return min(sweep, key=lambda pair: pair[1].step_s)
