"""Threads as ranks: messages, collectives, and ends without hangs."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from jobs import run_job
from refgf.machine import threads, world


def test_message_is_a_copy():
    def body(comm):
        x = np.full(3, comm.rank, np.float32)
        got = np.empty(3, np.float32)
        comm.Sendrecv(x, (comm.rank + 1) % comm.size, 0, got, (comm.rank - 1) % comm.size, 0)
        x += 100
        comm.Barrier()
        return got[0]

    assert threads.run(5, body) == [4, 0, 1, 2, 3]


def test_messages_do_not_overtake():
    def body(comm):
        if comm.rank == 0:
            requests = [comm.Isend(np.array([i]), 1) for i in range(4)]
            [r.Wait() for r in requests]
            return None
        got = [np.empty(1, int) for _ in range(4)]
        for g in got:
            comm.Recv(g, 0)
        return [int(g[0]) for g in got]

    assert threads.run(2, body)[1] == [0, 1, 2, 3]


def test_collectives():
    def body(comm):
        other = comm.Dup()
        assert other.allgather(comm.rank * 10) == [10 * r for r in range(comm.size)]
        assert comm.bcast("word" if comm.rank == 2 else None, root=2) == "word"
        return comm.allreduce(comm.rank), comm.allreduce(comm.rank, max)

    assert threads.run(4, body) == [(6, 3)] * 4


@pytest.mark.parametrize("size", [1, 3, 5, 8])
def test_split_as_in_mpi(size):
    """Even and odd ranks, each in reverse order. Messages stay inside; leaving ranks leave both."""

    def body(comm):
        half = comm.Split(comm.rank % 2, -comm.rank)
        ranks = [r for r in reversed(range(comm.size)) if r % 2 == comm.rank % 2]
        assert half.allgather(comm.rank) == ranks
        assert half.rank == ranks.index(comm.rank) and half.size == len(ranks)
        own, got = np.array([comm.rank]), np.empty(1, int)
        half.Sendrecv(own, (half.rank + 1) % half.size, 0, got, (half.rank - 1) % half.size, 0)
        assert got[0] == ranks[half.rank - 1]
        half.Dup().Barrier()
        return comm.allreduce(1)

    assert threads.run(size, body) == [size] * size


def test_a_split_communicator_waits_for_a_rank_that_has_returned():
    def body(comm):
        others = comm.Split(comm.rank > 0)
        if comm.rank == 1:
            others.Recv(np.empty(1), 1)

    with pytest.raises(threads.Deadlock, match="rank 1 has already returned"):
        threads.run(3, body)


def test_deadlock_is_explained():
    def body(comm):
        comm.Send(np.ones(2), (comm.rank + 1) % comm.size)

    message = "rank 0 waits to send to rank 1; rank 1 waits to send to rank 2"
    with pytest.raises(threads.Deadlock, match=message):
        threads.run(3, body)


def test_waiting_for_a_rank_that_has_returned():
    def body(comm):
        if comm.rank:
            comm.Recv(np.empty(1), 0)

    with pytest.raises(threads.Deadlock, match="rank 0 has already returned"):
        threads.run(2, body)


def in_this_thread(work):
    work()


def in_another_thread(work):
    """As a communication thread: the rank's own thread waits for it."""
    other = threading.Thread(target=work)
    other.start()
    other.join()


@pytest.mark.parametrize("where", [in_this_thread, in_another_thread])
def test_ranks_that_wait_on_different_communicators(where, monkeypatch):
    monkeypatch.setattr(world, "STILL_S", 0.1)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)

    def body(comm):
        other = comm.Dup()
        if comm.rank == 1:
            comm.Barrier()
        else:
            where(lambda: other.Sendrecv(*two_ends(comm)))
            comm.Barrier()

    def two_ends(comm):
        peer = (comm.rank + 1) % comm.size
        return np.ones(1), peer, 0, np.ones(1), (comm.rank - 1) % comm.size

    with pytest.raises(threads.Deadlock, match="rank 1 waits in Barrier for rank 0, 2"):
        threads.run(3, body)


def test_a_rank_that_works_while_its_other_thread_waits_is_left_alone(monkeypatch):
    """Each rank has a thread that waits, and rank 0 computes for many times STILL_S."""
    monkeypatch.setattr(world, "STILL_S", 0.05)

    def body(comm):
        other, got = comm.Dup(), np.zeros(1)
        if comm.rank == 0:
            waits = threading.Thread(target=lambda: other.Recv(got, 1))
            waits.start()
            end = time.monotonic() + 1
            while time.monotonic() < end:
                sum(range(1000))
            comm.Barrier()
            waits.join()
        else:
            comm.Barrier()
            other.Send(np.ones(1), 0)
        return got[0]

    assert threads.run(2, body) == [1, 0]


@pytest.mark.parametrize("duplicate", [lambda comm: comm.Dup(), lambda comm: comm.Dup().Dup()])
def test_a_communicator_made_after_a_rank_has_returned(duplicate):
    def body(comm):
        if comm.rank == 0:
            while 1 in comm._world._running:
                time.sleep(1e-3)
            duplicate(comm).Barrier()

    message = "rank 0 waits in Barrier for rank 1; rank 1 has already returned"
    with pytest.raises(threads.Deadlock, match=message):
        threads.run(2, body)


def test_a_duplicate_outlives_its_original():
    def body(comm):
        first = comm.Dup()
        second = first.Dup()
        first.Free()
        comm.Barrier()
        return second.allgather(comm.rank)

    assert threads.run(3, body) == [[0, 1, 2]] * 3


def test_freed_communicators_and_their_objects_are_released():
    class Thing:
        pass

    def body(comm):
        for _ in range(20):
            duplicate = comm.Dup()
            held = weakref.ref(duplicate.allgather(Thing())[comm.rank])
            duplicate.Free()
        comm.Barrier()
        gc.collect()
        comm.Barrier()
        return held() is None, len(comm._world._children), len(comm._world._collectives)

    for gone, children, gatherings in threads.run(3, body):
        # the last duplicate and the barrier that other ranks are still leaving may remain
        assert gone and children <= 2 and gatherings <= 1


def test_a_failing_rank_aborts_the_others():
    seen = []

    def body(comm):
        if comm.rank == 1:
            raise KeyError("lost")
        try:
            comm.Barrier()
        except threads.Aborted as error:
            seen.append(str(error))
            raise

    with pytest.raises(KeyError):
        threads.run(3, body)
    assert len(seen) == 2 and "rank 1 failed: KeyError" in seen[0]


@pytest.mark.parametrize(
    "send, room, message", [("f4", 2, "wanted at most the receiver's 2"), ("f8", 3, "got float64")]
)
def test_messages_that_do_not_fit_are_refused(send, room, message):
    def body(comm):
        if comm.rank == 0:
            comm.Send(np.ones(3, send), 1)
        else:
            comm.Recv(np.empty(room, "f4"), 0)

    with pytest.raises((ValueError, threads.Aborted), match=message):
        threads.run(2, body)


@pytest.mark.parametrize("size", [-1, 0, 99_999_999])
def test_no_such_number_of_ranks(size):
    with pytest.raises(ValueError, match=f"got {size} ranks; wanted 1 to 4096; next: run"):
        threads.run(size, lambda comm: None)


def test_a_peer_outside_the_communicator_is_refused():
    with pytest.raises(ValueError, match="got peer 2; wanted a rank from 0 to 1"):
        threads.run(2, lambda comm: comm.Send(np.ones(1), 2))


INTERRUPTED = """
import os, signal, threading, time
from refgf.machine import threads, world

def body(comm):
    while True:  # never communicates, so only the end of the process ends it
        time.sleep(0.01)

signal.signal(signal.SIGINT, signal.default_int_handler)  # the test process may ignore it
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
threads.run(3, body)
"""


def test_an_interrupt_ends_all_ranks():
    ended = run_job(0, INTERRUPTED, timeout=20)
    assert not ended.timed_out and ended.code != 0, ended.text
    assert "KeyboardInterrupt" in ended.stderr, ended.text
