"""GradientFlow's techniques as settings of one predicted step.

    stack                 the systems that lesson 08 scales: one more technique each time
    step                  the predicted step of one system
    scaling_efficiency    T(exchange off) / T(exchange on), in percent
    time_to_train

Coarse-grained sparse communication: the pool is cut into chunks of 32,768 gradients in the order of
generation. A chunk is ready when the last tensor that reaches into it is ready. CSC sends
k = max(1, ceil(C percent / 100)) of the C chunks. Which ones depends on the data; here they are
evenly spaced over the pool (inferred). The last of them is sent when it is ready (inferred; a theta
of refgf's LazyAllreduce holds it until backward ends, and refgf.plan knows that). After the last
gradient one small call sums the norms of all C chunks, and selection_s is added to the step.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from refgf.arguments import checked
from refgf.predict.timeline import CallTime, Gradients, PredictedStep, eager, lazy, predict

CHUNK = 32_768  # gradients (stated: "32K"; as 32,768: chosen)
NORM_BYTES = 8  # one float64 per chunk


@checked
@dataclass(frozen=True)
class System:
    """The settings of one system.

    itemsize         bytes per gradient on the wire
    threshold_bytes  theta: 0 is eager, infinity is one call
    grouping         replaces theta: (gradients, T) -> groups, such as mgwfbp.merge.exact_merge
    percent          of the chunks that CSC sends; None is dense
    overlap          see timeline.predict
    selection_s      norms, choice and packing, computed after the last gradient
    norms_s          the call that sums the norms, if measured (0: selection_s includes it);
                     None: T of its bytes
    """

    name: str
    itemsize: int = 4
    threshold_bytes: float = 0.0
    grouping: Callable[[Gradients, CallTime], list[range]] | None = None
    percent: float | None = None
    chunk: int = CHUNK
    overlap: float = True
    selection_s: float = 0.0
    norms_s: float | None = None

    def __post_init__(self) -> None:
        wrong = None
        if self.itemsize not in (2, 4, 8):
            wrong = f"itemsize {self.itemsize}; wanted 2, 4 or 8 bytes; next: 4"
        elif self.percent is not None and not 0 < self.percent <= 100:
            wrong = (
                f"percent {self.percent}; wanted 0 < percent <= 100, or None for dense; next: 10"
            )
        elif self.chunk < 1:
            wrong = f"chunks of {self.chunk} gradients; wanted 1 or more; next: {CHUNK}"
        if wrong:
            raise ValueError(f"System {self.name!r}: got {wrong}")


def stack(threshold_bytes: float, percent: float = 10.0) -> tuple[System, ...]:
    """The systems of lesson 08: float16, overlap, lazy allreduce and CSC switched on in this order.

    threshold_bytes: theta on the wire. The papers do not publish a default.
    """
    half = {"itemsize": 2, "threshold_bytes": threshold_bytes}
    return (
        System("eager, float32, no overlap", overlap=False),
        System("+ float16", itemsize=2, overlap=False),
        System("+ overlap", itemsize=2),
        System("+ lazy allreduce", **half),
        System(f"+ CSC {percent:g} %", **half, percent=percent),
    )


def step(
    ready: Gradients, system: System, allreduce_s: CallTime, compute_s: float | None = None
) -> PredictedStep:
    """One step of `system` on a cluster whose allreduce takes allreduce_s(bytes).

    ready: [(ready_s, elements)] in the order of generation (Workload.gradients with itemsize 1).
    """
    if system.percent is None:
        gradients = [(ready_s, system.itemsize * elements) for ready_s, elements in ready]
        groups = groups_of(gradients, system, allreduce_s)
        return predict(gradients, groups, allreduce_s, system.overlap, compute_s)
    gradients, chunks = chosen_chunks(ready, system)
    groups = groups_of(gradients, system, allreduce_s)
    end_s = ready[-1][0]
    if system.norms_s is None:
        gradients.append((end_s, NORM_BYTES * chunks))
        groups.append(range(len(gradients) - 1, len(gradients)))
    compute_s = end_s if compute_s is None else compute_s
    predicted = predict(gradients, groups, allreduce_s, system.overlap, compute_s)
    step_s = predicted.step_s + (system.norms_s or 0.0) + system.selection_s
    return replace(predicted, step_s=step_s)


def groups_of(gradients: Gradients, system: System, allreduce_s: CallTime) -> list[range]:
    if system.grouping:
        return system.grouping(gradients, allreduce_s)
    if system.threshold_bytes == 0:
        return eager(gradients)
    return lazy(gradients, system.threshold_bytes)


def chosen_chunks(ready: Gradients, system: System) -> tuple[list[tuple[float, float]], int]:
    """([(ready_s, bytes)] of the chunks that are sent, number of all chunks)."""
    total = sum(elements for _, elements in ready)
    chunks = -(-total // system.chunk)
    count = max(1, ceil(chunks * system.percent / 100))
    gradients, tensor, reached = [], 0, ready[0][1]
    for i in range(count):
        chunk = (2 * i + 1) * chunks // (2 * count)
        end = min((chunk + 1) * system.chunk, total)
        while reached < end:
            tensor += 1
            reached += ready[tensor][1]
        gradients.append((ready[tensor][0], system.itemsize * (end - chunk * system.chunk)))
    return gradients, chunks


def scaling_efficiency(predicted: PredictedStep) -> float:
    """100 T(exchange off) / T(exchange on) on the same ranks, in percent."""
    return 100 * predicted.compute_s / predicted.step_s


def time_to_train(step_s: float, samples: int, epochs: int, batch: int, size: int) -> float:
    """Seconds of `epochs` epochs at `batch` samples per rank.

    The last batch of an epoch counts as a full one.
    """
    return epochs * ceil(samples / (batch * size)) * step_s
