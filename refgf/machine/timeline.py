"""Records what each rank computes, packs, sends and waits for, and shows all ranks on one clock.

    timeline = Timeline()
    with timeline.span("compute", "FORWARD"): ...
    ranks = gather(comm, timeline)              # on every rank: [{lane: [Event, ...]} of each rank]
    Path("trace.json").write_text(json.dumps(chrome_trace(ranks)))      # open it in ui.perfetto.dev

Ranks on different machines have different clocks. `clock_offset` measures the difference to the
clock of rank 0, which answers a message with its clock, read about halfway through the round trip.
The error is at most half the round trip. Of several round trips the fastest is used.

Names are Horovod's where the concepts agree (MEMCPY_IN_FUSION_BUFFER: packing, MPI_ALLREDUCE,
WAIT_FOR_DATA). In the trace a rank is a process. A lane is a thread of it, because events of one
lane must not overlap.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy

from refgf.comm.arguments import Comm

LANES = ("compute", "communication")  # in drawing order


@dataclass(frozen=True)
class Event:
    """An activity from start_s to stop_s on this rank's clock (time.perf_counter)."""

    name: str
    start_s: float
    stop_s: float
    bytes: int = 0  # sent; 0 for computation


class Timeline:
    """The events of one rank by lane. Several threads may use it, each with its own lane."""

    def __init__(self) -> None:
        self.lanes: dict[str, list[Event]] = {}  # events in order of their ends

    def add(self, lane: str, name: str, start_s: float, stop_s: float, nbytes: int = 0) -> None:
        """Add an event that has ended; times on time.perf_counter's clock."""
        self.lanes.setdefault(lane, []).append(Event(name, start_s, stop_s, nbytes))

    @contextlib.contextmanager
    def span(self, lane: str, name: str, nbytes: int = 0) -> Iterator[None]:
        """Record the block of a `with` statement as an event, even if it raises."""
        start_s = time.perf_counter()
        try:
            yield
        finally:
            self.add(lane, name, start_s, time.perf_counter(), nbytes)

    def watched(
        self,
        allreduce: Callable,
        lane: str = "communication",
        name: str = "MPI_ALLREDUCE",
        itemsize: int | None = None,
    ) -> Callable:
        """The same Allreduce; each call adds an event. itemsize: bytes an element has when sent."""

        def call(x) -> None:
            with self.span(lane, name, x.size * (itemsize or x.itemsize)):
                allreduce(x)

        return call

    def clear(self) -> None:
        """Remove all events."""
        self.lanes.clear()


def clock_offset(comm: Comm, rounds: int = 20) -> float:
    """Seconds to add to this rank's time.perf_counter() to get rank 0's. Collective.

    Cost: 2 * rounds messages of 8 bytes between rank 0 and each other rank, one rank at a time.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    if rank == 0:
        for other in range(1, size):
            _send_clock(comm, other, rounds)
        return 0.0
    return _measure_offset(comm, rounds)


def _send_clock(comm: Comm, other: int, rounds: int) -> None:
    clock = numpy.empty(1)
    for _ in range(rounds):
        comm.Recv(clock, other)
        clock[0] = time.perf_counter()
        comm.Send(clock, other)


def _measure_offset(comm: Comm, rounds: int) -> float:
    clock, found = numpy.empty(1), []
    for _ in range(rounds):
        start_s = time.perf_counter()
        comm.Send(clock, 0)
        comm.Recv(clock, 0)
        stop_s = time.perf_counter()
        found.append((stop_s - start_s, float(clock[0]) - (start_s + stop_s) / 2))
    return min(found)[1]  # of the shortest round trip


def gather(comm: Comm, timeline: Timeline) -> list[dict[str, list[Event]]]:
    """All ranks' events on rank 0's clock, which is 0 at the first event: [{lane: events}, ...].

    Collective. Every rank gets the result.
    """
    offset_s = clock_offset(comm)
    own = {lane: _shift(events, offset_s) for lane, events in timeline.lanes.items()}
    ranks = comm.allgather(own)
    starts = [event.start_s for lanes in ranks for events in lanes.values() for event in events]
    first_s = min(starts, default=0.0)
    return [{lane: _shift(events, -first_s) for lane, events in lanes.items()} for lanes in ranks]


def _shift(events: list[Event], seconds: float) -> list[Event]:
    return [Event(e.name, e.start_s + seconds, e.stop_s + seconds, e.bytes) for e in events]


def chrome_trace(ranks: list[dict[str, list[Event]]]) -> dict[str, Any]:
    """The result of `gather` as Chrome Trace JSON (complete events "X", microseconds)."""
    events = []
    for rank, lanes in enumerate(ranks):
        events.append(_metadata("process_name", rank, 0, {"name": f"rank {rank}"}))
        events.append(_metadata("process_sort_index", rank, 0, {"sort_index": rank}))
        order = [lane for lane in LANES if lane in lanes] + sorted(set(lanes) - set(LANES))
        for thread, lane in enumerate(order):
            events.append(_metadata("thread_name", rank, thread, {"name": lane}))
            events += [_complete_event(event, rank, thread) for event in lanes[lane]]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _metadata(name: str, rank: int, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": rank, "tid": thread, "args": args}


def _complete_event(event: Event, rank: int, thread: int) -> dict[str, Any]:
    args = {"bytes": event.bytes}
    times = {"ts": 1e6 * event.start_s, "dur": 1e6 * (event.stop_s - event.start_s)}
    return {"ph": "X", "name": event.name, "pid": rank, "tid": thread, **times, "args": args}
