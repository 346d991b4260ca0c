"""A step of DistributedDataParallel as it would be without its exchange, and ranks together.

What of the exchange ran while nothing else did is taken out: all later times move forward by it. It
was the exchange or waiting for other ranks, but may have been waiting for this rank's own data, so
the interval of pace reaches up to the whole step. What ran during the exchange may have been
slowed down by it, so the interval reaches down to a step without that.

Only sums over all ranks can be taken out. In tensor, pipeline and expert parallelism, and in FSDP,
an exchange belongs to the computing itself.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from refgf.plan.parameters import shapes_in
from refgf.plan.sizes import refuse
from refgf.plan.step_times import StepTimes
from refgf.plan.trace import Events, Trace

LEAST_SPEED = {True: 0.7, False: 0.3}  # of computing during a sum, on a GPU and a CPU (chosen)
APART = 1.5  # times the step of the fastest rank: of another job? (chosen)
UNEQUAL = 0.01  # relative; of elements that are summed and those of gradients (chosen)
OTHERS = ("reduce_scatter", "reducescatter", "alltoall", "all_to_all", "sendrecv", ":send", ":recv")

Spans = list[tuple[float, float]]


@dataclass(frozen=True)
class Removed:
    """The times, in microseconds, in which only an exchange ran; hidden_us: with computing."""

    exposed: Spans
    hidden_us: float
    least_speed: float

    @property
    def exposed_us(self) -> float:
        return length(self.exposed)

    def __call__(self, t: float) -> float:
        """This time in a step without them."""
        return t - length((low, min(high, t)) for low, high in self.exposed if low < t)

    def scatter(self, step_us: float) -> tuple[float, float]:
        """The shortest and longest step that this one may be, as factors of it."""
        faster_us = (1 - self.least_speed) * self.hidden_us
        return 1 - faster_us / step_us, 1 + self.exposed_us / step_us


def removed(trace: Trace, began: float, over: float) -> Removed:
    on_gpu = bool(trace["kernels"])
    busy = spans(trace["kernels" if on_gpu else "operators"], began, over)
    sums = spans([e for e in trace["sums"] if (e.kind == "kernel") == on_gpu], began, over)
    ends = pairwise([(began, began), *busy, (over, over)])
    idle = [(end, start) for (_, end), (start, _) in ends]
    both = [(max(one, low), min(other, high)) for one, other in sums for low, high in idle]
    exposed = [(low, high) for low, high in both if low < high]
    return Removed(exposed, length(sums) - length(exposed), LEAST_SPEED[on_gpu])


def spans(events: Events, began: float, over: float) -> Spans:
    """When any of them runs within these times: in order, none touching the next."""
    found: Spans = []
    for low, high in sorted((max(began, e.start), min(over, e.end)) for e in events):
        if low >= high:
            continue
        if found and low <= found[-1][1]:
            low, last = found.pop()
            high = max(high, last)
        found.append((low, high))
    return found


def length(given: Iterable[tuple[float, float]]) -> float:
    return sum(high - low for low, high in given)


def require_data_parallel(step: Trace, name: str) -> None:
    """ValueError for an exchange that is no sum of gradients."""
    sparse = [e.name for e in step["operators"] if e.name.endswith("sparse_backward")]
    if sparse:
        got = f"{name} with sparse gradients, as of {sparse[0]}"
        wanted = "dense ones, because of these DDP gathers the touched rows of every rank"
        refuse(step.path, got, wanted, "nn.Embedding(sparse=False), or a list of the dense ones")
    others = [e for e in step["exchanges"] if any(part in e.name.lower() for part in OTHERS)]
    if others:
        got = f"{name} with {len(others)} events such as {others[0].name[:40]}"
        wanted = "data parallelism, in which every rank has the whole model"
        alone = "profile one rank that holds all of it, or pass a list of gradients"
        refuse(step.path, got, wanted, alone)


def notes(step: Trace, found: Removed, elements: int, over_us: float) -> tuple[str, ...]:
    """What was taken out; and sums that are not those of the gradients."""
    if not step["exchanges"]:
        return ()
    took, out, during = (f"{us / 1e3:.1f}" for us in (over_us, found.exposed_us, found.hidden_us))
    said = f"WARNING: the step has an exchange, and took {took} ms with it. Taken out: {out} ms in "
    said += f"which only the exchange ran. {during} ms of computing during it may have been slowed "
    said += (
        f"down: the interval of pace holds {100 * found.least_speed:.0f} % of its speed or more, "
    )
    said += "and waiting for this rank's own data. Better: profile in model.no_sync()."
    shapes = [s for e in step["exchanges"] if "allreduce" in e.name for s in shapes_in(e.inputs)]
    summed = sum(prod(shape) for shape in shapes if shape)
    if abs(summed - elements) <= UNEQUAL * elements or not summed:
        return (said,)
    other = f"WARNING: {summed:,} elements are summed, but its gradients have {elements:,}: is the "
    return said, other + "model whole on each rank?"


def together(ranks: list[StepTimes]) -> StepTimes:
    """One step of several ranks: a sum begins when the last rank is ready.

    Gradients of one size are matched in their order. The notes are those of the slowest rank.
    """
    worst, sizes = max(ranks, key=lambda each: each.compute_s), None
    for each in ranks:
        own = Counter(elements for _, elements in each.ready), each.name.rpartition(", ")[2]
        if own != (sizes := sizes or own):
            got = f"another step, or other gradients, than those of {ranks[0].name}"
            wanted = "traces of one step of one job, in which each rank has the whole model"
            refuse(each.name, got, wanted, "--step N, of the same step; and all of one job")
    ordered = [sorted(each.ready, key=lambda pair: pair[1]) for each in ranks]  # stable
    ready = tuple(sorted(max(same) for same in zip(*ordered)))
    steps_s = [each.compute_s for each in ranks]
    ends = ([each.scatter[end] * each.compute_s for each in ranks] for end in (0, 1))
    low, high = (max(end) / worst.compute_s for end in ends)
    said = f"{len(ranks)} ranks, of which the slowest counts: without exchange they compute "
    said += f"{1e3 * min(steps_s):.1f} to {1e3 * max(steps_s):.1f} ms. The slowest:"
    if max(steps_s) > APART * min(steps_s):
        said = f"WARNING: {max(steps_s) / min(steps_s):.2g} times apart: of one job? {said}"
    return replace(
        worst,
        ready=ready,
        after_s=worst.compute_s - ready[-1][0],
        scatter=(low, high),
        notes=(said, *worst.notes),
    )
