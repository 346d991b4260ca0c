"""The communication thread: order kept, errors not lost, and the sums of a plain call."""

import threading
import time

import numpy as np
import pytest

from refgf.exchange.overlap import AtOnce, CommunicationThread
from tests.support.jobs import needs_mpiexec, run_job


def test_calls_run_in_order_in_another_thread():
    seen = []
    thread = CommunicationThread()

    def note(x):
        seen.append((x[0], threading.current_thread().name))

    for i in range(20):
        thread.run(note, np.array([i]))
    assert thread.wait() >= 0
    assert seen == [(i, "communication") for i in range(20)]
    thread.close()


def test_the_caller_goes_on_while_the_thread_works():
    release = threading.Event()
    thread = CommunicationThread()
    start_s = time.perf_counter()
    thread.run(lambda x: release.wait(10), np.zeros(1))
    assert time.perf_counter() - start_s < 5  # a call that waited would take the 10 s
    release.set()
    thread.wait()
    thread.close()


def test_wait_waits():
    done = []
    thread = CommunicationThread()
    thread.run(lambda x: (time.sleep(0.05), done.append(1)), np.zeros(1))
    assert thread.wait() >= 0.05 and done == [1]
    assert thread.wait() == 0  # nothing was queued since
    thread.close()


def test_the_naive_form_does_the_same_work_in_the_same_order_in_the_caller():
    done = {AtOnce: [], CommunicationThread: []}
    for kind, seen in done.items():
        worker = kind()
        for i in range(5):
            worker.run(lambda x, i=i, seen=seen: seen.append((i, x.sum())), np.full(2, i))
        assert kind is CommunicationThread or len(seen) == 5  # before anybody waits
        worker.wait()
        worker.close()
    assert done[AtOnce] == done[CommunicationThread] == [(i, 2 * i) for i in range(5)]


def test_an_error_reaches_the_waiting_thread(monkeypatch):
    hooked = []
    monkeypatch.setattr(threading, "excepthook", hooked.append)

    def broken(x):
        raise KeyError("link")

    thread = CommunicationThread()
    thread.run(broken, np.zeros(1))
    with pytest.raises(KeyError, match="link"):
        thread.wait()
    thread._thread.join()
    assert hooked[0].exc_type is KeyError  # where refgf.launch aborts the job


@needs_mpiexec
@pytest.mark.parametrize("level", ["single", "funneled", "serialized", "multiple"])
def test_a_second_thread_needs_mpi_for_many(level):
    program = """
import refgf.launch
from mpi4py import MPI
from refgf.exchange.overlap import CommunicationThread
CommunicationThread().close()
print("fine")
"""
    ended = run_job(2, program, timeout=20, env={"MPI4PY_RC_THREAD_LEVEL": level})
    if level == "multiple":
        assert ended.code == 0 and ended.stdout.count("fine") == 2, ended.text
    else:
        assert (
            ended.code == 1
            and "wanted multiple, because two threads call it; next: unset" in ended.stderr
        ), ended.text
