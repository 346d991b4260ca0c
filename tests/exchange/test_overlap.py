"""The communication thread: order kept, errors not lost, and the sums of a plain call."""

import threading
import time

import numpy as np
import pytest

from jobs import needs_mpiexec, run_job
from refgf.exchange.overlap import CommunicationThread


def test_calls_run_in_order_in_another_thread():
    seen = []
    thread = CommunicationThread(lambda x: seen.append((x[0], threading.current_thread().name)))
    for i in range(20):
        thread(np.array([i]))
    assert thread.wait() >= 0
    assert seen == [(i, "communication") for i in range(20)]
    thread.close()


def test_the_caller_goes_on_while_the_thread_works():
    release = threading.Event()
    thread = CommunicationThread(lambda x: release.wait(10))
    start_s = time.perf_counter()
    thread(np.zeros(1))
    assert time.perf_counter() - start_s < 5  # a call that waited would take the 10 s
    release.set()
    thread.wait()
    thread.close()


def test_wait_waits():
    done = []
    thread = CommunicationThread(lambda x: (time.sleep(0.05), done.append(1)))
    thread(np.zeros(1))
    assert thread.wait() >= 0.05 and done == [1]
    assert thread.wait() == 0  # nothing was queued since
    thread.close()


def test_other_work_takes_its_turn():
    done, x = [], np.zeros(1)
    thread = CommunicationThread(lambda x: done.append("sum"))
    thread.run(lambda x: done.append("carry"), x)
    thread(x)
    thread.run(lambda x: done.append(x), x)
    thread.wait()
    thread.close()
    assert done[:2] == ["carry", "sum"] and done[2] is x


def test_an_error_reaches_the_waiting_thread(monkeypatch):
    hooked = []
    monkeypatch.setattr(threading, "excepthook", hooked.append)

    def broken(x):
        raise KeyError("link")

    thread = CommunicationThread(broken)
    thread(np.zeros(1))
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
CommunicationThread(lambda x: None).close()
print("fine")
"""
    ended = run_job(2, program, timeout=20, env={"MPI4PY_RC_THREAD_LEVEL": level})
    if level == "multiple":
        assert ended.code == 0 and ended.stdout.count("fine") == 2, ended.text
    else:
        assert ended.code == 1 and "wanted multiple, as two threads call it; next: unset" in ended.stderr, ended.text
