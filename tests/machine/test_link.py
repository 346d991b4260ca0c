"""A communicator that emulates a link. Durations are checked on a fake clock, so they are exact."""

import numpy as np
import pytest

from refgf.comm.ring import allreduce
from refgf.comm.schedule import collective
from refgf.comm.slices import slices
from refgf.machine import link as module
from refgf.machine.link import LinkComm, parse_link, wait_until
from refgf.predict.cost import Link

LINK = Link(alpha_s=1e-3, beta_s_per_byte=1e-6)


class Clock:
    """Replaces the module `time`; sleeping advances it, sleep(0) by one tick."""

    def __init__(self):
        self.now_s = 100.0

    def perf_counter(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds or 1e-6


class Recorder:
    """A communicator of one rank that records when its real messages are sent."""

    def __init__(self, clock):
        self.clock, self.calls = clock, []

    def Get_rank(self):
        return 0

    def Get_size(self):
        return 2

    def Dup(self):
        return Recorder(self.clock)

    def Send(self, buf, dest, tag):
        self.calls.append(("Send", dest, tag, self.clock.now_s))

    def Recv(self, buf, source, tag):
        self.calls.append(("Recv", source, tag, self.clock.now_s))

    def Sendrecv(self, sendbuf, dest, sendtag, recvbuf, source, recvtag):
        self.calls.append(("Sendrecv", dest, sendtag, source, recvtag, self.clock.now_s))


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def bytes_(n):
    return np.zeros(n, np.uint8)


@pytest.mark.parametrize("n", [0, 1, 999, 100_003])
def test_a_send_takes_alpha_and_n_times_beta(clock, n):
    comm = Recorder(clock)
    LinkComm(comm, LINK).Send(bytes_(n), 1, 7)
    name, dest, tag, when_s = comm.calls[0]
    assert (name, dest, tag) == ("Send", 1, 7)
    # the clock moves in ticks of 1 us; 1 ns for the rounding of sums near 100 s
    assert -1e-9 <= when_s - 100.0 - (1e-3 + n * 1e-6) <= 1e-6 + 1e-9


def test_a_send_queues_behind_the_one_before(clock):
    """A message occupies the link for n * beta; its latency follows the wait for the link."""
    comm = Recorder(clock)
    line = LinkComm(comm, LINK)._line
    line._free_s = 100.0 + 0.5  # a duplicate's message occupies the line for another half second
    LinkComm(comm, LINK, line=line).Send(bytes_(1000), 1)
    assert comm.calls[0][-1] == pytest.approx(100.0 + 0.5 + 1e-3 + 1e-3, abs=2e-6)


def test_duplicates_share_the_line(clock):
    comm = LinkComm(Recorder(clock), LINK)
    assert comm.Dup()._line is comm._line


def test_receiving_adds_no_time(clock):
    comm = Recorder(clock)
    LinkComm(comm, LINK).Recv(bytes_(10**6), 1, 3)
    assert comm.calls == [("Recv", 1, 3, 100.0)]


def test_messages_inside_a_node_do_not_wait(clock):
    comm = Recorder(clock)
    linked = LinkComm(comm, LINK, near=[0, 1]).over(lambda inner: inner)
    linked.Send(bytes_(1000), 1)
    assert comm.calls[-1][-1] == 100.0
    linked.Send(bytes_(1000), 2)
    assert comm.calls[-1][-1] == pytest.approx(100.0 + 2e-3, abs=2e-6)


def test_proc_null_is_free(clock):
    comm = Recorder(clock)
    LinkComm(comm, LINK).Sendrecv(bytes_(10**6), -1, 0, bytes_(1), 1, 0)
    assert comm.calls == [("Sendrecv", -1, 0, 1, 0, 100.0)]


def test_wait_until_a_time_that_has_passed_returns_at_once(clock):
    wait_until(99.0)
    assert clock.now_s == 100.0


def test_mpis_own_collectives_are_refused_with_what_to_use(clock):
    message = "got Allreduce; wanted one of Send.*next: use a schedule"
    with pytest.raises(AttributeError, match=message):
        LinkComm(Recorder(clock), LINK).Allreduce(None, bytes_(1))


def ring_on_a_link(comm, n, link):
    """(first sum, expected first sum, seconds, seconds by the model) of one ring allreduce."""
    import time

    slow = LinkComm(comm, link)
    x = np.arange(n, dtype=np.float32) + slow.rank
    slow.Barrier()
    start_s = time.perf_counter()
    collective(slow, allreduce)(x)
    slow.Barrier()
    seconds = time.perf_counter() - start_s
    p = slow.size
    sent = [s.stop - s.start for s in slices(n, p)]
    own = sum(link.message_s(4 * sent[(slow.rank - k) % p]) for k in range(p - 1))
    own += sum(link.message_s(4 * sent[(slow.rank + 1 - k) % p]) for k in range(p - 1))
    return x[:1].tolist(), [float(sum(range(p)))] * min(n, 1), seconds, own


def test_a_ring_on_a_link_takes_at_least_its_model_and_sums_right(on_ranks):
    link = parse_link("80mbit,2ms")
    for n in (0, 7, 10007):
        for results in on_ranks(ring_on_a_link, n, link):
            for got, wanted, seconds, own in results:
                assert seconds >= own  # waits never end early; a busy machine ends them late
                assert got == wanted


def test_a_link_as_text():
    link = parse_link("1gbit,50us")
    assert link == Link(alpha_s=5e-5, beta_s_per_byte=8e-9)
    assert link.message_s(10**6) == pytest.approx(5e-5 + 8e-3)
    with pytest.raises(ValueError, match="wanted a rate and a latency with a comma between"):
        parse_link("1gbit")
    for text in ("", "50us,1gbit", "1gbit,50us,3", "1gbit;50us"):
        with pytest.raises(ValueError, match="next: try"):
            parse_link(text)
