"""Locks exclude other descriptors of the same file; without POSIX locks, other threads do."""

import os
import threading
from types import SimpleNamespace

import pytest

from refgf.machine import threads
from refgf.papers.datacache import locks


@pytest.fixture(params=["POSIX", "none"])
def file(request, tmp_path, monkeypatch):
    if request.param == "none":
        monkeypatch.setattr(locks, "fcntl", None)
    return tmp_path / "lock"


def descriptor(file):
    return os.open(file, os.O_RDWR | os.O_CREAT)


def test_one_thread_at_a_time(file):
    inside, most = [], []

    def body():
        mine = descriptor(file)
        for _ in range(50):
            with locks.exclusive(mine):
                inside.append(1)
                most.append(len(inside))
                inside.pop()
        os.close(mine)

    workers = [threading.Thread(target=body) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert max(most) == 1 and len(most) == 200


def test_processes_without_locks_are_refused(monkeypatch):
    comm = SimpleNamespace(Get_size=lambda: 2, Get_rank=lambda: 1)
    locks.require(comm)
    monkeypatch.setattr(locks, "fcntl", None)
    with pytest.raises(OSError, match="rank 1: got a system without POSIX locks and 2 processes"):
        locks.require(comm)
    threads.run(2, locks.require)
