"""Shuffling and shards: every sample exactly once, on every number of ranks."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refgf.training.data import Dataset, batches, shuffled, steps_per_epoch
from tests.support.datasets import numbered


def epoch(batches, n, batch, size, **options):
    """[per rank: [(labels, global_batch) per step]] of one epoch."""
    per_rank = []
    for rank in range(size):
        steps = list(batches(numbered(range(n)), batch, 3, 7, rank, size, **options))
        assert all(len(images) == len(labels) for images, labels, _ in steps)
        per_rank.append([(labels, total) for _, labels, total in steps])
    return per_rank


def assert_every_sample_once(per_rank, n):
    assert len({len(steps) for steps in per_rank}) == 1, "ranks take different numbers of steps"
    seen = []
    for shares in zip(*per_rank):
        counts = [len(labels) for labels, _ in shares]
        totals = {total for _, total in shares}
        assert totals == {sum(counts)}, "global_batch is not the sum over ranks"
        assert max(counts) - min(counts) <= 1 and counts == sorted(counts, reverse=True)
        seen += [label for labels, _ in shares for label in labels]
    assert sorted(seen) == list(range(n)), "a sample is lost or doubled"


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 70))
def test_every_sample_is_given_once(n, size, more):
    size = min(size, n)
    assert_every_sample_once(epoch(batches, n, size + more, size), n)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_ranks_together_see_what_one_rank_sees(size):
    one = epoch(batches, 53, 12, 1)[0]
    for step, shares in enumerate(zip(*epoch(batches, 53, 12, size))):
        assert np.concatenate([labels for labels, _ in shares]).tolist() == one[step][0].tolist()
        assert shares[0][1] == one[step][1]


def test_a_rank_without_samples_in_the_last_batch():
    images, labels, global_batch = list(batches(numbered(range(10)), 8, 0, 0, rank=2, size=3))[-1]
    assert images.shape == (0, 1, 1, 1) and images.dtype == np.float32
    assert labels.shape == (0,) and labels.dtype == np.int64
    assert global_batch == 2


def test_drop_last_leaves_out_the_short_batch():
    per_rank = epoch(batches, 20, 8, 3, drop_last=True)
    assert [total for _, total in per_rank[0]] == [8, 8]
    assert steps_per_epoch(20, 8, drop_last=True) == 2
    assert steps_per_epoch(20, 8) == 3 and steps_per_epoch(16, 8) == 2


@pytest.mark.parametrize("start", [0, 1, 3, 7])
def test_a_later_start_continues_the_epoch(start):
    whole, rest = epoch(batches, 53, 8, 3), epoch(batches, 53, 8, 3, start=start)
    for a, b in zip(whole, rest):
        assert [labels.tolist() for labels, _ in a[start:]] == [labels.tolist() for labels, _ in b]


def test_the_iterator_does_not_hold_its_last_batch():
    """Many iterators, each stopped after one batch, must not keep the whole set in memory."""
    stream = batches(numbered(range(10)), 5, 0, 0, 0, 1)
    images, labels, _ = next(stream)
    unshared = np.zeros(1)
    assert sys.getrefcount(images) == sys.getrefcount(labels) == sys.getrefcount(unshared)


def test_shuffling_depends_on_seed_and_epoch_only():
    assert sorted(shuffled(1000, 3, 4)) == list(range(1000))
    orders = {tuple(shuffled(50, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    # frozen: a run resumed with another NumPy must read the same order
    assert shuffled(8, 1, 2).tolist() == FROZEN_ORDER


FROZEN_ORDER = [5, 6, 3, 2, 1, 0, 4, 7]


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(rank=0, size=9), "9 ranks for 8 samples"),
        (dict(rank=3, size=3), "on rank 3: got size=3; wanted 0 <= rank < size"),
        (dict(batch_size=2), "got batch_size=2; wanted global batch >= 3"),
        (dict(batch_size=0), "got batch_size=0; wanted global batch >= 3"),
        (dict(batch_size=9, drop_last=True), "smaller batch_size"),
        (dict(start=4), "start=4"),
        (dict(epoch=-1), "epoch=-1"),
    ],
)
def test_refused_arguments(options, message):
    arguments = dict(batch_size=3, epoch=0, seed=0, rank=0, size=3) | options
    with pytest.raises(ValueError, match=message):  # at the call, not at the first step
        batches(numbered(range(8)), **arguments)


@pytest.mark.parametrize("channels", [1, 3])
def test_load_normalises(channels):
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 256, (5, 7, 7, channels), np.uint8)
    mean, std = (0.4, 0.5, 0.6)[:channels], (0.2, 0.25, 0.3)[:channels]
    dataset = Dataset(
        lambda i: samples[i], np.array([2, 0, 1, 1, 0]), ("a", "b", "c"), 7, channels, mean, std
    )
    images, labels = dataset.load(np.array([4, 0, 0]))
    exact = (samples[[4, 0, 0]] / 255 - np.array(mean)) / np.array(std)
    # scale, shift, product and sum are rounded to float32 once; no result exceeds (1 + mean) / std
    assert np.abs(images - exact).max() <= 4 * 2.0**-24 * (1 + max(mean)) / min(std)
    assert images.dtype == np.float32 and images.shape == (3, 7, 7, channels)
    assert labels.tolist() == [0, 2, 2] and labels.dtype == np.int64
    assert dataset.size == 5 and dataset.num_classes == 3
