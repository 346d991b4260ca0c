"""Sleeping messages: the bits, messages and bytes of others, and little processor time."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from refgf.comm import ring
from refgf.comm.replay import replay
from refgf.comm.schedule import collective
from refgf.engine import sleeping as module
from refgf.engine.pipelined import pipelined
from refgf.engine.sleeping import SleepingComm, sleeping
from refgf.machine.trace import TracedComm
from refgf.oracle.definitions import ring_traffic
from tests.support.comm_cases import order_sensitive, same_bits, sizes_of
from tests.support.jobs import needs_mpiexec, run_job


def test_a_ring_is_the_same_ring(on_ranks):
    def body(comm):
        p, rank = comm.Get_size(), comm.Get_rank()
        traced = TracedComm(comm)
        for allreduce in (
            bind(sleeping(traced).Dup(), ring.allreduce) for bind in (collective, pipelined)
        ):
            for n in sizes_of(p):
                traced.reset()
                xs = order_sensitive(p, n, np.float32)
                x = xs[rank].copy()
                allreduce(x)
                assert same_bits(x, replay([ring.allreduce(r, p, n) for r in range(p)], xs)[rank])
                messages, elements = ring_traffic(n, p, rank)
                assert (traced.messages, traced.bytes) == (messages, 4 * elements)

    on_ranks(body)


def test_halves_of_a_message(on_ranks):
    def body(comm):
        p, rank, comm = comm.Get_size(), comm.Get_rank(), sleeping(comm)
        x = np.full(5, rank, np.float32)
        if rank > 0:
            comm.Recv(x, rank - 1)
            x += 1
        if rank < p - 1:
            comm.Send(x, rank + 1)
        assert (x == rank).all()

    on_ranks(body)


def test_long_messages_in_segments(on_ranks, monkeypatch):
    """In both directions, of all lengths around a segment, also where one side is longer."""
    monkeypatch.setattr(module, "SEGMENT_BYTES", 16)  # 4 elements

    def body(comm):
        p, rank, comm = comm.Get_size(), comm.Get_rank(), sleeping(comm.Dup())
        for n in (0, 3, 4, 5, 13):
            sizes = [(n + 5 * r) % 14 for r in range(p)]  # the message that rank r sends
            mine, right, left = np.full(sizes[rank], rank, np.float32), (rank + 1) % p, rank - 1
            arrived = np.full(sizes[left], -1, np.float32)
            comm.Sendrecv(mine, right, 3, arrived, left % p, 3)
            assert (arrived == left % p).all()

    on_ranks(body)


@pytest.mark.parametrize("n, count", [(0, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_segments_cover_the_array(monkeypatch, n, count):
    monkeypatch.setattr(module, "SEGMENT_BYTES", 16)
    x = np.arange(n, dtype=np.float32)
    found = module.segments(x)
    assert len(found) == count and np.array_equal(np.concatenate(found), x)
    assert module.segments(None) == [None] and module.segments(b"12345678901234567") == [
        b"12345678901234567"
    ]


class Request:
    """Has arrived at the fifth poll."""

    def __init__(self):
        self.asked = 0

    def Test(self):
        self.asked += 1
        return self.asked == 5


class Comm:
    def __init__(self):
        self.requests = []

    def Isend(self, *arguments):
        self.requests.append(Request())
        return self.requests[-1]

    Irecv = Isend


@pytest.mark.parametrize("call, count", [("Send", 1), ("Recv", 1), ("Sendrecv", 2)])
def test_nothing_returns_early_and_every_poll_but_the_last_is_followed_by_a_sleep(
    monkeypatch, call, count
):
    naps, below = [], Comm()
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", SimpleNamespace(BYTE=None))  # it looks there
    wanted = [module.SLEEP_S, *[module.LONG_SLEEP_S] * 3]
    monkeypatch.setattr(module.time, "sleep", naps.append)
    arguments = (None, 1, 0, None, 1, 0) if call == "Sendrecv" else (None, 1)
    getattr(SleepingComm(below), call)(*arguments)
    assert [request.asked for request in below.requests] == [5] * count and naps == wanted * count


def test_those_that_sleep_anyway_are_left_alone():
    class Threads:
        def Get_rank(self):
            return 0

        def Get_size(self):
            return 1

    comm = Threads()
    assert sleeping(comm) is comm
    assert sleeping(TracedComm(comm))._comm is comm


WAITING = """
import refgf.launch, time
import numpy as np
from mpi4py import MPI
from refgf.engine.sleeping import sleeping
comm, x = MPI.COMM_WORLD, np.zeros(3)
for wrap in (sleeping, lambda comm: comm):
    comm.Barrier()
    if comm.rank == 0:
        time.sleep(1.0)
        comm.Send(x, 1)
    else:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        wrap(comm).Recv(x, 0)
        print("share", (time.process_time() - cpu_s) / (time.perf_counter() - wall_s), flush=True)
"""


@needs_mpiexec
def test_a_sleeping_rank_leaves_the_core_to_others():
    job = run_job(2, WAITING)
    assert job.code == 0, job.text
    asleep, asking = (float(line.split()[1]) for line in job.stdout.splitlines())
    assert asleep < asking / 2, (asleep, asking)
