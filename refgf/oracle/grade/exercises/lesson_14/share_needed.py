"""Exercise share_needed(speedup, memory_s, store_s)."""

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_14.cases import ROUNDINGS

POSSIBLE, LIMITS = "a part of the shard", "as fast as the store, as fast as memory"
NEVER = "faster than memory"


def share_needed(speedup, memory_s, store_s):
    share = (1 - 1 / speedup) / (1 - memory_s / store_s)
    return share if share <= 1 else None


def memory_takes_no_time(speedup, memory_s, store_s):
    return 1 - 1 / speedup


def in_proportion(speedup, memory_s, store_s):
    share = (speedup - 1) / (store_s / memory_s - 1)
    return share if share <= 1 else None


def part_of_the_fastest(speedup, memory_s, store_s):
    share = speedup / (store_s / memory_s)
    return share if share <= 1 else None


def more_than_all(speedup, memory_s, store_s):
    return (1 - 1 / speedup) / (1 - memory_s / store_s)


def share_of_the_misses(speedup, memory_s, store_s):
    share = share_needed(speedup, memory_s, store_s)
    return None if share is None else 1 - share


def in_percent(speedup, memory_s, store_s):
    share = share_needed(speedup, memory_s, store_s)
    return None if share is None else 100 * share


def possible(random):
    fastest = float(random.uniform(5, 50))
    speedup = float(random.uniform(1.5, 0.8 * fastest))
    return [(2.0, 0.01, 0.05), (8.0, 0.001, 0.02), (speedup, 0.05 / fastest, 0.05)]


def never(random):
    return [(6.0, 0.01, 0.05), (float(random.uniform(30, 90)), 0.001, 0.02)]


def limits(random):
    """Memory is 4 times as fast, exactly."""
    both = 0.0625, random.integers(1, 9999).item() / 2**16
    return [(speedup, memory_s, 4 * memory_s) for memory_s in both for speedup in (1.0, 4.0)]


SHARE = Exercise(
    "share_needed",
    share_needed,
    (
        Part(POSSIBLE, 2, possible),
        Part(LIMITS, 1, limits),
        Part(NEVER, 1, never),
    ),
    (
        Mistake(
            "you forget the time of the hits: memory takes time, too",
            memory_takes_no_time,
            (POSSIBLE, LIMITS, NEVER),
        ),
        Mistake(
            "speed does not grow in proportion to the share: half of the shard is not half-way",
            in_proportion,
            (POSSIBLE,),
        ),
        Mistake(
            "you divide speeds; write down the time of an epoch and solve it for the share",
            part_of_the_fastest,
            (POSSIBLE, LIMITS),
        ),
        Mistake(
            "a share above 1 does not exist: return None",
            more_than_all,
            (NEVER,),
        ),
        Mistake(
            "you return the share of the misses; wanted that of the hits",
            share_of_the_misses,
            (POSSIBLE, LIMITS),
        ),
        Mistake("you return percent; wanted a share of 1", in_percent, (POSSIBLE, LIMITS)),
    ),
    relative=ROUNDINGS,
)
