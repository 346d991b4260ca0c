"""A collective is data: the list of steps that one rank takes.

An algorithm is a function (rank, size, n) -> list of `Step`. Everything else reads that list:

    execute(comm, schedule, x)   runs one rank's schedule on a communicator
    replay(schedules, xs)        runs all ranks' schedules in this process: the exact bits, without MPI
    check(schedules)             every send has its receive, and nobody waits for ever
    collective(comm, algorithm)  an `Allreduce`: a callable that sums a flat array over all ranks, in place

`wire` is the type in which numbers travel (default: the array's own; float16 halves the bytes, lesson 05). Sums are
formed in the array's type; every message is rounded to the wire type when it leaves, and `finish` rounds the finished
slice on the rank that owns it, so that all ranks end with the same bits.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from refgf.comm.slices import length
from refgf.device import Staging
from refgf.engine.half import add, blocks, cast, rounded

NOTHING = slice(0, 0)
MESSAGE_OPERATIONS = ("add", "copy", "keep")
LOCAL_OPERATIONS = ("fold", "finish")
FLOATS = ("float16", "float32", "float64")
DTYPES = frozenset(map(np.dtype, FLOATS))


@dataclass(frozen=True)
class Step:
    """Send x[send] to `send_to` while receiving x[receive] from `receive_from`; either partner may be None.

    op says what happens to the slice `receive`:

        add     x[receive] += what arrived
        copy    x[receive]  = what arrived
        keep    what arrived is put aside under the sender's number (direct.py, to add in rank order later)
        fold    (local) x[receive] = sum in rank order 0..p-1 of what was kept and of the own x[receive]
        finish  (local) x[receive] is rounded to the wire type
    """

    send_to: int | None
    send: slice
    receive_from: int | None
    receive: slice
    op: str


Schedule = list[Step]
Algorithm = Callable[[int, int, int], Schedule]
Allreduce = Callable[[np.ndarray], None]


def local(op: str, part: slice) -> Step:
    """A step without a message."""
    return Step(None, NOTHING, None, part, op)


def send(part: slice, to: int) -> Step:
    """A step that only sends."""
    return Step(to, part, None, NOTHING, "copy")


def receive(part: slice, sender: int, op: str) -> Step:
    """A step that only receives."""
    return Step(None, NOTHING, sender, part, op)


def way_back(schedule: Schedule) -> Schedule:
    """The same messages in opposite direction and order, copied where they arrive: a reduction becomes a broadcast."""
    messages = [step for step in schedule if step.op not in LOCAL_OPERATIONS]
    return [Step(step.receive_from, step.receive, step.send_to, step.send, "copy") for step in reversed(messages)]


def among(ranks: Sequence[int], schedule: Schedule, start: int = 0) -> Schedule:
    """The same steps for some of the ranks and a part of the vector: rank i of the schedule is ranks[i], and element 0 of
    its vector is element `start` of the whole one. So a hierarchy is built from rings inside and between nodes.

    For schedules without `fold`, which reads an order out of the ranks' numbers.
    """
    assert all(step.op != "fold" for step in schedule)

    def moved(part: slice) -> slice:
        return slice(part.start + start, part.stop + start)

    def name(rank: int | None) -> int | None:
        return None if rank is None else ranks[rank]

    return [Step(name(s.send_to), moved(s.send), name(s.receive_from), moved(s.receive), s.op) for s in schedule]


def collective(comm, algorithm: Algorithm, wire=None) -> Allreduce:
    """Bind an algorithm to a communicator. The result sums a flat contiguous array over all ranks, in place."""
    rank, size = comm.Get_rank(), comm.Get_size()
    schedule = functools.lru_cache(maxsize=4096)(functools.partial(algorithm, rank, size))
    name = f"{algorithm.__module__.rsplit('.', 1)[-1]}.{algorithm.__name__}"
    scratch = {}

    def allreduce(x) -> None:
        require_flat(x, name, rank)
        execute(comm, schedule(x.size), x, wire, scratch)

    return allreduce


def require_flat(x, operation: str, rank: int) -> None:
    """Raise ValueError unless x is a flat contiguous writable array of float16, float32 or float64."""
    got = None
    if isinstance(x, np.ndarray) and x.ndim == 1 and x.flags.carray and x.dtype in DTYPES:
        return  # the same as below, in fewer steps
    if getattr(x, "dtype", None) not in DTYPES:
        got, mend = f"{type(x).__name__} of {getattr(x, 'dtype', 'no dtype')}", "convert with x.astype(np.float32)"
    elif x.ndim != 1:
        got, mend = f"shape {x.shape}", "pass x.reshape(-1) of a contiguous array"
    elif not x.flags.c_contiguous:
        got, mend = f"strides {x.strides}", "pass np.ascontiguousarray(x), and copy the result back"
    elif isinstance(x, np.ndarray) and not x.flags.writeable:
        got, mend = "a read-only array", "pass x.copy()"
    if got:
        wanted = "a flat, contiguous, writable array of " + ", ".join(FLOATS)
        raise ValueError(f"{operation} on rank {rank}: got {got}; wanted {wanted}; next: {mend}")


def execute(comm, schedule: Schedule, x, wire=None, scratch: dict | None = None) -> None:
    """Run one rank's schedule on x (n,), in place.

    Beyond x it needs one received slice of scratch (plus one cast slice when `wire` differs from x's type), and what
    `keep` puts aside. Pass the same dict as `scratch` again to reuse the buffers. One message per step with a partner.
    """
    staging = Staging(x, wire or x.dtype, scratch, comm)  # casts, and brings GPU memory to where MPI reaches it
    kept = {}
    with np.errstate(over="ignore", invalid="ignore"):  # a number too large for the wire type travels as inf
        for step in schedule:
            if step.op in LOCAL_OPERATIONS:
                apply(step, x, None, kept, staging.wire)
                continue
            into = None
            if step.receive_from is not None:
                in_place = step.op == "copy" and staging.direct
                into = x[step.receive] if in_place else staging.incoming(length(step.receive), step.op == "keep")
            exchange(comm, step, staging.outgoing(x[step.send]), into)
            if into is not None and not in_place:
                arrived = staging.keep(into) if step.op == "keep" else staging.arrived(into)
                apply(step, x, arrived, kept, staging.wire)


def exchange(comm, step: Step, outgoing, into) -> None:
    """The message of one step: `Sendrecv`, or only one half of it."""
    if step.receive_from is None:
        comm.Send(outgoing, step.send_to)
    elif step.send_to is None:
        comm.Recv(into, step.receive_from)
    else:
        comm.Sendrecv(outgoing, step.send_to, 0, into, step.receive_from, 0)


def apply(step: Step, x, arrived, kept: dict, wire) -> None:
    """What a step does to x once its message is here. The only arithmetic of a collective."""
    part = x[step.receive]
    if step.op == "add":
        add(arrived, part)
    elif step.op == "copy":
        cast(arrived, part)
    elif step.op == "keep":
        kept[step.receive_from] = arrived
    elif step.op == "finish":
        if wire != x.dtype:
            rounded(part, wire, out=part)
    elif step.op == "fold":
        fold(part, kept, wire)
    else:
        raise AssertionError(f"unknown operation {step.op!r}")


def fold(part, kept: dict, wire) -> None:
    """part <- the sum in rank order of what was kept and of the own part, all as they were in the wire type."""
    position = next(i for i in range(len(kept) + 1) if i not in kept)  # kept is from every other rank: the missing one is own
    for block in blocks(part):
        own = part[block].astype(wire)
        terms = [own if rank == position else kept[rank][block] for rank in range(len(kept) + 1)]
        cast(terms[0], part[block])
        for term in terms[1:]:
            add(term, part[block])


def replay(schedules: Sequence[Schedule], xs: Sequence[np.ndarray], wire=None) -> list[np.ndarray]:
    """Run all ranks' schedules in this process on copies of xs, one array per rank; return the results.

    The same arithmetic in the same order as `execute`: the bits are those of a run over MPI.
    """
    xs = [x.copy() for x in xs]
    wire = np.dtype(wire or xs[0].dtype)
    kept = [{} for _ in xs]
    mail = {}  # (sender, receiver) -> messages under way, oldest first
    position = [0] * len(xs)
    sent = [False] * len(xs)
    with np.errstate(over="ignore", invalid="ignore"):
        while any(position[r] < len(schedules[r]) for r in range(len(xs))):
            moved = False
            for rank, schedule in enumerate(schedules):
                if position[rank] == len(schedule):
                    continue
                step = schedule[position[rank]]
                if step.send_to is not None and not sent[rank]:
                    mail.setdefault((rank, step.send_to), []).append(xs[rank][step.send].astype(wire))
                    sent[rank] = moved = True
                if step.receive_from is not None:
                    if not mail.get((step.receive_from, rank)):
                        continue
                    apply(step, xs[rank], mail[step.receive_from, rank].pop(0), kept[rank], wire)
                elif step.op in LOCAL_OPERATIONS:
                    apply(step, xs[rank], None, kept[rank], wire)
                position[rank] += 1
                sent[rank], moved = False, True
            if not moved:
                raise ValueError("replay: nobody can go on; next: check(schedules) names who waits for whom")
    return xs


def check(schedules: Sequence[Schedule]) -> None:
    """Raise ValueError unless every send meets a receive of its length and all ranks finish.

    Sends are taken as blocking until their receiver has arrived (rendezvous), as MPI does for large messages, so
    a schedule that works only thanks to MPI's buffers for small ones is refused.
    """
    size = len(schedules)
    position = [0] * size
    open_ends = [_ends(schedules[r], 0) for r in range(size)]
    moved = True
    while moved:
        moved = False
        for rank in range(size):
            step = _at(schedules[rank], position[rank])
            if step and "send" in open_ends[rank]:
                peer = _at(schedules[step.send_to], position[step.send_to]) if step.send_to < size else None
                if peer and peer.receive_from == rank and "receive" in open_ends[step.send_to]:
                    _require_same_length(rank, step, peer)
                    open_ends[rank].discard("send")
                    open_ends[step.send_to].discard("receive")
                    moved = True
            if step and not open_ends[rank]:
                position[rank] += 1
                open_ends[rank] = _ends(schedules[rank], position[rank])
                moved = True
    stuck = [_waits(r, schedules[r], position[r], open_ends[r]) for r in range(size) if _at(schedules[r], position[r])]
    if stuck:
        raise ValueError(
            "check: these ranks wait for ever: " + "; ".join(stuck) + "; wanted: every send meets its receive even if "
            "sends block; next: pair them in one Sendrecv step, or let odd ranks receive first"
        )


def _at(schedule: Schedule, position: int) -> Step | None:
    return schedule[position] if position < len(schedule) else None


def _ends(schedule: Schedule, position: int) -> set[str]:
    """Which halves of the step at this position still wait for a partner."""
    step = _at(schedule, position)
    ends = set()
    if step and step.send_to is not None:
        ends.add("send")
    if step and step.receive_from is not None:
        ends.add("receive")
    return ends


def _require_same_length(rank: int, step: Step, peer: Step) -> None:
    if length(step.send) != length(peer.receive):
        raise ValueError(
            f"check: rank {rank} sends {length(step.send)} elements to rank {step.send_to}, "
            f"which expects {length(peer.receive)}; next: compare both ranks' slices"
        )


def _waits(rank: int, schedule: Schedule, position: int, ends: set[str]) -> str:
    step = schedule[position]
    told = []
    if "send" in ends:
        told.append(f"to send to {step.send_to}")
    if "receive" in ends:
        told.append(f"to receive from {step.receive_from}")
    return f"rank {rank} at step {position} waits {' and '.join(told)}"
