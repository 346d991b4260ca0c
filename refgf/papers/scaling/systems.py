"""What travels, and how: the techniques of GradientFlow and MG-WFBP as settings of one predicted step.

    STACK      the techniques switched on one after another, as lesson 07 measures them and lesson 08 scales them
    step       Timeline of one step of a system
    speedup    p * T(exchange off) / T(exchange on), the project's definition
    time_to_train

Coarse-grained sparse communication in a timeline: the pool is cut into chunks of 32,768 gradients in the order of
generation. A chunk is ready when the last tensor that reaches into it is. Only k = max(1, ceil(C percent / 100)) of
the C chunks travel; which ones depends on the data, so they are taken evenly spread over the pool (inferred). After
the last gradient the norms of all C chunks are summed by one small call, and selection_s is added to the step.
"""

from dataclasses import dataclass, replace
from math import ceil

from refgf.papers.mgwfbp.merge import exact_merge
from refgf.predict.timeline import eager, lazy, predict

CHUNK = 32_768  # gradients (stated: "32K")
NORM_BYTES = 8  # one float64 a chunk


@dataclass(frozen=True)
class System:
    """itemsize: bytes a gradient on the wire; threshold_bytes: theta, 0 eager, inf one call; merge: the exact best
    merge in place of theta; percent: of chunks that CSC sends, None for dense; overlap: see timeline.predict;
    selection_s: norms, choice and packing, on the processor after the last gradient; norms_s: the call that sums the
    norms, where it was measured (0 where selection_s has it), None: as long as other calls of its bytes."""

    name: str
    itemsize: int = 4
    threshold_bytes: float = 0.0
    merge: bool = False
    percent: float | None = None
    chunk: int = CHUNK
    overlap: float = True
    selection_s: float = 0.0
    norms_s: float | None = None

    def __post_init__(self):
        if self.itemsize not in (2, 4, 8):
            raise ValueError(f"System {self.name!r}: got itemsize {self.itemsize}, wanted 2, 4 or 8 bytes")
        if self.percent is not None and not 0 < self.percent <= 100:
            raise ValueError(f"System {self.name!r}: got percent {self.percent}, wanted 0 < percent <= 100, or None")
        if self.chunk < 1:
            raise ValueError(f"System {self.name!r}: got chunks of {self.chunk} gradients, wanted 1 or more")


def stack(threshold_bytes, percent=10.0):
    """The systems of GradientFlow in the order of lesson 07; theta in bytes on the wire (no published default)."""
    return (
        System("eager, float32, no overlap", overlap=False),
        System("+ overlap"),
        System("+ lazy allreduce", threshold_bytes=threshold_bytes),
        System("+ float16", itemsize=2, threshold_bytes=threshold_bytes),
        System(f"+ CSC {percent:g} %", itemsize=2, threshold_bytes=threshold_bytes, percent=percent),
    )


def step(ready, system, allreduce_s, compute_s=None):
    """Timeline of one step. `ready`: [(ready_s, elements)] in the order of generation (Workload.gradients with
    itemsize 1); allreduce_s: bytes -> seconds on the cluster in question."""
    if system.percent is None:
        gradients = [(ready_s, system.itemsize * elements) for ready_s, elements in ready]
        return predict(gradients, groups_of(gradients, system, allreduce_s), allreduce_s, system.overlap, compute_s)
    gradients, chunks = chosen_chunks(ready, system)
    groups = groups_of(gradients, system, allreduce_s)
    end_s = ready[-1][0]
    if system.norms_s is None:
        gradients.append((end_s, NORM_BYTES * chunks))
        groups.append(range(len(gradients) - 1, len(gradients)))
    timeline = predict(gradients, groups, allreduce_s, system.overlap, end_s if compute_s is None else compute_s)
    return replace(timeline, step_s=timeline.step_s + (system.norms_s or 0.0) + system.selection_s)


def groups_of(gradients, system, allreduce_s):
    if system.merge:
        return exact_merge(gradients, allreduce_s)
    return eager(gradients) if system.threshold_bytes == 0 else lazy(gradients, system.threshold_bytes)


def chosen_chunks(ready, system):
    """([(ready_s, bytes)] of the chunks that travel, number of all chunks)."""
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


def speedup(size, timeline):
    """size * T(exchange off) / T(exchange on) on `size` ranks each."""
    return size * timeline.compute_s / timeline.step_s


def time_to_train(step_s, samples, epochs, batch, size):
    """Seconds of `epochs` epochs at `batch` samples a rank; the last batch of an epoch counts as a whole one."""
    return epochs * ceil(samples / (batch * size)) * step_s


def sweep(ready, systems, sizes, allreduce_of):
    """{(system name, size): Timeline}; allreduce_of(size) gives the T of that cluster. The cost of a sweep grows with
    tensors and calls, not with GPUs."""
    return {
        (system.name, size): step(ready, system, allreduce_of(size)) for size in sizes for system in systems
    }


def sweep_theta(ready, thresholds, sizes, allreduce_of, itemsize=4):
    """{(theta, size): step_s}. Groups depend on theta only, so they are formed once for all sizes."""
    gradients = [(ready_s, itemsize * elements) for ready_s, elements in ready]
    groups = {theta: lazy(gradients, theta) for theta in thresholds}
    return {
        (theta, size): predict(gradients, groups[theta], allreduce_of(size)).step_s
        for size in sizes
        for theta in thresholds
    }
