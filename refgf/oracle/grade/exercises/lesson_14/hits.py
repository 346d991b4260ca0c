"""Exercise hits(orders, memory, disk)."""

from refgf.oracle import definitions
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part

MEMORY, BOTH = "memory, no disk", "memory and disk"
CHANGING = "every epoch requests other samples"
ENDS = "no room, room for everything, no samples"


def hits(orders, memory, disk):
    requests = [i for order in orders for i in order]
    n = max(requests, default=-1) + 1
    levels = iter(definitions.cache_levels(requests, [1] * n, 1, disk, memory))
    epochs = [[next(levels) for _ in order] for order in orders]
    return [[epoch.count(level) for level in range(3)] for epoch in epochs]


def least_recently_used(orders, memory, disk):
    in_memory, on_disk, found = [], [], []
    for order in orders:
        found.append([0, 0, 0])
        for i in order:
            found[-1][0 if i in in_memory else 1 if i in on_disk else 2] += 1
            for level, room in ((in_memory, memory), (on_disk, disk)):
                level[:] = [*(j for j in level if j != i), i][-room:] if room else []
    return found


def disk_stores_the_rest(orders, memory, disk):
    """A disk that leaves out what memory holds: as if memory were larger by the disk."""
    both = [m for m, _, _ in hits(orders, memory + disk, 0)]
    alone = [m for m, _, _ in hits(orders, memory, 0)]
    return [[m, b - m, len(order) - b] for m, b, order in zip(alone, both, orders)]


def one_sample_too_many(orders, memory, disk):
    return hits(orders, memory + 1, disk + 1)


def disk_first(orders, memory, disk):
    return [[m, d, s] for d, m, s in hits(orders, disk, memory)]


def all_epochs_so_far(orders, memory, disk):
    rows = hits(orders, memory, disk)
    return [[sum(column) for column in zip(*rows[: i + 1])] for i in range(len(rows))]


def requests_of_each_level(orders, memory, disk):
    return [[m + d + s, d + s, s] for m, d, s in hits(orders, memory, disk)]


def empty_in_each_epoch(orders, memory, disk):
    return [hits([order], memory, disk)[0] for order in orders]


def stores_before_it_counts(orders, memory, disk):
    """The second time that a sample is requested it is where the first request has put it."""
    rows = []
    for i in range(len(orders)):
        before = [sample for order in orders[: i + 1] for sample in order]
        rows.append(hits([before, orders[i]], memory, disk)[1])
    return rows


def epochs_of(random, n, count):
    return [random.permutation(n).tolist() for _ in range(count)]


def memory_only(random):
    """In the second case the least recently used samples are not those of the first epoch."""
    n, same = int(random.integers(20, 40)), list(range(12))
    rows = [([same] * 3, 5, 0), ([same, [11, *same[:11]]], 5, 0)]
    return rows + [(epochs_of(random, n, 3), int(random.integers(6, 15)), 0)]


def memory_and_disk(random):
    """The disk has more room than memory, but not for everything; then less."""
    n, memory, more = (int(random.integers(*ends)) for ends in ((30, 40), (5, 10), (5, 10)))
    rows = [([[3, 1, 0, 2, 4, 5]] * 2, 1, 3), ([list(range(12))] * 3, 5, 2)]
    return rows + [(epochs_of(random, n, 3), memory, memory + more)]


def changing(random):
    """As without shards: half of the samples in each epoch."""
    rows = [([[0, 1, 2, 3], [3, 4, 1, 5], [5, 4, 3, 2]], 2, 3)]
    return rows + [([order[:20] for order in epochs_of(random, 40, 4)], 8, 16)]


def ends(random):
    same = list(range(6))
    rows = [([same] * 2, 0, 0), ([same] * 3, 9, 0), ([same] * 2, 0, 9)]
    return [*rows, ([], 3, 3), ([[], []], 2, 2), (epochs_of(random, 8, 2), 0, 9)]


HITS = Exercise(
    "hits",
    hits,
    (
        Part(MEMORY, 2, memory_only),
        Part(BOTH, 2, memory_and_disk),
        Part(CHANGING, 1, changing),
        Part(ENDS, 1, ends),
    ),
    (
        Mistake(
            "your cache evicts the least recently used sample; nothing is ever evicted",
            least_recently_used,
            (MEMORY, BOTH, CHANGING),
        ),
        Mistake(
            "your disk leaves out what memory has room for; it stores every sample that comes "
            "from the store",
            disk_stores_the_rest,
            (BOTH, CHANGING),
        ),
        Mistake(
            "you store one sample more than there is room for: compare with <, not <=",
            one_sample_too_many,
            (MEMORY, BOTH, CHANGING, ENDS),
        ),
        Mistake(
            "you ask the disk before memory; memory is asked first",
            disk_first,
            (BOTH, CHANGING),
        ),
        Mistake(
            "you count all epochs so far; begin with 0 in each epoch",
            all_epochs_so_far,
            (MEMORY, BOTH, CHANGING, ENDS),
        ),
        Mistake(
            "you count the requests that a level gets; wanted those that it serves",
            requests_of_each_level,
            (MEMORY, BOTH, CHANGING, ENDS),
        ),
        Mistake(
            "your cache is empty again in each epoch: create it before the loop",
            empty_in_each_epoch,
            (MEMORY, BOTH, CHANGING, ENDS),
        ),
        Mistake(
            "you store a sample before you look where it was: in the first epoch all come from the "
            "store",
            stores_before_it_counts,
            (MEMORY, BOTH, CHANGING, ENDS),
        ),
    ),
)
