"""Threads that share the images of a batch: every image once, errors arrive, sums are complete."""

import threading

import numpy as np
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


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("images_per_block", [1, 2, 100])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 9])
def test_sum_over_blocks(n, images_per_block, threads):
    """Integers, so that sums are exact in any order."""
    values = np.random.default_rng(0).integers(-99, 99, (n, 4, 3)).astype(np.float32)
    workspace = ThreadedWorkspace(threads, images_per_block=images_per_block)
    total = np.full((4, 3), np.nan, np.float32)

    def compute(worker, block, out):
        out[...] = values[block].sum(axis=0)

    workspace.sum_over_blocks(compute, n, 1, total)
    np.testing.assert_array_equal(total, values.sum(axis=0))


def test_no_threads():
    with pytest.raises(ValueError, match="ThreadedWorkspace: got 0 threads; wanted .*; next: "):
        ThreadedWorkspace(0)
