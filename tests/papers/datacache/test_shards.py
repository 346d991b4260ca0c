"""Shards by node: disjoint, complete, each sample once an epoch; one node: `batches` of data.py."""

import dataclasses

import numpy as np
import pytest

from refgf.papers.datacache import shards
from refgf.training.data import Dataset, batches, shuffled

NODES = [
    [[0]],
    [[0, 1]],
    [[0], [1]],
    [[0, 2], [1]],
    [[0, 1], [2, 3]],
    [[3], [0, 1, 4], [2]],
    [[0, 1, 2, 3, 4, 5, 6]],
]


def dataset(n):
    def fetch(indices):
        return indices.astype(np.uint8).reshape(-1, 1, 1, 1)

    return Dataset(fetch, np.arange(n), ("a", "b"), 1, 1, (0.0,), (1.0,))


def check_shards(n, nodes):
    """Round robin by rank."""
    size = sum(map(len, nodes))
    expected = [[] for _ in nodes]
    for i in range(n):
        expected[next(j for j, ranks in enumerate(nodes) if i % size in ranks)].append(i)
    assert [shard.tolist() for shard in shards.node_shards(n, nodes)] == expected


def check_epoch(n, nodes, batch_size, seed=3):
    size = sum(map(len, nodes))
    steps = shards.node_batches(shuffled(n, seed, 1), nodes, batch_size)
    assert len(steps) == -(-n // batch_size)
    for node, shard in zip(nodes, shards.node_shards(n, nodes)):
        seen = [step[rank] for step in steps for rank in node]
        assert sorted(np.concatenate([np.zeros(0, int), *seen]).tolist()) == shard.tolist()
        lengths = [[len(step[rank]) for rank in node] for step in steps]
        assert all(max(step) - min(step) <= 1 for step in lengths)
    totals = [sum(map(len, step)) for step in steps]
    assert all(abs(total - batch_size) <= len(nodes) for total in totals[:-1]) and sum(totals) == n
    assert all(len(step) == size for step in steps)


@pytest.mark.parametrize("nodes", NODES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 23, 100])
def test_shards_and_epochs(n, nodes):
    check_shards(n, nodes)
    for batch_size in (7, 16):
        check_epoch(n, nodes, batch_size)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_one_node_has_the_usual_batches(size):
    data, nodes = dataset(23), [list(range(size))]
    for rank in range(size):
        got = shards.shard_batches(data, 6, 2, 1, rank, nodes)
        wanted = batches(data, 6, 2, 1, rank, size)
        for (images, labels, total), expected in zip(got, wanted, strict=True):
            assert np.array_equal(images, expected[0]) and np.array_equal(labels, expected[1])
            assert total == expected[2]


def test_steps_agree_on_the_global_batch():
    nodes, data = [[0, 1, 3], [2]], dataset(37)
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
            list(shards.shard_batches(dataclasses.replace(dataset(n)), batch, 0, 0, 0, [[0, 1, 2]]))
