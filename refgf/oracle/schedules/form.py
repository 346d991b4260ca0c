"""One neutral form of every format: per rank a list of steps with dependencies.

A step does this, once all steps in `after` have ended:

    receive     one message, or signals without data, from `receives`
    compute     the sum of the message and of all `reads`, from left to right
    write       that value into all `writes`, which may be another rank's memory (MSCCL++'s put)
    send        that value, or signals without data, to `sends`

Messages are first in, first out for each (source, destination, channel), and sending does not wait
for the receiver. A step that the file orders after another one of its thread block names it in
`after`, so `after` and the messages are all the order that there is. Memory is counted in chunks of
three buffers: "i" (input), "o" (output) and "s" (scratch).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from refgf.oracle.foreign.untrusted import BadFile

LARGEST_FILE = 1 << 24  # bytes
LARGEST_RANKS, LARGEST_STEPS = 1024, 200_000
LARGEST_BUFFER = 1 << 16  # chunks of one buffer
LARGEST_WORK = 1 << 23  # chunks that all steps together read and write
LARGEST_COUNT = 1 << 31
BUFFERS = "ios"
COLLECTIVE = "COMM_COLL_NODE"  # op of a step that stands for messages which the file does not name
Ref = tuple[int, int]  # (rank, number of the step in its list)


@dataclass(frozen=True, slots=True)
class Span:
    """Chunks start .. start + count of one buffer of one rank."""

    rank: int
    buffer: str
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a channel. ordered: False for relaxed signals, which order no memory access."""

    peer: int
    channel: int
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step. lane and number: its place in the file; op: its name in the file.

    follows: steps that it runs behind, without an order of their memory accesses.
    """

    lane: int
    number: int
    op: str
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    receives: tuple[Port, ...] = ()
    sends: tuple[Port, ...] = ()
    after: tuple[Ref, ...] = ()
    chunks: int = 0  # of the message; 0: signals
    follows: tuple[Ref, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong. kind: a key of `verdict.VERDICTS`."""

    kind: str
    rank: int
    place: str
    text: str

    def __str__(self) -> str:
        return f"rank {self.rank}, {self.place}: {self.text}"


@dataclass(frozen=True)
class Plan:
    """All ranks' steps. sizes[r]: chunks of rank r's input, output and scratch.

    outofplace: says of a plan in place that it is used out of place too. shared: thread blocks at
    one end of a channel. notes: what the answer says of how the file was read.
    """

    format: str
    name: str
    collective: str
    inplace: bool
    sizes: tuple[tuple[int, int, int], ...]
    ranks: tuple[tuple[PlanStep, ...], ...]
    found: tuple[Finding, ...] = field(default=())
    outofplace: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)
    shared: tuple[Finding, ...] = field(default=())

    @property
    def unit(self) -> str:
        """What lengths count: a trace of another tool has no chunks."""
        return "chunks" if self.format != "chakra" or any(map(any, self.sizes)) else "bytes"

    def steps(self) -> Iterator[tuple[int, int, PlanStep]]:
        """(rank, index in the rank's list, step)."""
        for rank, steps in enumerate(self.ranks):
            for index, step in enumerate(steps):
                yield rank, index, step

    def place(self, step: PlanStep) -> str:
        """Where the file says it."""
        if self.format == "chakra":
            return f"node {step.lane} ({step.op})"
        return f"tb {step.lane}, step {step.number} ({step.op})"


def require_size(path: str, plan: Plan) -> Plan:
    """The plan again, unless judging it would take too much memory or time."""
    steps = sum(map(len, plan.ranks))
    spans = (span for _, _, step in plan.steps() for span in (*step.reads, *step.writes))
    work = sum(span.count for span in spans)
    largest = max((chunks for sizes in plan.sizes for chunks in sizes), default=0)
    limits = (
        (len(plan.ranks), LARGEST_RANKS, "ranks"),
        (steps, LARGEST_STEPS, "steps"),
        (largest, LARGEST_BUFFER, "chunks in a buffer"),
        (work, LARGEST_WORK, "chunks in all steps"),
    )
    for got, limit, what in limits:
        if got > limit:
            raise BadFile(
                f"{path}: got {got} {what}; wanted at most {limit}; next: judge a smaller schedule"
            )
    if not plan.ranks:
        raise BadFile(f"{path}: got no rank; wanted at least one; next: look at its first lines")
    return plan
