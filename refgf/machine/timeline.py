"""One timeline of all ranks: what each of them computed, packed, sent and waited for, on one clock.

    timeline = Timeline()
    with timeline.span("compute", "FORWARD"): ...
    everybody = gather(comm, timeline)                 on every rank: a list of Events per lane and rank
    Path("trace.json").write_text(json.dumps(chrome_trace(everybody)))      open it in ui.perfetto.dev

Ranks on different machines have different clocks. `clock_offset` finds what to add to a rank's clock to get rank 0's: a
message goes there and back, and the other clock was read in the middle, so the error is at most half the round trip; of
several the fastest counts.

Names are Horovod's where the concepts agree (MEMCPY_IN_FUSION_BUFFER: packing, MPI_ALLREDUCE, WAIT_FOR_DATA), so that
its users find their way; a rank is a process and a lane is a thread of it, as events of one lane must not overlap.
"""

import contextlib
import time

import numpy

from refgf.comm.trace import Event

LANES = ("compute", "communication", "messages")  # in the order in which they are drawn


class Timeline:
    """The events of one rank by lane; safe to use from several threads, one lane each."""

    def __init__(self) -> None:
        self.lanes = {}  # name -> list of Event, in order of their ends

    def add(self, lane: str, name: str, start_s: float, stop_s: float, nbytes: int = 0) -> None:
        """An event that has ended; times on time.perf_counter's clock."""
        self.lanes.setdefault(lane, []).append(Event(name, start_s, stop_s, None, nbytes))

    @contextlib.contextmanager
    def span(self, lane: str, name: str, nbytes: int = 0):
        start_s = time.perf_counter()
        try:
            yield
        finally:
            self.add(lane, name, start_s, time.perf_counter(), nbytes)

    def watched(self, allreduce, lane: str = "communication", name: str = "MPI_ALLREDUCE", itemsize: int | None = None):
        """The same Allreduce, each call an event of this timeline. itemsize: bytes a number takes on the wire."""

        def call(x) -> None:
            with self.span(lane, name, x.size * (itemsize or x.itemsize)):
                allreduce(x)

        return call

    def clear(self) -> None:
        self.lanes.clear()


def clock_offset(comm, rounds: int = 20) -> float:
    """Seconds to add to this rank's time.perf_counter() to get rank 0's. Collective.

    Rank 0 talks to one rank after the other: 2 * rounds messages of 8 bytes with each.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    if rank == 0:
        for other in range(1, size):
            _answer(comm, other, rounds)
        return 0.0
    return _ask(comm, rounds)


def _answer(comm, other: int, rounds: int) -> None:
    clock = numpy.empty(1)
    for _ in range(rounds):
        comm.Recv(clock, other)
        clock[0] = time.perf_counter()
        comm.Send(clock, other)


def _ask(comm, rounds: int) -> float:
    clock, best = numpy.empty(1), None
    for _ in range(rounds):
        asked_s = time.perf_counter()
        comm.Send(clock, 0)
        comm.Recv(clock, 0)
        answered_s = time.perf_counter()
        found = answered_s - asked_s, float(clock[0]) - (asked_s + answered_s) / 2
        best = min(best or found, found)  # the shortest round trip says most
    return best[1]


def gather(comm, timeline: Timeline) -> list[dict[str, list[Event]]]:
    """All ranks' events on rank 0's clock, which starts with the first of them: [{lane: events} of rank 0, ...].

    Collective. The result is on every rank.
    """
    offset_s = clock_offset(comm)
    everybody = comm.allgather({lane: _moved(events, offset_s) for lane, events in timeline.lanes.items()})
    starts = [event.start_s for lanes in everybody for events in lanes.values() for event in events]
    first_s = min(starts, default=0.0)
    return [{lane: _moved(events, -first_s) for lane, events in lanes.items()} for lanes in everybody]


def _moved(events: list[Event], seconds: float) -> list[Event]:
    return [Event(e.name, e.start_s + seconds, e.stop_s + seconds, e.peer, e.bytes) for e in events]


def chrome_trace(everybody: list[dict[str, list[Event]]]) -> dict:
    """What `gather` returned as Chrome Trace JSON (complete events "X", microseconds); ui.perfetto.dev opens it."""
    events = []
    for rank, lanes in enumerate(everybody):
        events.append(_named("process_name", rank, 0, f"rank {rank}"))
        events.append({"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}})
        order = [lane for lane in LANES if lane in lanes] + sorted(set(lanes) - set(LANES))
        for thread, lane in enumerate(order):
            events.append(_named("thread_name", rank, thread, lane))
            events += [_complete(event, rank, thread) for event in lanes[lane]]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(what: str, rank: int, thread: int, name: str) -> dict:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": {"name": name}}


def _complete(event: Event, rank: int, thread: int) -> dict:
    more = {"bytes": event.bytes} | ({} if event.peer is None else {"peer": event.peer})
    times = {"ts": 1e6 * event.start_s, "dur": 1e6 * (event.stop_s - event.start_s)}
    return {"ph": "X", "name": event.name, "pid": rank, "tid": thread, **times, "args": more}
