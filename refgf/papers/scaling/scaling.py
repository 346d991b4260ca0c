"""Scaling efficiency from 4 to 2048 ranks for the techniques of systems.py, as intervals.

T(p) is the ring's closed form on a link, so a prediction for 2048 ranks costs as much as one for 4.
The best theta is searched for each p: the papers do not publish theirs, and the best one grows with
the latency of a call, 2 (p-1) alpha.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from refgf.arguments import checked
from refgf.papers.scaling.interval import Input, extremes
from refgf.papers.scaling.shapes import Workload
from refgf.papers.scaling.systems import System, chosen_chunks, scaling_efficiency, step
from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import CallTime, Gradients, PredictedStep, lazy, predict


@checked
@dataclass(frozen=True)
class Cluster:
    """Ranks of `rate` samples/s at `batch` samples each, on links of `bandwidth` bytes/s.

    small_batch: fraction of `rate` that is left at this batch.
    """

    batch: int
    rate: float
    alpha_s: float
    bandwidth: float
    gamma_s_per_byte: float = 0.0
    small_batch: float = 1.0

    def allreduce_s(self, size: int) -> CallTime:
        return ring_line(size, Link(self.alpha_s, 1 / self.bandwidth, self.gamma_s_per_byte))


def thresholds(gradients: Gradients, per_octave: int = 2) -> list[float]:
    """Values of theta for a sweep: 0, a geometric series from the smallest gradient, infinity."""
    sizes = [nbytes for _, nbytes in gradients if nbytes > 0]
    values, theta = [0], min(sizes, default=1)
    while theta < sum(sizes):
        values.append(round(theta))
        theta *= 2 ** (1 / per_octave)
    return sorted({*values, inf})


def best_theta(
    gradients: Gradients, allreduce_s: CallTime, overlap: float = True
) -> tuple[float, PredictedStep]:
    """(theta, step) of the fastest step over `thresholds`; of equals, the smallest theta."""
    sweep = [
        (theta, predict(gradients, lazy(gradients, theta), allreduce_s, overlap))
        for theta in thresholds(gradients)
    ]
    return min(sweep, key=lambda pair: pair[1].step_s)


def best_theta_step(ready: Gradients, system: System, allreduce_s: CallTime) -> PredictedStep:
    """The step of `system` with the best theta for this T. A system with theta 0 stays eager.

    ready: [(ready_s, elements)], as for `systems.step`.
    """
    if not system.threshold_bytes:
        return step(ready, system, allreduce_s)
    gradients = [(ready_s, system.itemsize * elements) for ready_s, elements in ready]
    if system.percent is not None:
        gradients, _ = chosen_chunks(ready, system)
    systems = [replace(system, threshold_bytes=theta) for theta in thresholds(gradients, 1)]
    steps = (step(ready, candidate, allreduce_s) for candidate in systems)
    return min(steps, key=lambda predicted: predicted.step_s)


def ready_of(workload: Workload, batch: int, rate: float) -> list[tuple[float, int]]:
    """[(ready_s, elements)] of a rank that computes `rate` samples per second, split by flops."""
    return workload.step_gradients(batch / rate, itemsize=1)


def efficiency_on(workload: Workload, system: System, size: int, cluster: Cluster) -> float:
    """Scaling efficiency of `size` ranks in percent, with the best theta."""
    ready = ready_of(workload, cluster.batch, cluster.rate * cluster.small_batch)
    return scaling_efficiency(best_theta_step(ready, system, cluster.allreduce_s(size)))


def curve(
    workload: Workload, system: System, sizes: Iterable[int], inputs: Sequence[Input]
) -> dict[int, tuple[float, float]]:
    """{size: (low, high)} of `efficiency_on` over all combinations of the inputs.

    inputs: named as the fields of Cluster.
    """

    def interval(size: int) -> tuple[float, float]:
        return extremes(
            lambda **values: efficiency_on(workload, system, size, Cluster(**values)), inputs
        )

    return {size: interval(size) for size in sizes}
