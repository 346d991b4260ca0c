"""Batches of shards by node, which conform (test_oracle_own.py); one node: those of data.py."""

import numpy as np
import pytest

from refgf.papers.datacache import shards
from refgf.training.data import batches, shuffled
from tests.support.datasets import numbered


@pytest.mark.parametrize("size", [1, 3, 5])
def test_one_node_has_the_usual_batches(size):
    data, nodes = numbered(range(23)), [list(range(size))]
    for rank in range(size):
        got = shards.shard_batches(data, 6, 2, 1, rank, nodes)
        wanted = batches(data, 6, 2, 1, rank, size)
        for (images, labels, total), expected in zip(got, wanted, strict=True):
            assert np.array_equal(images, expected[0]) and np.array_equal(labels, expected[1])
            assert total == expected[2]


def test_steps_agree_on_the_global_batch():
    nodes, data = [[0, 1, 3], [2]], numbered(range(37))
    ranks = [list(shards.shard_batches(data, 5, 0, 1, rank, nodes)) for rank in range(4)]
    for step in zip(*ranks, strict=True):
        assert {s[2] for s in step} == {sum(len(s[1]) for s in step)}


def test_epochs_differ_in_order_and_not_in_content():
    orders = [shuffled(40, 1, epoch) for epoch in (0, 1)]
    first, second = (shards.node_batches(order, [[0], [1]], 40)[0] for order in orders)
    assert all(sorted(a) == sorted(b) and not np.array_equal(a, b) for a, b in zip(first, second))


@pytest.mark.parametrize("nodes", [[[0, 1], [1]], [[0], []], [[1]]])
def test_wrong_nodes(nodes):
    with pytest.raises(ValueError, match="shards: got nodes"):
        shards.node_shards(5, nodes)


def test_fewer_samples_than_ranks():
    for n, batch in ((2, 3), (9, 2)):
        with pytest.raises(ValueError, match="next: fewer ranks"):
            list(shards.shard_batches(numbered(range(n)), batch, 0, 0, 0, [[0, 1, 2]]))
