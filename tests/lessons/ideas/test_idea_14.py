"""Lesson 14's idea against the definition: the samples of each node, and which level has them."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.oracle.definitions import cache_levels, node_shards

LESSON = gains.module_of(gains.ROOT / "lessons" / "14_data_cache.py")


@pytest.mark.parametrize("n", [0, 1, 2, 10, 31])
@pytest.mark.parametrize("nodes", [[[0]], [[0, 1, 2]], [[0], [1], [2]], [[0, 3], [1], [2, 4]]])
def test_shards(n, nodes):
    assert [shard.tolist() for shard in LESSON.shards(n, nodes)] == node_shards(n, nodes)


@pytest.mark.parametrize("n", [0, 1, 12])
@pytest.mark.parametrize("memory", [0, 1, 6, 12, 20])
@pytest.mark.parametrize("disk", [0, 1, 5, 12, 20])
def test_hits(n, memory, disk):
    rng = np.random.default_rng(n)
    samples = 3 * np.arange(n) + 1  # a shard
    orders = [rng.permutation(samples) for _ in range(4)]
    requests = np.concatenate(orders).tolist()
    levels = cache_levels(requests, [1] * (3 * n + 1), 1, disk, memory)
    wanted = [np.bincount(levels[e * n : (e + 1) * n], minlength=3).tolist() for e in range(4)]
    assert LESSON.hits(orders, memory, disk).tolist() == wanted


def test_no_epochs():
    assert LESSON.hits([], 3, 3).shape == (0, 3)
