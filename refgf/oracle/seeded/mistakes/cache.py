"""Mistakes in shards, their batches, and cache levels."""

from refgf.oracle.definitions import fits, node_shards, slice_bounds
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("K1", "node_shards", "shards are blocks of neighbours")
def blocks(n, nodes):
    p = sum(map(len, nodes))
    bounds = slice_bounds(n, p)
    return [sorted(i for rank in ranks for i in range(*bounds[rank])) for ranks in nodes]


@mistake(
    "K1",
    "node_shards",
    "assigned round robin to nodes, not to ranks: nodes with more ranks get no more samples",
)
def by_node(n, nodes):
    return [list(range(node, n, len(nodes))) for node in range(len(nodes))]


@mistake("K1", "node_shards", "the n mod p last samples are lost")
def rest_lost(n, nodes):
    p = sum(map(len, nodes))
    return [[i for i in range(n - n % p) if i % p in ranks] for ranks in nodes]


@mistake("K2", "node_batches", "slices of the batch over all ranks: shards are ignored")
def without_shards(order, nodes, batch_size):
    p = sum(map(len, nodes))
    batches = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    return [[batch[a:b] for a, b in slice_bounds(len(batch), p)] for batch in batches]


@mistake(
    "K2",
    "node_batches",
    "each node takes batch_size k / p samples a step, and the remainder is lost",
)
def rest_of_a_shard_lost(order, nodes, batch_size):
    n, p = len(order), sum(map(len, nodes))
    steps = [[None] * p for _ in range(0, n, batch_size)]
    for ranks, shard in zip(nodes, node_shards(n, nodes)):
        mine, each = [i for i in order if i in shard], batch_size * len(ranks) // p
        for s, step in enumerate(steps):
            batch = mine[s * each : (s + 1) * each]
            for rank, (a, b) in zip(ranks, slice_bounds(len(batch), len(ranks))):
                step[rank] = batch[a:b]
    return steps


@mistake("K2", "node_batches", "every epoch has the order of the data set")
def never_shuffled(order, nodes, batch_size):
    n, steps = len(order), []
    for first in range(0, n, batch_size):
        step = [None] * sum(map(len, nodes))
        for ranks, shard in zip(nodes, node_shards(n, nodes)):
            start, stop = (len(shard) * min(taken, n) // n for taken in (first, first + batch_size))
            for rank, (a, b) in zip(ranks, slice_bounds(stop - start, len(ranks))):
                step[rank] = shard[start:stop][a:b]
        steps.append(step)
    return steps


@mistake("K3", "fits", "a sample that fills the limit exactly is not stored")
def below_the_limit(used, nbytes, limit):
    return used + nbytes < limit


@mistake("K3", "fits", "stored as long as there is any room: the last one exceeds the limit")
def any_room(used, nbytes, limit):
    return used < limit


def levels_with(keep_disk, keep_memory):
    """K4 with other rules for what a level stores.

    Both rules are called with the level's samples, the sample, and the level that it came from.
    """

    def levels(requests, file_bytes, sample_bytes, disk_limit, memory_limit):
        memory, disk, found = [], [], []
        for i in requests:
            found.append(0 if i in memory else 1 if i in disk else 2)
            in_memory = fits(sample_bytes * len(memory), sample_bytes, memory_limit)
            on_disk = fits(sum(file_bytes[j] for j in disk), file_bytes[i], disk_limit)
            keep_disk(disk, i, found[-1], on_disk, in_memory)
            keep_memory(memory, i, found[-1], in_memory)
        return found

    return levels


def disk_as_stated(disk, i, level, on_disk, in_memory):
    if level == 2 and on_disk:
        disk.append(i)


def memory_as_stated(memory, i, level, in_memory):
    if level > 0 and in_memory:
        memory.append(i)


def what_memory_has_not(disk, i, level, on_disk, in_memory):
    if level == 2 and on_disk and not in_memory:
        disk.append(i)


def least_recently_used(memory, i, level, in_memory):
    if level == 0:
        memory.remove(i)
        memory.append(i)
    elif in_memory or memory:
        if not in_memory:
            memory.pop(0)
        memory.append(i)


def from_disk_only(memory, i, level, in_memory):
    if level == 1 and in_memory:
        memory.append(i)


mistake("K3", "cache_levels", "the least recently used sample is evicted from memory")(
    levels_with(disk_as_stated, least_recently_used)
)
mistake("K4", "cache_levels", "the disk does not store samples that memory has")(
    levels_with(what_memory_has_not, memory_as_stated)
)
mistake("K4", "cache_levels", "memory takes samples from the disk only, not those from the store")(
    levels_with(disk_as_stated, from_disk_only)
)
