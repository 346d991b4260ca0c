"""K1 to K4: which samples a node owns, and which level serves them.

nodes: the ranks of each node, [[0, 1], [2, 3]].
"""

from refgf.oracle.spec.hierarchy import Nodes
from refgf.oracle.spec.ring import slice_bounds


def node_shards(n: int, nodes: Nodes) -> list[list[int]]:
    """K1: sample i belongs to the node of rank i mod p. -> the samples of each node, ascending"""
    p = sum(map(len, nodes))
    return [[i for i in range(n) if i % p in ranks] for ranks in nodes]


def node_batches(order: list[int], nodes: Nodes, batch_size: int) -> list[list[list[int]]]:
    """K2: each node takes its own samples in the order of the epoch.

    Up to step s a node takes its share of (s + 1) batch_size of all n samples, rounded down. Its
    ranks divide what a step takes into slices (R1). order: a permutation.
    -> [step][rank] -> samples
    """
    n, steps = len(order), []
    for first in range(0, n, batch_size):
        step = [None] * sum(map(len, nodes))
        for ranks, shard in zip(nodes, node_shards(n, nodes)):
            start, stop = (len(shard) * min(taken, n) // n for taken in (first, first + batch_size))
            samples = [i for i in order if i in shard][start:stop]
            for rank, (a, b) in zip(ranks, slice_bounds(len(samples), len(ranks))):
                step[rank] = samples[a:b]
        steps.append(step)
    return steps


def fits(used: int, nbytes: int, limit: int) -> bool:
    """K3: a level stores whatever does not exceed its limit, and evicts nothing."""
    return used + nbytes <= limit


def cache_levels(
    requests: list[int],
    file_bytes: list[int],
    sample_bytes: int,
    disk_limit: int,
    memory_limit: int,
) -> list[int]:
    """K4: memory is asked first, the disk second, the store last.

    The disk stores files that come from the store, memory stores samples from either. file_bytes:
    what each file costs the disk. -> 0 (memory), 1 (disk) or 2 (store) per request
    """
    memory, disk, levels = set(), set(), []
    for i in requests:
        levels.append(0 if i in memory else 1 if i in disk else 2)
        if levels[-1] == 2 and fits(sum(file_bytes[j] for j in disk), file_bytes[i], disk_limit):
            disk.add(i)
        if levels[-1] > 0 and fits(sample_bytes * len(memory), sample_bytes, memory_limit):
            memory.add(i)
    return levels
