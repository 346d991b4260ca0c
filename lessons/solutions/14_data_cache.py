"""Solutions of lesson 14, checked by the code: python lessons/solutions/14_data_cache.py"""

import collections
import math

import numpy as np

from refgf.papers.datacache import Cache
from refgf.training.data import shuffled
from refgf.papers.datacache.shards import node_batches

N, SLOTS = 400, 200


class FirstCome:
    """Never evicts, like the project's memory level."""

    def __init__(self, slots: int) -> None:
        self.slots, self.samples = slots, collections.OrderedDict()

    def get(self, index: int):
        return self.samples.get(index)

    def put(self, index: int, sample) -> bool:
        if len(self.samples) < self.slots:
            self.samples[index] = np.copy(sample)
        return index in self.samples


class LeastRecentlyUsed(FirstCome):
    """Evicts the sample whose last request is the oldest."""

    def get(self, index: int):
        if index in self.samples:
            self.samples.move_to_end(index)
        return self.samples.get(index)

    def put(self, index: int, sample) -> bool:
        if len(self.samples) == self.slots:
            self.samples.popitem(last=False)
        self.samples[index] = np.copy(sample)
        return True


def hits(level, orders) -> float:
    """The share of memory hits in the last of several epochs."""
    cache = Cache(
        lambda i: i.to_bytes(8, "little"),
        lambda i, data: np.frombuffer(data, np.uint8),
        (8,),
        memory=level,
    )
    for order in orders:
        cache.reset()
        cache(order)
    return cache.hits["memory"] / N


def eviction() -> None:
    """1. Without eviction the hit rate is 50 % in both. With eviction it is 0 % in a fixed order:
    each sample is evicted before its next request, N - 1 requests later. In a changing order, take
    a sample at place y of one epoch and x of the next (as shares). Of all samples, 1 - y (1 - x)
    are requested in between. With room for a share c, the sample is still there if y (1 - x) > 1 -
    c =: t. The probability is 1 - t + t ln t: 15 % for c = 1/2. No sample is requested twice in an
    epoch, so recency is useless.
    """
    changing, same = [shuffled(N, 1, epoch) for epoch in range(6)], [shuffled(N, 1, 0)] * 6
    assert hits(FirstCome(SLOTS), changing) == hits(FirstCome(SLOTS), same) == 0.5
    assert hits(LeastRecentlyUsed(SLOTS), same) == 0
    assert abs(hits(LeastRecentlyUsed(SLOTS), changing) - (0.5 + 0.5 * math.log(0.5))) < 0.05


def two_halves() -> None:
    """2. Half of the shard: disk and memory hold the same samples, those that came first. If a file
    went to disk only when memory has no room for its sample, the two halves would complement each
    other, and nothing would come from the store. The price: the next job finds only its half on
    disk.
    """
    order = shuffled(N, 1, 0).tolist()
    memory, disk, other_disk = set(order[:SLOTS]), set(order[:SLOTS]), set(order[SLOTS:])
    assert len(memory | disk) == N // 2 and len(memory | other_disk) == N


def hit_rate_of_node_0(nodes: int, sharded: bool) -> float:
    """Hit rate in the second epoch, one rank a node, if the node caches all of its first epoch."""
    ranks = [[rank] for rank in range(nodes)]
    if sharded:
        first, second = (
            [step[0] for step in node_batches(shuffled(N, 1, e), ranks, 4 * nodes)] for e in (0, 1)
        )
    else:
        first, second = (
            [shuffled(N, 1, e)[: N // nodes]] for e in (0, 1)
        )  # any samples, equally many
    first, second = (set(np.concatenate(steps).tolist()) for steps in (first, second))
    return len(first & second) / len(second)


def without_shards() -> None:
    """3. A quarter. A node caches the quarter of the data set that it read first, and any quarter
    is requested next. With shards the same quarter is requested again: all hits. Without shards
    each node would need room for the whole data set, 4 times as much.
    """
    assert 0.15 < hit_rate_of_node_0(4, sharded=False) < 0.35
    assert hit_rate_of_node_0(4, sharded=True) == 1.0


if __name__ == "__main__":
    for exercise in (eviction, two_halves, without_shards):
        exercise()
        print(exercise.__doc__.strip() + "\n")
