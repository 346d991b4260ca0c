"""Assigns samples to nodes, so that a node's cache holds all that its ranks read.

With `batches` of refgf/training/data.py any rank may get any sample in any epoch, so a node's cache
would hold samples that other nodes read next. With shards a node always reads the same samples, in
another order each epoch:

    p = 4 ranks, nodes [0, 1] and [2, 3], 10 samples     sample i is of the node of rank i mod p

        sample   0 1 2 3 4 5 6 7 8 9
        node     0 0 1 1 0 0 1 1 0 0

Image trees are sorted by class; this round-robin assignment gives every node some of every class.
The drawback: batches are no longer drawn from all samples alike. Each batch has a fixed part from
every shard.
"""

from collections.abc import Iterator

import numpy as np

from refgf.arguments import checked
from refgf.comm.slices import slices
from refgf.training.data import Dataset, shuffled, steps_per_epoch


@checked
def node_shards(n: int, nodes: list[list[int]]) -> list[np.ndarray]:
    """The samples of each node, ascending int64: a partition of 0..n-1. nodes: topology.nodes."""
    node_of = _node_of_rank(nodes)
    owner = node_of[np.arange(n) % len(node_of)]  # (n,)
    return [np.flatnonzero(owner == node) for node in range(len(nodes))]


@checked
def node_batches(
    order: np.ndarray, nodes: list[list[int]], batch_size: int
) -> list[list[np.ndarray]]:
    """[step][rank] -> samples, for one epoch in this order, a permutation of all n samples.

    A node takes its samples in this order: after step s it has taken

        floor(len(shard) min((s+1) batch_size, n) / n)

    of them. Its ranks divide those of a step by comm/slices.py. With one node these are the batches
    of training/data.py; with m nodes the size of a batch may differ by up to m samples.
    """
    n, size = len(order), sum(map(len, nodes))
    owner = _node_of_rank(nodes)[order % size]
    steps = [[None] * size for _ in range(steps_per_epoch(n, batch_size))]
    for node, ranks in enumerate(nodes):
        shard = order[owner == node]
        for s, step in enumerate(steps):
            start, stop = (len(shard) * min(t * batch_size, n) // n for t in (s, s + 1))
            for rank, own in zip(ranks, slices(stop - start, len(ranks))):
                step[rank] = shard[start:stop][own]
    return steps


def shard_batches(
    dataset: Dataset, batch_size: int, epoch: int, seed: int, rank: int, nodes: list[list[int]]
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """One epoch for one rank, like `batches` of training/data.py, from its node's samples only.

    (images, labels, global_batch) per step. Every rank yields the same number of steps; in some a
    rank may have N = 0 images.
    """
    size = sum(map(len, nodes))
    if not 0 <= rank < size or not size <= batch_size or not size <= dataset.size:
        raise ValueError(
            f"shard_batches on rank {rank}: got a global batch of {batch_size} and {dataset.size} "
            f"samples; wanted a rank below {size}, and one sample a rank in both; next: fewer ranks"
        )
    for step in node_batches(shuffled(dataset.size, seed, epoch), nodes, batch_size):
        images, labels = dataset.load(step[rank])
        yield images, labels, sum(map(len, step))


def _node_of_rank(nodes: list[list[int]]) -> np.ndarray:
    """int64 (p,). ValueError unless every rank is on one node, and no node is empty."""
    ranks = [rank for node in nodes for rank in node]
    if sorted(ranks) != list(range(len(ranks))) or not all(nodes):
        raise ValueError(
            f"shards: got nodes {nodes}; wanted each rank 0, 1, ... on one node; "
            "next: topology.nodes(comm)"
        )
    node_of = np.empty(len(ranks), np.int64)
    for node, members in enumerate(nodes):
        node_of[members] = node
    return node_of
