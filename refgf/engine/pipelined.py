"""Run a schedule with several messages in flight: one is sent while another is added or cast.

`execute` takes one step at a time: the link idles while a rank adds, and the processor idles while
bytes are sent. `pipelined` cuts every message into segments, and hands MPI the next segments before
the first has arrived:

                   execute                                   pipelined, 3 segments a message
    link           |  step 0  |      |  step 1  |      |     | 0a | 0b | 0c | 1a | 1b | 1c |
    processor                 | add  |          | add  |          | +  | +  | +  | +  | +  | +  |

The schedule and the arithmetic on every element are the same, so the bits are those of `execute`.
Two rules give the order:

    send       waits for the arrivals that its elements depend on
    arrival    is written or added once no message in flight still reads those elements

Cost per rank: the bytes of the schedule, in the sum over its messages of
max(1, ceil(bytes / segment_bytes)) messages (segment_bytes cut to whole elements). Scratch: `depth`
segments of each length in use. If `wire` differs from the array's type, as many again plus one, and
the finished arrivals (about two slices), which are forwarded without another cast. Arrays on a GPU
are run step by step.

The first arrival and the last addition cannot overlap, so short segments shorten them; long
segments cost fewer latencies. By default a segment is an eighth of its message, at least 128 KiB
and at most 2 MiB.

Source: segmented, pipelined rings are common practice (Open MPI's segmented ring, NCCL's chunks).
"""

import functools
from collections import deque
from collections.abc import Callable
from itertools import zip_longest

import numpy as np
from numpy.typing import DTypeLike

from refgf.comm import ring
from refgf.comm.arguments import Comm, rank_and_size, require_flat, wire_type
from refgf.comm.schedule import (
    LOCAL_OPERATIONS,
    NOTHING,
    Algorithm,
    Schedule,
    Step,
    apply,
    execute,
    local,
)
from refgf.comm.slices import length
from refgf.device import Allreduce, is_device
from refgf.engine.exact import exact
from refgf.engine.half import cast

SEGMENTS, SHORTEST_BYTES, LONGEST_BYTES = 8, 1 << 17, 1 << 21  # of a message
DEPTH = 4


def pipelined(
    comm: Comm,
    algorithm: Algorithm,
    wire: DTypeLike | None = None,
    segment_bytes: int | None = None,
    depth: int = DEPTH,
) -> Allreduce:
    """Bind an algorithm to a communicator, as `collective` does; up to `depth` arrivals in flight.

    segment_bytes    the same on all ranks; None: by the length of the message, as above

    Raises ValueError for a schedule that buffers messages (`direct`): its sum cannot begin early.
    """
    rank, size = rank_and_size(comm, "pipelined")
    if (segment_bytes is not None and segment_bytes < 1) or depth < 1:
        raise ValueError(
            f"pipelined on rank {rank}: got segments of {segment_bytes} bytes, depth {depth}; "
            "wanted both > 0; next: leave them out"
        )
    scratch, name = {}, f"pipelined {algorithm.__name__}"
    comm, wire = exact(comm), wire_type(wire, name, rank)

    @functools.lru_cache(maxsize=4096)
    def segments(n: int, itemsize: int) -> Schedule:
        return segmented(
            algorithm(rank, size, n), lambda k: segment_elements(k, itemsize, segment_bytes)
        )

    def allreduce(x) -> None:
        require_flat(x, name, rank)
        if is_device(x):
            execute(comm, algorithm(rank, size, x.size), x, wire, scratch)
            return
        flight = Flight(comm, x, wire or x.dtype, depth, scratch)
        with np.errstate(over="ignore", invalid="ignore"):  # too large for the wire type is inf
            for step in segments(x.size, flight.wire.itemsize):
                flight.post(step)
            flight.finish()

    return allreduce


def segment_elements(message: int, itemsize: int, segment_bytes: int | None = None) -> int:
    """Elements of a segment of a message of `message` elements. Both ends compute the same."""
    by_length = min(max(-(-message // SEGMENTS) * itemsize, SHORTEST_BYTES), LONGEST_BYTES)
    return max(1, (segment_bytes or by_length) // itemsize)


def segmented(schedule: Schedule, elements: Callable[[int], int]) -> Schedule:
    """The same schedule in segments of elements(length of the message); empty messages stay.

    A slice that is finished (rounded) right after its arrival is finished segment by segment.
    """
    steps = []  # each a list of its segments, each a list of steps
    for step in schedule:
        if step.op in ("buffer", "reduce"):
            raise ValueError(
                "pipelined: got a schedule that buffers messages to add them later; wanted one "
                "that adds or copies on arrival; next: use collective(...)"
            )
        segments = [[segment] for segment in _segments(step, elements)]
        last = steps[-1] if steps else None
        finishes = step.op == "finish" and last is not None and last[0][0].op != "finish"
        if finishes and _arrived(last) == step.receive:
            steps[-1] = [before + after for before, after in zip(steps[-1], segments)]
        else:
            steps.append(segments)
    return [step for segments in steps for segment in segments for step in segment]


def _segments(step: Step, elements: Callable[[int], int]) -> list[Step]:
    if step.op in LOCAL_OPERATIONS:
        return [local(step.op, part) for part in _parts(step.receive, elements)]
    ends = (step.send_to, step.send), (step.receive_from, step.receive)
    sends, receives = (
        [] if partner is None else [(partner, part) for part in _parts(whole, elements)]
        for partner, whole in ends
    )
    pairs = zip_longest(sends, receives, fillvalue=(None, NOTHING))
    return [Step(*send, *receive, step.op) for send, receive in pairs]


def _parts(part: slice, elements: Callable[[int], int]) -> list[slice]:
    step = elements(length(part))
    starts = range(part.start, part.stop, step) or [part.start]
    return [slice(start, min(start + step, part.stop)) for start in starts]


def _arrived(segments: list[list[Step]]) -> slice | None:
    """The slice that these segments of a step receive; None unless every segment receives."""
    steps = [segment[0] for segment in segments]
    if any(step.receive_from is None for step in steps):
        return None
    return slice(steps[0].receive.start, steps[-1].receive.stop)


class Flight:
    """The messages of one rank that are in flight, for one array x (n,)."""

    def __init__(
        self, comm: Comm, x: np.ndarray, wire: np.dtype, depth: int, scratch: dict
    ) -> None:
        self.comm, self.x, self.wire, self.depth = comm, x, wire, depth
        self.arriving = deque()  # (step, request or None if local, memory), oldest first
        self.leaving = (
            deque()
        )  # (slice of x that it reads, request, its buffer or None), oldest first
        self._spare = scratch.setdefault(wire, [])  # buffers that no message uses
        self._as_wire = {}  # (start, stop): these elements of x in the wire type

    def post(self, step: Step) -> None:
        """Start the messages of this step as soon as its elements are complete."""
        while self.arriving and (len(self.arriving) >= self.depth or self._awaits(step)):
            self.land()
        if step.op in LOCAL_OPERATIONS:
            self.arriving.append((step, None, None))
            return
        if step.receive_from is not None:
            into = self._room(step)
            self.arriving.append((step, self.comm.Irecv(into, step.receive_from), into))
        if step.send_to is not None:
            self._send(step)

    def land(self) -> None:
        """Wait for the oldest arrival and apply its step."""
        step, request, into = self.arriving.popleft()
        if request is not None:
            request.Wait()
        if self._in_place(step):
            return
        self._release(step.receive)
        for start, stop in [key for key in self._as_wire if overlap(slice(*key), step.receive)]:
            self._give_back(self._as_wire.pop((start, stop)))  # they are about to change
        if self.wire != self.x.dtype and step.op in ("finish", "copy"):
            self._round(step.receive, into)
        else:
            apply(step, self.x, into, {}, self.wire)
            self._give_back(into)

    def _round(self, part: slice, arrived: np.ndarray | None) -> None:
        """x[part] <- what arrived, or itself rounded; the message is kept to be forwarded."""
        if arrived is None:
            arrived = self._take(length(part))
            cast(self.x[part], arrived)
        cast(arrived, self.x[part])
        self._as_wire[part.start, part.stop] = arrived

    def finish(self) -> None:
        while self.arriving:
            self.land()
        while self.leaving:
            self._leave()
        while self._as_wire:
            self._give_back(self._as_wire.popitem()[1])

    def _leave(self) -> None:
        """Wait for the oldest outgoing message."""
        _, request, buffer = self.leaving.popleft()
        request.Wait()
        self._give_back(buffer)

    def _awaits(self, step: Step) -> bool:
        """Does this step read or write elements of an arrival in flight?"""
        return any(
            overlap(earlier.receive, step.send) or overlap(earlier.receive, step.receive)
            for earlier, _, _ in self.arriving
        )

    def _in_place(self, step: Step) -> bool:
        return step.op == "copy" and self.wire == self.x.dtype

    def _room(self, step: Step) -> np.ndarray:
        """Memory into which the message of this step may be received."""
        if self._in_place(step):
            self._release(step.receive)
            return self.x[step.receive]
        return self._take(length(step.receive))

    def _send(self, step: Step) -> None:
        if self.wire == self.x.dtype:
            self.leaving.append((step.send, self.comm.Isend(self.x[step.send], step.send_to), None))
            return
        while len(self.leaving) > self.depth:
            self._leave()
        outgoing = self._as_wire.pop((step.send.start, step.send.stop), None)
        if outgoing is None:
            outgoing = self._take(length(step.send))
            cast(self.x[step.send], outgoing)
        self.leaving.append((NOTHING, self.comm.Isend(outgoing, step.send_to), outgoing))

    def _release(self, part: slice) -> None:
        """Wait until no message in flight reads these elements."""
        while any(overlap(part, read) for read, _, _ in self.leaving):
            self._leave()

    def _take(self, n: int) -> np.ndarray:
        """(n,) of the wire type, reused if possible: new memory costs a page fault every 4 KiB."""
        for i, buffer in enumerate(self._spare):
            if buffer.size >= n > 0:
                return self._spare.pop(i)[:n]
        return np.empty(n, self.wire)[:]

    def _give_back(self, taken: np.ndarray | None) -> None:
        if taken is not None and taken.size:
            self._spare.append(taken.base)


def overlap(a: slice, b: slice) -> bool:
    """Do the two slices have an element in common?"""
    return max(a.start, b.start) < min(a.stop, b.stop)


# The ring's bits, but it casts and adds while it sends. Segments are long because each one takes
# the core from a rank that computes. Four are in flight because a sleeping rank may post the next
# one some milliseconds late. (In float16 a segment has the elements from which fused.py is used.)
pipelined_ring_allreduce = functools.partial(
    pipelined, algorithm=ring.allreduce, segment_bytes=2**20, depth=4
)
