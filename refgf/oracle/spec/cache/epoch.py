"""Lesson 14 without a statement: the time of an epoch, and how much memory must hold for it."""

import numpy as np

from refgf.oracle.spec.exercise import Arguments, Exercise

ROUNDINGS = 1e-12  # the operations may be in another order: a few roundings of 1e-16
PARTLY, WHOLE = "memory holds a part of the shard", "memory has room to spare"


def epoch_seconds(
    n: int,
    p: int,
    nodes: int,
    sample_bytes: int,
    memory_bytes: int,
    memory_s: float,
    store_s: float,
) -> tuple[float, float]:
    """Seconds of the first epoch, and of each later one."""
    share = min(1, memory_bytes / (n / nodes * sample_bytes))
    return n / p * store_s, n / p * (share * memory_s + (1 - share) * store_s)


def cluster(random: np.random.Generator, low: float, high: float) -> list[Arguments]:
    """2 to 8 nodes of 2 or 4 ranks; memory holds low .. high times the shard of a node."""
    nodes, ranks = int(random.integers(2, 9)), int(random.choice([2, 4]))
    shard = 100 * int(random.integers(5, 50))
    memory_bytes = int(random.uniform(low, high) * shard * 12_000)
    return [(shard * nodes, nodes * ranks, nodes, 12_000, memory_bytes, 0.0005, 0.008)]


def partly(random: np.random.Generator) -> list[Arguments]:
    return [(1000, 4, 2, 100, 25_000, 0.01, 0.05), *cluster(random, 0.4, 0.95)]


def whole(random: np.random.Generator) -> list[Arguments]:
    return [(1000, 4, 2, 100, 50_000, 0.01, 0.05), *cluster(random, 1.1, 1.9)]


EPOCH_14 = Exercise("14.3", epoch_seconds, relative=ROUNDINGS)
EPOCH_14.part(PARTLY, 3, partly)
EPOCH_14.part(WHOLE, 1, whole)
EPOCH_14.part(
    "one rank without memory",
    1,
    lambda random: [(n, 1, 1, 100, 0, 0.01, 0.05) for n in (500, int(random.integers(9, 9999)))],
)
EPOCH_14.given("a node caches its own shard, not the whole data set", nodes=lambda nodes: 1)


@EPOCH_14.mistake(
    "the ranks of a node share its memory, and its shard is n over the nodes, not over p"
)
def shard_of_a_rank(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    return epoch_seconds(n, p, p, sample_bytes, memory_bytes, memory_s, store_s)


@EPOCH_14.mistake("memory cannot hold more than the shard: the share is 1 at most")
def more_than_everything(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    share = memory_bytes / (n / nodes * sample_bytes)
    return n / p * store_s, n / p * (share * memory_s + (1 - share) * store_s)


@EPOCH_14.mistake("all ranks load at the same time: each loads n/p samples")
def one_rank_loads_all(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    times = epoch_seconds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s)
    return [p * seconds for seconds in times]


@EPOCH_14.mistake("the ranks of a node load at the same time, too: n/p samples each, not n/nodes")
def divided_by_nodes(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    times = epoch_seconds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s)
    return [p / nodes * seconds for seconds in times]


@EPOCH_14.mistake("in the first epoch nothing is cached: all samples come from the store")
def no_slow_epoch(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    return [epoch_seconds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s)[1]] * 2


@EPOCH_14.mistake("you average speeds; times add up, so most of an epoch goes into the misses")
def mean_of_speeds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    share = min(1, memory_bytes / (n / nodes * sample_bytes))
    return n / p * store_s, n / p / (share / memory_s + (1 - share) / store_s)


@EPOCH_14.mistake("you have exchanged hits and misses")
def shares_exchanged(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    share = min(1, memory_bytes / (n / nodes * sample_bytes))
    return n / p * store_s, n / p * (share * store_s + (1 - share) * memory_s)


# ---- how much to cache ----


def share_needed(speedup: float, memory_s: float, store_s: float) -> float | None:
    """The share of a shard that memory must hold, or None if no share is enough."""
    share = (1 - 1 / speedup) / (1 - memory_s / store_s)
    return share if share <= 1 else None


def possible(random: np.random.Generator) -> list[Arguments]:
    fastest = float(random.uniform(5, 50))
    speedup = float(random.uniform(1.5, 0.8 * fastest))
    return [(2.0, 0.01, 0.05), (8.0, 0.001, 0.02), (speedup, 0.05 / fastest, 0.05)]


def limits(random: np.random.Generator) -> list[Arguments]:
    """Memory is 4 times as fast, exactly."""
    both = 0.0625, random.integers(1, 9999).item() / 2**16
    return [(speedup, memory_s, 4 * memory_s) for memory_s in both for speedup in (1.0, 4.0)]


def never(random: np.random.Generator) -> list[Arguments]:
    return [(6.0, 0.01, 0.05), (float(random.uniform(30, 90)), 0.001, 0.02)]


SHARE_14 = Exercise("14.4", share_needed, relative=ROUNDINGS)
SHARE_14.part("a part of the shard", 2, possible)
SHARE_14.part("as fast as the store, as fast as memory", 1, limits)
SHARE_14.part("faster than memory", 1, never)


@SHARE_14.mistake("you forget the time of the hits: memory takes time, too")
def memory_takes_no_time(speedup, memory_s, store_s):
    return 1 - 1 / speedup


@SHARE_14.mistake(
    "speed does not grow in proportion to the share: half of the shard is not half-way"
)
def in_proportion(speedup, memory_s, store_s):
    share = (speedup - 1) / (store_s / memory_s - 1)
    return share if share <= 1 else None


@SHARE_14.mistake("you divide speeds; write down the time of an epoch and solve it for the share")
def part_of_the_fastest(speedup, memory_s, store_s):
    share = speedup / (store_s / memory_s)
    return share if share <= 1 else None


@SHARE_14.mistake("a share above 1 does not exist: return None")
def more_than_all(speedup, memory_s, store_s):
    return (1 - 1 / speedup) / (1 - memory_s / store_s)


@SHARE_14.mistake("you return the share of the misses; wanted that of the hits")
def share_of_the_misses(speedup, memory_s, store_s):
    share = share_needed(speedup, memory_s, store_s)
    return None if share is None else 1 - share


@SHARE_14.mistake("you return percent; wanted a share of 1")
def in_percent(speedup, memory_s, store_s):
    share = share_needed(speedup, memory_s, store_s)
    return None if share is None else 100 * share
