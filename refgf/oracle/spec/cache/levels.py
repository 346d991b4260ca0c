"""K3, K4: what a level stores, and which level serves a sample."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, random_source
from refgf.oracle.spec.exercise import Arguments, Exercise
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement


def fits(used: int, nbytes: int, limit: int) -> bool:
    """K3: a level stores whatever does not exceed its limit, bookkeeping included, and evicts
    nothing.

    Source: chosen: each sample is requested once an epoch, so none is worth more than another.
    """
    return used + nbytes <= limit


def cache_levels(
    requests: list[int],
    file_bytes: list[int],
    sample_bytes: int,
    disk_limit: int,
    memory_limit: int,
) -> list[int]:
    """K4: memory is asked first, the disk second, the store last; the disk stores files from the
    store, memory stores samples from either, including those on the disk.

    Source: that there are levels: the abstract of Shi et al. 2021; memory, disk, store: unverified;
    that the disk stores what memory has: chosen, for the next job.

    file_bytes: what each file costs the disk. -> 0 (memory), 1 (disk) or 2 (store) per request
    """
    memory, disk, levels = set[int](), set[int](), list[int]()
    for i in requests:
        levels.append(0 if i in memory else 1 if i in disk else 2)
        if levels[-1] == 2 and fits(sum(file_bytes[j] for j in disk), file_bytes[i], disk_limit):
            disk.add(i)
        if levels[-1] > 0 and fits(sample_bytes * len(memory), sample_bytes, memory_limit):
            memory.add(i)
    return levels


def run_levels(module: Any, case: Case) -> Outputs:
    limits = select(case, "sample_bytes", "disk_limit", "memory_limit").values()
    requests, file_bytes = case["in.requests"].tolist(), case["in.file_bytes"].tolist()
    return {"out.level": np.array(module.cache_levels(requests, file_bytes, *limits), np.int64)}


K3 = Statement("K3", fits)
K4 = Statement("K4", cache_levels)
LEVELS = JudgedFunction(
    cache_levels, "K3 K4", {"level": ("request",)}, "requests file_bytes", run_levels
)


@LEVELS.fresh
def three_epochs(d: Draw) -> Given:
    n = d.integer(1, 20)
    limits = {"disk_limit": d.integer(0, 100 * n), "memory_limit": d.integer(0, 40 * n)}
    requests = np.concatenate([d.rng.permutation(n) for _ in range(3)])
    arrays = {"requests": requests, "file_bytes": d.rng.integers(60, 140, n)}
    return {"sample_bytes": 30, **limits, **arrays}


@LEVELS.golden
def level_cases() -> Cases:
    rng, n = random_source("levels"), 13
    requests = np.concatenate([rng.permutation(n) for _ in range(3)])
    file_bytes = rng.integers(60, 140, n)
    half = int(np.cumsum(file_bytes[requests[:n]])[5])  # six files fill it exactly
    limits = {
        "nothing": (0, 0),
        "memory": (0, 4 * 30),
        "a-byte-less": (half - 1, 4 * 30 - 1),
        "both": (half, 4 * 30),
        "everything": (10**6, 10**6),
        "a-sample-too-large": (half, 29),
    }
    arrays: Given = {"requests": requests, "file_bytes": file_bytes}
    for name, (disk, memory) in limits.items():
        why = f"three epochs, each in another order: {name.replace('-', ' ')}"
        given: Given = {"sample_bytes": 30, "disk_limit": disk, "memory_limit": memory}
        case = LEVELS.case(f"levels-{name}", why, **given, **arrays)
        served = (case["out.level"][2 * n :] == 0).sum() == min(n, memory // 30)
        yield case.shows(served, "from the second epoch on memory serves all that it holds")


@K3.mistake("a sample that fills the limit exactly is not stored")
def below_the_limit(used, nbytes, limit):
    return used + nbytes < limit


@K3.mistake("stored as long as there is any room: the last one exceeds the limit")
def any_room(used, nbytes, limit):
    return used < limit


def levels_with(
    keep_disk: Callable[..., Any], keep_memory: Callable[..., Any]
) -> Callable[..., Any]:
    """K4 with other rules for what a level stores.

    Both rules are called with the level's samples, the sample, and the level that it came from.
    """

    def levels(requests, file_bytes, sample_bytes, disk_limit, memory_limit):
        memory, disk, found = list[int](), list[int](), list[int]()
        for i in requests:
            found.append(0 if i in memory else 1 if i in disk else 2)
            in_memory = fits(sample_bytes * len(memory), sample_bytes, memory_limit)
            on_disk = fits(sum(file_bytes[j] for j in disk), file_bytes[i], disk_limit)
            keep_disk(disk, i, found[-1], on_disk, in_memory)
            keep_memory(memory, i, found[-1], in_memory)
        return found

    return levels


def disk_as_stated(disk: list[int], i: int, level: int, on_disk: bool, in_memory: bool) -> None:
    if level == 2 and on_disk:
        disk.append(i)


def memory_as_stated(memory: list[int], i: int, level: int, in_memory: bool) -> None:
    if level > 0 and in_memory:
        memory.append(i)


def what_memory_has_not(
    disk: list[int], i: int, level: int, on_disk: bool, in_memory: bool
) -> None:
    if level == 2 and on_disk and not in_memory:
        disk.append(i)


def evicts_the_oldest(memory: list[int], i: int, level: int, in_memory: bool) -> None:
    if level == 0:
        memory.remove(i)
        memory.append(i)
    elif in_memory or memory:
        if not in_memory:
            memory.pop(0)
        memory.append(i)


def from_disk_only(memory: list[int], i: int, level: int, in_memory: bool) -> None:
    if level == 1 and in_memory:
        memory.append(i)


no_copies_on_disk = levels_with(what_memory_has_not, memory_as_stated)
K3.mistake("the least recently used sample is evicted from memory", cache_levels)(
    levels_with(disk_as_stated, evicts_the_oldest)
)
K4.mistake("the disk does not store samples that memory has")(no_copies_on_disk)
K4.mistake("memory takes samples from the disk only, not those from the store")(
    levels_with(disk_as_stated, from_disk_only)
)


# ---- exercise: which level serves each epoch ----

MEMORY, BOTH = "memory, no disk", "memory and disk"
CHANGING = "every epoch requests other samples"
ENDS = "no room, room for everything, no samples"
Epochs = list[list[int]]


def hits(
    orders: Epochs, memory: int, disk: int, levels_of: Callable[..., Any] = cache_levels
) -> list[list[int]]:
    """Samples that memory, disk and store serve in each epoch, where each sample has a byte."""
    requests = [i for order in orders for i in order]
    n = max(requests, default=-1) + 1
    levels = iter(levels_of(requests, [1] * n, 1, disk, memory))
    epochs = [[next(levels) for _ in order] for order in orders]
    return [[epoch.count(level) for level in range(3)] for epoch in epochs]


def epochs_of(random: np.random.Generator, n: int, count: int) -> Epochs:
    return [random.permutation(n).tolist() for _ in range(count)]


def memory_only(random: np.random.Generator) -> list[Arguments]:
    """In the second case the least recently used samples are not those of the first epoch."""
    n, same = int(random.integers(20, 40)), list(range(12))
    rows = [([same] * 3, 5, 0), ([same, [11, *same[:11]]], 5, 0)]
    return rows + [(epochs_of(random, n, 3), int(random.integers(6, 15)), 0)]


def memory_and_disk(random: np.random.Generator) -> list[Arguments]:
    """The disk has more room than memory, but not for everything; then less."""
    n, memory, more = (int(random.integers(*ends)) for ends in ((30, 40), (5, 10), (5, 10)))
    rows = [([[3, 1, 0, 2, 4, 5]] * 2, 1, 3), ([list(range(12))] * 3, 5, 2)]
    return rows + [(epochs_of(random, n, 3), memory, memory + more)]


def changing(random: np.random.Generator) -> list[Arguments]:
    """As without shards: half of the samples in each epoch."""
    rows = [([[0, 1, 2, 3], [3, 4, 1, 5], [5, 4, 3, 2]], 2, 3)]
    return rows + [([order[:20] for order in epochs_of(random, 40, 4)], 8, 16)]


def ends(random: np.random.Generator) -> list[Arguments]:
    same = list(range(6))
    rows = [([same] * 2, 0, 0), ([same] * 3, 9, 0), ([same] * 2, 0, 9)]
    return [*rows, ([], 3, 3), ([[], []], 2, 2), (epochs_of(random, 8, 2), 0, 9)]


HITS_14 = Exercise("14.2", hits)
HITS_14.part(MEMORY, 2, memory_only)
HITS_14.part(BOTH, 2, memory_and_disk)
HITS_14.part(CHANGING, 1, changing)
HITS_14.part(ENDS, 1, ends)


@HITS_14.mistake("your cache evicts the least recently used sample; nothing is ever evicted")
def least_recently_used(orders, memory, disk):
    in_memory, on_disk, found = list[int](), list[int](), []
    for order in orders:
        found.append([0, 0, 0])
        for i in order:
            found[-1][0 if i in in_memory else 1 if i in on_disk else 2] += 1
            for level, room in ((in_memory, memory), (on_disk, disk)):
                level[:] = [*(j for j in level if j != i), i][-room:] if room else []
    return found


@HITS_14.mistake(
    "your disk leaves out what memory has room for; it stores every sample that comes from the "
    "store"
)
def disk_stores_the_rest(orders, memory, disk):
    return hits(orders, memory, disk, no_copies_on_disk)


@HITS_14.mistake("you store one sample more than there is room for: compare with <, not <=")
def one_sample_too_many(orders, memory, disk):
    return hits(orders, memory + 1, disk + 1)


@HITS_14.mistake("you ask the disk before memory; memory is asked first")
def disk_first(orders, memory, disk):
    return [[m, d, s] for d, m, s in hits(orders, disk, memory)]


@HITS_14.mistake("you count all epochs so far; begin with 0 in each epoch")
def all_epochs_so_far(orders, memory, disk):
    rows = hits(orders, memory, disk)
    return [[sum(column) for column in zip(*rows[: i + 1])] for i in range(len(rows))]


@HITS_14.mistake("you count the requests that a level gets; wanted those that it serves")
def requests_of_each_level(orders, memory, disk):
    return [[m + d + s, d + s, s] for m, d, s in hits(orders, memory, disk)]


@HITS_14.mistake("your cache is empty again in each epoch: create it before the loop")
def empty_in_each_epoch(orders, memory, disk):
    return [hits([order], memory, disk)[0] for order in orders]


@HITS_14.mistake(
    "you store a sample before you look where it was: in the first epoch all come from the store"
)
def stores_before_it_counts(orders, memory, disk):
    """The second time that a sample is requested it is where the first request has put it."""
    rows = []
    for i in range(len(orders)):
        before = [sample for order in orders[: i + 1] for sample in order]
        rows.append(hits([before, orders[i]], memory, disk)[1])
    return rows
