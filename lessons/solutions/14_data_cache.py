"""Solutions of lesson 14, each checked by the code below it: python lessons/solutions/14_data_cache.py"""

import collections
import math

import numpy as np

from refgf.papers.datacache import Cache
from refgf.training.data import shuffled
from refgf.papers.datacache.shards import node_batches

N, SLOTS = 400, 200


class FirstCome:
    """As the project's memory level: what is kept stays."""

    def __init__(self, slots: int) -> None:
        self.slots, self.kept = slots, collections.OrderedDict()

    def get(self, index: int):
        return self.kept.get(index)

    def put(self, index: int, sample) -> bool:
        if len(self.kept) < self.slots:
            self.kept[index] = np.copy(sample)
        return index in self.kept


class LeastRecentlyUsed(FirstCome):
    """Throws out what nobody has asked for the longest."""

    def get(self, index: int):
        if index in self.kept:
            self.kept.move_to_end(index)
        return self.kept.get(index)

    def put(self, index: int, sample) -> bool:
        if len(self.kept) == self.slots:
            self.kept.popitem(last=False)
        self.kept[index] = np.copy(sample)
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


def throwing_out() -> None:
    """1. What stays gives 50 % in both. Throwing out gives 0 % where the order stays: each sample has been thrown out when its
    turn comes, N - 1 others later. Where the order changes, a sample at place y of one epoch and x of the next (as shares)
    has seen 1 - y (1 - x) of all pass in between; with room for c it is still there if y (1 - x) > 1 - c =: t, of which the
    probability is 1 - t + t ln t: 15 % for c = 1/2. In an epoch nothing is asked for twice; the recently used is of no use.
    """
    changing, same = [shuffled(N, 1, epoch) for epoch in range(6)], [shuffled(N, 1, 0)] * 6
    assert hits(FirstCome(SLOTS), changing) == hits(FirstCome(SLOTS), same) == 0.5
    assert hits(LeastRecentlyUsed(SLOTS), same) == 0
    assert abs(hits(LeastRecentlyUsed(SLOTS), changing) - (0.5 + 0.5 * math.log(0.5))) < 0.05


def two_halves() -> None:
    """2. Half: disk and memory keep the same samples, those that came first. If a file went to disk only when memory has no
    room for its sample, the two halves would complement each other, and nothing would come from the store. The price: the
    next job finds only its half on disk.
    """
    order = shuffled(N, 1, 0).tolist()
    memory, disk, other_disk = set(order[:SLOTS]), set(order[:SLOTS]), set(order[SLOTS:])
    assert len(memory | disk) == N // 2 and len(memory | other_disk) == N


def kept_and_asked(nodes: int, sharded: bool) -> float:
    """Hits of node 0 in the second epoch, one rank a node, when it could keep all that it saw in the first."""
    ranks = [[rank] for rank in range(nodes)]
    if sharded:
        first, second = (
            [step[0] for step in node_batches(shuffled(N, 1, e), ranks, 4 * nodes)] for e in (0, 1)
        )
    else:
        first, second = ([shuffled(N, 1, e)[: N // nodes]] for e in (0, 1))  # any samples, as many
    first, second = (set(np.concatenate(steps).tolist()) for steps in (first, second))
    return len(first & second) / len(second)


def without_shards() -> None:
    """3. A quarter. A node keeps the quarter of the data set that it saw first, and is asked for any quarter next. With shards
    it is asked for the same one: all hits. Without them each node would need room for the whole data set, 4 times as much.
    """
    assert 0.15 < kept_and_asked(4, sharded=False) < 0.35
    assert kept_and_asked(4, sharded=True) == 1.0


if __name__ == "__main__":
    for exercise in (throwing_out, two_halves, without_shards):
        exercise()
        print(exercise.__doc__.strip() + "\n")
