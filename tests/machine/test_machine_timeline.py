"""The timeline of all ranks: clocks, events, and JSON for a trace viewer."""

import json
import time

import numpy as np
import pytest

from refgf.machine.timeline import Timeline, chrome_trace, clock_offset, gather


def test_spans_nest_and_keep_their_lane():
    timeline = Timeline()
    with timeline.span("compute", "outer"):
        with timeline.span("compute", "inner", 8):
            time.sleep(0.002)
        with timeline.span("communication", "other"):
            pass
    inner, outer = timeline.lanes["compute"]
    assert (inner.name, outer.name, inner.bytes) == ("inner", "outer", 8)
    assert outer.start_s <= inner.start_s <= inner.stop_s - 0.002 <= outer.stop_s
    assert [event.name for event in timeline.lanes["communication"]] == ["other"]


def test_a_span_that_fails_is_recorded():
    timeline = Timeline()
    with pytest.raises(RuntimeError), timeline.span("compute", "fails"):
        raise RuntimeError
    assert timeline.lanes["compute"][0].name == "fails"


def test_clocks_that_differ_are_aligned(on_ranks):
    """The error is at most half a round trip; it is known because the ranks share a clock."""

    def body(comm):
        ahead_s, start_s = 100.0 * comm.Get_rank(), time.perf_counter()
        offset_s = clock_offset(Shifted(comm, ahead_s))
        assert abs(offset_s + ahead_s) <= time.perf_counter() - start_s

    on_ranks(body)


class Shifted:
    """A communicator on a rank whose clock is ahead: rank 0's answers appear to be behind."""

    def __init__(self, comm, ahead_s):
        self._comm, self._ahead_s = comm, ahead_s
        self.Get_rank, self.Get_size, self.Send = comm.Get_rank, comm.Get_size, comm.Send

    def Recv(self, buf, source):
        self._comm.Recv(buf, source)
        buf -= self._ahead_s  # equivalent to reading a clock that is ahead


def test_gathered_events_are_on_one_clock(on_ranks):
    """All ranks pass a barrier inside an event; on one clock the events of all ranks overlap."""

    def body(comm):
        timeline = Timeline()
        time.sleep(0.003 * comm.Get_rank())
        with timeline.span("compute", "around a barrier"):
            comm.Barrier()
        events = [lanes["compute"][0] for lanes in gather(comm, timeline)]
        assert len(events) == comm.Get_size() and min(event.start_s for event in events) == 0
        latest_start, earliest_stop = max(e.start_s for e in events), min(e.stop_s for e in events)
        assert latest_start <= earliest_stop + 0.001  # half a round trip on a busy machine

    on_ranks(body)


def test_chrome_trace(on_ranks):
    def body(comm):
        timeline = Timeline()
        timeline.add("communication", "MPI_ALLREDUCE", 1.0, 1.5, 400)
        timeline.add("compute", "FORWARD", 0.5, 1.25)
        timeline.add("another", "X", 1.0, 1.0)
        trace = json.loads(json.dumps(chrome_trace(gather(comm, timeline))))
        events = trace["traceEvents"]
        for rank in range(comm.Get_size()):
            mine = [e for e in events if e["pid"] == rank]
            lanes = {e["tid"]: e["args"]["name"] for e in mine if e["name"] == "thread_name"}
            assert list(lanes.values()) == ["compute", "communication", "another"]
            complete = {lanes[e["tid"]]: e for e in mine if e["ph"] == "X"}
            assert complete["communication"]["dur"] == pytest.approx(5e5)
            assert complete["communication"]["args"]["bytes"] == 400
            assert complete["compute"]["name"] == "FORWARD"
            assert complete["communication"]["ts"] - complete["compute"]["ts"] == pytest.approx(5e5)
            names = {e["args"]["name"] for e in mine if e["name"] == "process_name"}
            assert names == {f"rank {rank}"}

    on_ranks(body)


def test_events_of_one_lane_do_not_overlap_in_part(on_ranks):
    """A viewer draws the events of a lane as a stack: two events must be nested or disjoint."""

    def body(comm):
        timeline = Timeline()
        watched = timeline.watched(lambda x: time.sleep(0.0005))
        for _ in range(3):
            with timeline.span("compute", "outer"), timeline.span("compute", "inner"):
                watched(np.zeros(3))
        for lane in timeline.lanes.values():
            for a in lane:
                for b in lane:
                    apart = a.stop_s <= b.start_s or b.stop_s <= a.start_s
                    a_in_b = b.start_s <= a.start_s and a.stop_s <= b.stop_s
                    b_in_a = a.start_s <= b.start_s and b.stop_s <= a.stop_s
                    assert apart or a_in_b or b_in_a

    on_ranks(body, sizes=(1,))
