"""Threads that share the images of a batch: every image once, errors arrive, sums are complete."""

import threading

import pytest

from refgf.engine.threaded import ThreadedWorkspace


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 64])
def test_share_covers_every_image_once(n, threads):
    lock, seen = threading.Lock(), []

    def work(worker, part):
        with lock:
            seen.append((worker, *range(n)[part]))

    ThreadedWorkspace(threads).share(work, n)
    assert sorted(image for _, *part in seen for image in part) == list(range(n))
    assert len(seen) == min(n, threads) or n > threads
    if n:
        assert min(worker for worker, *_ in seen) == 0  # sum_over_blocks starts its total there


def test_an_error_in_a_worker_arrives():
    def work(worker, part):
        if worker == 1:
            raise RuntimeError("in worker 1")

    with pytest.raises(RuntimeError, match="in worker 1"):
        ThreadedWorkspace(2).share(work, 4)


def test_no_threads():
    with pytest.raises(ValueError, match="ThreadedWorkspace: got 0 threads; wanted .*; next: "):
        ThreadedWorkspace(0)
