"""Exercise epoch_seconds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s)."""

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_14.cases import ROUNDINGS

PARTLY, WHOLE = "memory holds a part of the shard", "memory has room to spare"
ONE = "one rank without memory"


def epoch_seconds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    share = min(1, memory_bytes / (n / nodes * sample_bytes))
    return n / p * store_s, n / p * (share * memory_s + (1 - share) * store_s)


def whole_data_set(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    return epoch_seconds(n, p, 1, sample_bytes, memory_bytes, memory_s, store_s)


def shard_of_a_rank(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    return epoch_seconds(n, p, p, sample_bytes, memory_bytes, memory_s, store_s)


def more_than_everything(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    share = memory_bytes / (n / nodes * sample_bytes)
    return n / p * store_s, n / p * (share * memory_s + (1 - share) * store_s)


def one_rank_loads_all(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    times = epoch_seconds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s)
    return [p * seconds for seconds in times]


def divided_by_nodes(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    times = epoch_seconds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s)
    return [p / nodes * seconds for seconds in times]


def no_slow_epoch(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    return [epoch_seconds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s)[1]] * 2


def mean_of_speeds(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    share = min(1, memory_bytes / (n / nodes * sample_bytes))
    return n / p * store_s, n / p / (share / memory_s + (1 - share) / store_s)


def shares_exchanged(n, p, nodes, sample_bytes, memory_bytes, memory_s, store_s):
    share = min(1, memory_bytes / (n / nodes * sample_bytes))
    return n / p * store_s, n / p * (share * store_s + (1 - share) * memory_s)


def cluster(random, low, high):
    """2 to 8 nodes of 2 or 4 ranks; memory holds low .. high times the shard of a node."""
    nodes, ranks = int(random.integers(2, 9)), int(random.choice([2, 4]))
    shard = 100 * int(random.integers(5, 50))
    memory_bytes = int(random.uniform(low, high) * shard * 12_000)
    return [(shard * nodes, nodes * ranks, nodes, 12_000, memory_bytes, 0.0005, 0.008)]


def partly(random):
    return [(1000, 4, 2, 100, 25_000, 0.01, 0.05), *cluster(random, 0.4, 0.95)]


def whole(random):
    return [(1000, 4, 2, 100, 50_000, 0.01, 0.05), *cluster(random, 1.1, 1.9)]


EPOCH = Exercise(
    "epoch_seconds",
    epoch_seconds,
    (
        Part(PARTLY, 3, partly),
        Part(WHOLE, 1, whole),
        Part(
            ONE,
            1,
            lambda random: [
                (n, 1, 1, 100, 0, 0.01, 0.05) for n in (500, int(random.integers(9, 9999)))
            ],
        ),
    ),
    (
        Mistake(
            "a node caches its own shard, not the whole data set",
            whole_data_set,
            (PARTLY, WHOLE),
        ),
        Mistake(
            "the ranks of a node share its memory, and its shard is n over the nodes, not over p",
            shard_of_a_rank,
            (PARTLY,),
        ),
        Mistake(
            "memory cannot hold more than the shard: the share is 1 at most",
            more_than_everything,
            (WHOLE,),
        ),
        Mistake(
            "all ranks load at the same time: each loads n/p samples",
            one_rank_loads_all,
            (PARTLY, WHOLE),
        ),
        Mistake(
            "the ranks of a node load at the same time, too: n/p samples each, not n/nodes",
            divided_by_nodes,
            (PARTLY, WHOLE),
        ),
        Mistake(
            "in the first epoch nothing is cached: all samples come from the store",
            no_slow_epoch,
            (PARTLY, WHOLE),
        ),
        Mistake(
            "you average speeds; times add up, so most of an epoch goes into the misses",
            mean_of_speeds,
            (PARTLY,),
        ),
        Mistake(
            "you have exchanged hits and misses",
            shares_exchanged,
            (PARTLY, WHOLE, ONE),
        ),
    ),
    relative=ROUNDINGS,
)
