"""Lesson 14: the data cache - is it the network, or the disk?

    mpiexec -n 8 python lessons/14_data_cache.py
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- \
        python lessons/14_data_cache.py
    options: --predict "3 times", -v (all tables), --data PATH, --slow-store 200mbit,5ms,
             --ranks-per-node K (treat K ranks as a node), --full, --quick, --plot, ...

QUESTION    A step waits for its images as it waits for its gradients. The data set lies on a slow
            store, and every epoch reads all of it again. What must a node cache, where, and how
            much, so that only the first epoch is slow?
IDEA        Each node reads only its own part of the data set, its shard. Three levels serve it:
            decoded samples in memory that the node's ranks share, files on the node's disk, and the
            slow store. The first epoch fills the cache while it trains: `shards` and `hits` below,
            for real in refgf/papers/datacache (Shi et al. 2021) (drawing: lessons/drawings/14.svg).

                sample -> memory of the node -> disk of the node -> slow store
                          decoded, fastest      a file, decode      a file, decode, slowest

PREDICTION  n samples on p ranks. A sample from level l costs a rank c_l seconds, decoding included.
            The share h_l of the samples comes from level l:

                time of an epoch = n/p (h_memory c_memory + h_disk c_disk + h_store c_store)

            The first epoch has h_store = 1. From the second epoch h_memory =
            min(1, limit / bytes of the shard), because every sample is requested once an epoch, in
            a changing order, and nothing is evicted.

            Naive is to read all from the store again. By hand: 800 samples on a rank, at 10 ms
            each, are 8 s in every epoch. Memory (0.1 ms) for a quarter of them and a disk (1 ms)
            for the others make it 0.02 + 0.6 = 0.62 s. Without that disk it is 0.02 + 6 = 6.02 s:
            the misses decide.

            A training step that takes t seconds waits for its images: without a thread that loads
            ahead it takes t + load, with one the larger of both, where both can run at once.

Before you run it, write down: memory holds half of the shard, and there is no disk. How many times
as fast as without a cache is the second epoch? And with nine tenths?

This is strong scaling: all ranks share one data set. The slow store is emulated; several nodes
measure their epochs again from another store, the folder of rank 0's node. After this lesson you
can predict an epoch from shares and costs, and say why misses dominate (Amdahl) and when a cache
gains nothing.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/14_data_cache.py)
    1. Let memory evict the least recently used sample when it is full. It has room for half of the
       shard. What is the hit rate in an order that changes every epoch, and in a fixed order?
    2. Memory and disk have room for half of the shard each. How much comes from the slow store in
       the second epoch? What would have to change so that nothing does?
    3. Remove the shards: all nodes draw from the whole data set. What is the hit rate on 4 nodes,
       each with room for a quarter of the data set?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/14.md)
    a. "Half of the data in memory gives half of the gain." -v: "How much memory?", in seconds and
       as a factor.
    b. "A cache always helps." --slow-store 10gbit,10us: the slow store is fast then.
    c. "Each rank needs a copy, so a cache costs p times the memory." --ranks-per-node 4 -v, then 1.
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import contextlib

import numpy as np

import kit
from lab.cache import epochs, levels, node_memory, oracle, picture, training
from lab.cache.claims import REVEAL
from refgf.papers.datacache import LEVELS

# ---- the idea, for all ranks in one process ----


def shards(n: int, nodes: list[list[int]]) -> list[np.ndarray]:
    """nodes: the ranks of each node. -> its samples: sample i is of the node of rank i mod p."""
    rank = np.arange(n) % sum(map(len, nodes))  # (n,)
    return [np.flatnonzero(np.isin(rank, ranks)) for ranks in nodes]


def hits(orders: list[np.ndarray], memory: int, disk: int) -> np.ndarray:
    """orders[epoch]: a node's samples, each once. -> (epochs, 3): from memory, disk and store.

    memory, disk: how many samples have room there. Nothing is evicted.
    """
    n, counts = 1 + max((order.max(initial=-1) for order in orders), default=-1), []
    in_memory, on_disk = np.zeros((2, n), bool)
    for order in orders:
        rest = order[~in_memory[order]]  # a miss in memory ...
        misses = rest[~on_disk[rest]]  # ... and on the disk: read from the slow store
        counts.append((order.size - rest.size, rest.size - misses.size, misses.size))
        on_disk[misses[: disk - on_disk.sum()]] = True  # first come, first cached
        in_memory[rest[: memory - in_memory.sum()]] = True
    return np.array(counts, int).reshape(-1, 3)


# ---- one epoch ----


def load(run: kit.Run, data, steps: list[np.ndarray]) -> None:
    """Load this rank's images of these steps. Ends on all ranks together.

    Where ranks share cores, some finish loading before others begin.
    """
    for step in steps:
        data.load(step)  # images, labels: a training step would follow here
    run.plain.Barrier()


def predicted_s(n: int, p: int, shares: dict, cost_s: dict) -> float:
    """Seconds of an epoch. shares, cost_s: {"memory", "disk", "store"}"""
    return n / p * sum(shares[level] * cost_s[level] for level in LEVELS)


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    with contextlib.ExitStack() as stack:
        place = levels.prepare(run, stack)
        oracle.check(run, place)
        bench = epochs.CacheBench(run, place, load, predicted_s)
        yield bench.measure() | {"nodes": place.nodes, "samples": place.data.size}
        yield {"memory": node_memory.measure(run, place)}
        yield {"training": training.compare(run, place)}
        run.plain.Barrier()  # the serving rank receives no more requests


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL)
    levels.arguments(lesson)
    lesson.main(measure, picture.draw)
