"""DDP next to ranks that share what each holds in it, and that send less: `plan --sharded`.

    DDP        sums of 25 MiB during backward
    ZeRO-1     reduce-scatters of 25 MiB; each rank updates its slice, and all gather it
    FSDP       parameters are gathered a unit at a time in forward and again in backward, the next
               one during this one's computing (prefetch); gradients are reduce-scattered
    no prefetch, no reshard   without that; without the second gathering
    HSDP       FSDP in a node, sums of the slices between nodes
    DiLoCo     one sum of all parameters after every H steps
    PowerSGD   DDP's buckets as factors of rank 4 (refgf/papers/powersgd), in two sums
    votes      DDP's buckets as signs, summed in 16 bits each (lesson 17)

The order of FSDP's calls is that of PyTorch's fully_shard. A unit is what it wraps: a block of a
transformer that is named, the tables before the blocks, and what follows them. Of other models, and
with --units, it is consecutive gradients: at most so many units, often fewer. Reduce-scatter and
allgather take half of a ring each. All calls of a rank share its link, one after the other. Forward
takes a third of the time until the last gradient, divided as backward is (chosen). With
--accumulate, DDP and ZeRO-1 sum in the last of the micro-batches and FSDP in each one (its
default). PowerSGD's two sums of a bucket are taken for equally long (chosen). It needs the shapes
of a named network.

Memory: weights, gradients and the two states of Adam are float32. Buffers are DDP's copy of the
gradients, and PowerSGD's error or the votes; or the weights of the units that are whole at one time
and one unit's gradients twice: as backward leaves them, and packed. Activations and padding are
left out. A row that a GPU of a named node has no memory for says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from math import ceil
from typing import Any

from refgf.papers.powersgd.low_rank import factor_elements
from refgf.plan import thetas
from refgf.plan.buckets import DDP_DEFAULT_MIB, MIB
from refgf.plan.nccl import PROTOCOLS, RING, Nccl
from refgf.plan.question import NCCL, Question, ranges, varied
from refgf.plan.systems import FLOAT32, shared_link
from refgf.predict.timeline import CallTime, lazy

BUCKET = DDP_DEFAULT_MIB * MIB
WIRES = {"float32": 4, "bfloat16": 2}
UNITS = 24  # at most, of a model that does not say its own (chosen)
FORWARD = 1 / 3  # of the time until the last gradient (chosen: 1 of 3 products)
ADAM = 8  # bytes a parameter
POWERSGD_RANK, VOTE = 4, 2  # bytes a vote
MOST_MB = 99_999e6  # bytes that five digits of MB hold
GATHER, REDUCE = "allgather", "reduce-scatter"


@dataclass(frozen=True)
class Unit:
    forward_s: float
    backward_s: float
    elements: int


@dataclass(frozen=True)
class Sharded:
    """How parameters are shared, and how often they are summed."""

    units: int | None = None
    accumulate: int = 1
    inner_steps: int = 500

    def __post_init__(self) -> None:
        if min(value for value in vars(self).values() if value is not None) < 1:
            raise ValueError(
                f"plan --sharded: got {self}; wanted at least 1 of each; next: --units 24"
            )


def units_of(question: Question, count: int | None = None) -> list[Unit]:
    """In the order of forward: those of the network, or at most `count` (UNITS), often fewer.

    The latter end at the first gradient with which they have 1/count of all elements.
    """
    ready, own = question.step.ready, question.step.units
    if count is None and own:
        groups = [range(end - n, end) for n, end in zip(own, accumulate(own))]
    else:
        total = sum(elements for _, elements in ready)
        groups = lazy([(t, elements) for t, elements in ready], total / (count or UNITS) - 1)
    ends = [ready[group[-1]][0] for group in groups]
    forward_s = min(FORWARD * ends[-1], ends[0])
    backward = [end - start for start, end in zip([forward_s, *ends], ends)]
    whole_s, found = sum(backward), []
    for group, seconds in zip(groups, backward):
        share = seconds / whole_s if whole_s else 1 / len(groups)
        elements = sum(ready[i][1] for i in group)
        found.append(Unit(share * forward_s, seconds, elements))
    return found[::-1]


# ---- FSDP: which calls, and when ----


@dataclass
class Queue:
    """The calls of a rank, one after the other: [(kind, elements, begin_s, end_s)]."""

    seconds: Mapping[str, CallTime]
    itemsize: int
    calls: list[tuple[str, int, float, float]] = field(default_factory=list)

    def call(self, kind: str, unit: Unit, ready_s: float) -> float:
        begin_s = max(ready_s, self.end_s)
        end_s = begin_s + self.seconds[kind](self.itemsize * unit.elements)
        self.calls.append((kind, unit.elements, begin_s, end_s))
        return end_s

    @property
    def end_s(self) -> float:
        return self.calls[-1][-1] if self.calls else 0.0


def fsdp_s(units: list[Unit], queue: Queue, reshard: bool = True, prefetch: bool = True) -> float:
    """End of the last computation or call, which the queue then holds in PyTorch's order.

    With prefetch the next unit is gathered while this one computes, in each of the two passes.
    """
    works = [(unit, False) for unit in units] + [(unit, True) for unit in reversed(units)]
    end_s, here_s = 0.0, queue.call(GATHER, units[0], 0.0)
    for at, (unit, backward) in enumerate(works):
        start_s = max(end_s, here_s)
        end_s = start_s + (unit.backward_s if backward else unit.forward_s)
        following, its_backward = works[at + 1] if at + 1 < len(works) else (None, True)
        gathers = following is not None and (reshard or not its_backward)
        early = gathers and prefetch and backward == its_backward
        if early:
            here_s = queue.call(GATHER, following, start_s)
        if backward:
            queue.call(REDUCE, unit, end_s)
        if gathers and not early:
            here_s = queue.call(GATHER, following, end_s)
    return max(end_s, queue.end_s)


def half_s(question: Question) -> CallTime:
    """T(bytes) of a reduce-scatter or an allgather of so many bytes: half of a ring."""
    flat = question.flat
    if isinstance(flat, Nccl):
        return lambda nbytes: min(flat.time_s(nbytes, RING, each) for each in PROTOCOLS) / 2
    return lambda nbytes: flat(nbytes) / 2


def over_nodes(question: Question) -> CallTime:
    """T(bytes) of a unit's sum between nodes: each of the k ranks of a node has its slice."""
    k, fabric = question.per_node, replace(question.fabric, between=shared_link(question))
    apart = replace(question, size=question.nodes, ranks_per_node=1, fabric=fabric).flat
    return lambda nbytes: apart(nbytes / k)


def fsdp(question: Question, given: Sharded, itemsize: int, **how: bool) -> float:
    half = half_s(question)
    return fsdp_of(question, given, Queue({GATHER: half, REDUCE: half}, itemsize), **how)


def hsdp(question: Question, given: Sharded, itemsize: int) -> float:
    """The sum between nodes follows each reduce-scatter in the node."""
    k = question.per_node
    half, apart = half_s(replace(question, size=k, ranks_per_node=k)), over_nodes(question)
    both = {GATHER: half, REDUCE: lambda nbytes: half(nbytes) + apart(nbytes)}
    return fsdp_of(question, given, Queue(both, itemsize))


def fsdp_of(question: Question, given: Sharded, queue: Queue, **how: bool) -> float:
    end_s = fsdp_s(units_of(question, given.units), queue, **how)
    calls_s = sum(end - begin for _, _, begin, end in queue.calls)
    hidden_s = max(0.0, calls_s - (end_s - question.step.ready[-1][0]))
    slower_s = (1 - question.overlap) * hidden_s
    return given.accumulate * (end_s + slower_s) + question.step.after_s


# ---- the others ----


def in_buckets(
    question: Question,
    given: Sharded,
    itemsize: int,
    call: CallTime,
    sent: list[int] | None = None,
) -> float:
    """sent: elements of each gradient that are sent, where these are not all."""
    ready, after_s = question.step.ready, question.step.after_s
    gradients, _ = thetas.sent(ready, itemsize)
    groups, before_s = lazy(gradients, BUCKET), (given.accumulate - 1) * ready[-1][0]
    if sent is not None:
        ready = tuple((ready_s, k) for (ready_s, _), k in zip(ready, sent, strict=True))
    return before_s + thetas.step_s(ready, groups, call, question.overlap, itemsize) + after_s


def ddp(question: Question, given: Sharded, itemsize: int) -> float:
    return in_buckets(question, given, itemsize, question.flat)


def zero1(question: Question, given: Sharded, itemsize: int) -> float:
    half = half_s(question)
    gathered_s = half(itemsize * question.step.elements)
    return in_buckets(question, given, itemsize, half) + gathered_s


def powersgd(question: Question, given: Sharded, itemsize: int) -> float:
    sent = [sum(factor_elements(shape, POWERSGD_RANK)) for shape in question.step.shapes]
    two_sums: CallTime = lambda nbytes: 2 * question.flat(nbytes / 2)  # noqa: E731
    return in_buckets(question, given, itemsize, two_sums, sent)


def votes(question: Question, given: Sharded, itemsize: int) -> float:
    """A bucket's votes, and the sum of its magnitudes."""

    def call(nbytes: float) -> float:
        return question.flat(VOTE / itemsize * nbytes) + question.flat(FLOAT32)

    return in_buckets(question, given, itemsize, call)


def diloco(question: Question, given: Sharded, itemsize: int) -> float:
    step, sum_s = question.step, question.flat(itemsize * question.step.elements)
    return given.accumulate * step.ready[-1][0] + step.after_s + sum_s / given.inner_steps


# ---- memory: bytes of weights, gradients, optimiser; and of buffers by the size of a number ----


def whole(question: Question, given: Sharded) -> tuple:
    n = question.step.elements
    return FLOAT32 * n, FLOAT32 * n, ADAM * n, lambda itemsize: FLOAT32 * n


def with_more(question: Question, given: Sharded, more: int) -> tuple:
    """As `whole`, with so many more bytes of buffers a parameter."""
    *held, buffers = whole(question, given)
    return *held, lambda itemsize: buffers(itemsize) + more * question.step.elements


def slice_of_adam(question: Question, given: Sharded) -> tuple:
    n = question.step.elements
    own = ADAM * ceil(n / question.size)
    return FLOAT32 * n, FLOAT32 * n, own, lambda itemsize: min(BUCKET, itemsize * n)


def with_outer(question: Question, given: Sharded) -> tuple:
    """The parameters of the last sum, and the outer momentum."""
    n = question.step.elements
    return FLOAT32 * n, FLOAT32 * n, (ADAM + 2 * FLOAT32) * n, lambda itemsize: FLOAT32 * n


def in_a_row(sizes: list[int], count: int) -> int:
    """The most elements that so many neighbouring units have together."""
    return max(sum(sizes[at : at + count]) for at in range(len(sizes)))


def whole_elements(sizes: list[int], ahead: int = 1) -> int:
    """Of this unit's weights and those gathered ahead, and of one unit's gradients twice."""
    return in_a_row(sizes, 1 + ahead) + 2 * max(sizes)


def slices(question: Question, given: Sharded, ahead: int = 1, inside: bool = False) -> tuple:
    """ahead: units that are gathered besides this one."""
    p = question.per_node if inside else question.size
    own = ceil(question.step.elements / p)
    held = whole_elements([unit.elements for unit in units_of(question, given.units)], ahead)
    return FLOAT32 * own, FLOAT32 * own, ADAM * own, lambda itemsize: itemsize * held


@dataclass(frozen=True)
class Strategy:
    """step_s: (question, how, bytes a number sent) -> seconds. memory: above.

    applies: to this question? needs: what it says if not.
    """

    step_s: Callable[[Question, Sharded, int], float]
    memory: Callable[[Question, Sharded], tuple]
    applies: Callable[[Question], bool] = lambda question: True
    needs: str = ""


STRATEGIES = {
    "DDP": Strategy(ddp, whole),
    "ZeRO-1": Strategy(zero1, slice_of_adam),
    "FSDP": Strategy(fsdp, slices),
    "no prefetch": Strategy(partial(fsdp, prefetch=False), partial(slices, ahead=0)),
    "no reshard": Strategy(partial(fsdp, reshard=False), partial(slices, ahead=10**9)),
    "HSDP": Strategy(
        hsdp,
        partial(slices, inside=True),
        lambda question: question.two_levels,
        "needs more than one rank a node and more than one node",
    ),
    "DiLoCo": Strategy(diloco, with_outer),
    "PowerSGD": Strategy(
        powersgd,
        partial(with_more, more=FLOAT32),
        lambda question: bool(question.step.shapes),
        "needs a network's name as --model: shapes of its gradients",
    ),
    "votes": Strategy(votes, partial(with_more, more=VOTE)),
}


def seconds(name: str, question: Question, given: Sharded, itemsize: int) -> float:
    if question.size == 1:
        return given.accumulate * question.step.ready[-1][0] + question.step.after_s
    return question.unmodelled.factor * STRATEGIES[name].step_s(question, given, itemsize)


def answer(question: Question, given: Sharded) -> dict[str, Any]:
    """{strategy: times in s, memory in bytes}; None where one does not apply."""
    if question.allreduce not in ("ring", NCCL):
        raise ValueError(
            f"plan --sharded: got --allreduce {question.allreduce}; wanted ring or {NCCL}, whose "
            "halves are a reduce-scatter and an allgather; next: --allreduce ring"
        )
    inputs, found = ranges(question), {}
    ends = [varied(question, **{key: both[end] for key, both in inputs.items()}) for end in (0, 1)]
    for name, strategy in STRATEGIES.items():
        if not strategy.applies(question):
            found[name] = None
            continue
        row = {}
        for wire, itemsize in WIRES.items():
            times_s = [seconds(name, each, given, itemsize) for each in (question, *ends)]
            row[wire] = dict(zip(("step_s", "low_s", "high_s"), times_s))
        *held, buffers = strategy.memory(question, given)
        row["memory_bytes"] = dict(zip(("weights", "gradients", "optimizer"), map(float, held)))
        for wire, itemsize in WIRES.items():
            row["memory_bytes"][f"buffers_{wire}"] = float(buffers(itemsize))
        row["room"] = question.fabric.room(sum(held) + buffers(WIRES["bfloat16"]))
        found[name] = row
    count = len(units_of(question, given.units))
    return {**vars(given), "units": count, "strategies": found}


def text(found: dict[str, Any]) -> str:
    held = [row["memory_bytes"].values() for row in found["strategies"].values() if row]
    unit, scale, digits = ("MB", 1e-6, 0) if max(map(max, held)) < MOST_MB else ("GB", 1e-9, 1)
    lines = [
        f"Sharded: {counted(found['units'], 'unit')} (--units), "
        f"{counted(found['accumulate'], 'micro-batch')} a step (--accumulate), "
        f"H = {found['inner_steps']} (--inner-steps)",
        f"{'':<13}float32 sent, ms           bfloat16 sent, ms           {unit} a rank       "
        "buffers",
        f"{'':<16}step  lowest .. highest     step  lowest .. highest weights grads  Adam  "
        "f32  bf16",
    ]
    for name, row in found["strategies"].items():
        if row is None:
            lines.append(f"{name:<12} {STRATEGIES[name].needs}")
            continue
        cells = [times(row[wire]) for wire in WIRES]
        held = [f"{scale * nbytes:6.{digits}f}" for nbytes in row["memory_bytes"].values()]
        lines.append(f"{name:<12} {cells[0]} {cells[1]}{''.join(held)}")
        lines += [f"{'':<13}{row['room']}"] * bool(row["room"])
    lines += [
        "Predicted, with the same links and ranges. Weights, gradients and Adam's states are "
        "float32;",
        "forward is taken for a third of the time until the last gradient.",
        "PowerSGD is of rank 4 and votes have 16 bits; what they compute is not included.",
    ]
    return "\n".join(lines)


def counted(count: int, name: str) -> str:
    more = "es" if name.endswith("ch") else "s"
    return f"{count} {name}{more if count > 1 else ''}"


def times(row: dict[str, float]) -> str:
    step, low, high = (f"{1e3 * row[key]:.1f}" for key in ("step_s", "low_s", "high_s"))
    return f"{step:>8} {low:>7} .. {high:<6}"
