"""Which samples a node keeps to itself, and what its ranks train on in each step.

With `batches` of data.py any rank may be given any sample in any epoch, so a node's cache would hold what other nodes ask
for next. With shards a node always sees the same samples, each epoch in another order:

    p = 4 ranks, nodes [0, 1] and [2, 3], 10 samples          sample i belongs to the node of rank i mod p

        sample   0 1 2 3 4 5 6 7 8 9
        node     0 0 1 1 0 0 1 1 0 0

Image trees are sorted by class; dealt out like cards every node gets its share of every class. What it costs: batches
are no longer drawn from all samples alike, each has its part from every shard.
"""

from collections.abc import Iterator

import numpy as np

from refgf.comm.slices import slices
from refgf.training.data import Dataset, shuffled, steps_per_epoch


def node_shards(n: int, nodes: list[list[int]]) -> list[np.ndarray]:
    """The samples of each node, ascending int64: disjoint, and all of 0 .. n-1 together. Nodes as in topology.nodes."""
    node_of = _node_of_rank(nodes)
    owner = node_of[np.arange(n) % len(node_of)]  # (n,)
    return [np.flatnonzero(owner == node) for node in range(len(nodes))]


def node_batches(
    order: np.ndarray, nodes: list[list[int]], batch_size: int
) -> list[list[np.ndarray]]:
    """[step][rank] -> samples, for one epoch in the order of `order`, a permutation of all n samples.

    A node takes its samples in the order in which they stand there. After step s it has taken
    floor(len(shard) min((s+1) batch_size, n) / n) of them, and its ranks share those of a step as evenly as
    comm/slices.py says. With one node these are the batches of data.py; with m nodes a batch may be off by m samples.
    """
    n, size = len(order), sum(map(len, nodes))
    owner = _node_of_rank(nodes)[order % size]
    steps = [[None] * size for _ in range(steps_per_epoch(n, batch_size))]
    for node, ranks in enumerate(nodes):
        mine = order[owner == node]
        for s, step in enumerate(steps):
            start, stop = (len(mine) * min(t * batch_size, n) // n for t in (s, s + 1))
            for rank, part in zip(ranks, slices(stop - start, len(ranks))):
                step[rank] = mine[start:stop][part]
    return steps


def shard_batches(
    dataset: Dataset, batch_size: int, epoch: int, seed: int, rank: int, nodes: list[list[int]]
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """One epoch for one rank, as `batches` of data.py, but from the samples of its node only.

    (images, labels, global_batch) per step; every rank yields the same number of steps, some perhaps with N = 0.
    """
    size = sum(map(len, nodes))
    if not 0 <= rank < size or not size <= batch_size or not size <= dataset.size:
        raise ValueError(
            f"shard_batches: got rank {rank}, a global batch of {batch_size} and {dataset.size} samples; wanted "
            f"a rank below {size}, and a batch and samples of at least {size}, one a rank; next: fewer ranks"
        )
    for step in node_batches(shuffled(dataset.size, seed, epoch), nodes, batch_size):
        images, labels = dataset.load(step[rank])
        yield images, labels, sum(map(len, step))


def _node_of_rank(nodes: list[list[int]]) -> np.ndarray:
    """int64 (p,). ValueError unless every rank is on one node, and no node is empty."""
    ranks = [rank for node in nodes for rank in node]
    if sorted(ranks) != list(range(len(ranks))) or not all(nodes):
        raise ValueError(
            f"shards: got nodes {nodes}; wanted each rank 0, 1, ... on one node; next: topology.nodes(comm)"
        )
    node_of = np.empty(len(ranks), np.int64)
    for node, members in enumerate(nodes):
        node_of[members] = node
    return node_of
