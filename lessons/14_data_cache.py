"""Lesson 14: the data cache - is it the network, or the disk?

    mpiexec -n 8 python lessons/14_data_cache.py        (--quick, --full, --data PATH ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- \
        python lessons/14_data_cache.py

QUESTION    A step waits for its images as it waits for its gradients. The data set lies on a slow
            store, and every epoch reads all of it again. What must a node cache, where, and how
            much, so that only the first epoch is slow?
IDEA        Each node reads only its own part of the data set, its shard. Three levels serve it:
            decoded samples in memory that the node's ranks share, files on the node's disk, and the
            slow store. The first epoch fills the cache while it trains (DataCache, Shi et al. 2021;
            refgf/papers/datacache/__init__.py, shards.py, stores.py).
PREDICTION  n samples on p ranks. A sample from level l costs a rank c_l seconds, decoding included.
            The share h_l of the samples comes from level l:

                time of an epoch = n/p (h_memory c_memory + h_disk c_disk + h_store c_store)

            The first epoch has h_store = 1. From the second epoch h_memory =
            min(1, limit / bytes of the shard), because every sample is requested once an epoch, in
            a changing order, and nothing is evicted.

Before you run it, write down: memory holds half of the shard, and there is no disk. How many times
as fast as without a cache is the second epoch? And with nine tenths?

This is strong scaling: all ranks share one data set.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/14_data_cache.py)
    1. Let memory evict the least recently used sample when it is full. It has room for half of the
       shard. What is the hit rate in an order that changes every epoch, and in a fixed order?
    2. Memory and disk have room for half of the shard each. How much comes from the slow store in
       the second epoch? What would have to change so that nothing does?
    3. Remove the shards: all nodes draw from the whole data set. What is the hit rate on 4 nodes,
       each with room for a quarter of the data set?
"""

import refgf.launch  # noqa: F401  before MPI starts

import contextlib
import dataclasses
import os
import time

import numpy as np

import kit
from lab import cache_levels
from lab.cache_picture import draw
from lab.cache_claims import CLAIMS
from refgf.papers.datacache import LEVELS, Cache
from refgf.training.data import shuffled
from refgf.papers.datacache.shards import node_batches
from refgf.papers.datacache.stores import FolderStore

SEED = 1
WANTED_GAIN = 5.0
SETTINGS = {  # name: share of the shard that memory may hold, bytes of disk
    "no cache": (0.0, 0),
    "disk": (0.0, cache_levels.PLENTY),
    "half memory": (0.5, 0),
    "half memory + disk": (0.5, cache_levels.PLENTY),
    "memory": (1.0, 0),
    "memory + disk": (1.0, cache_levels.PLENTY),
}


def measure(run: kit.Run) -> dict:
    with contextlib.ExitStack() as stack:
        place = cache_levels.prepare(run, stack)
        check_against_oracle(run, place)
        if run.rank == 0:
            cache_levels.damage(run, place)
        costs = {store: measure_costs(run, place, store) for store in place.stores}
        rows = [
            row for store in place.stores for row in compare_levels(run, place, store, costs[store])
        ]
        first = next(iter(place.stores))
        sweep = sweep_memory(run, place, first, costs[first])
        memory = look_at_memory(run, place)
        say_gains(run, rows)
        run.plain.Barrier()  # the serving rank receives no more requests
    return {
        "costs": costs,
        "rows": rows,
        "sweep": sweep,
        "memory": memory,
        "nodes": place.nodes,
        "samples": place.data.size,
    }


# ---- one epoch ----


def epoch_s(run: kit.Run, place: cache_levels.Place, cache: Cache, epoch: int) -> float:
    """Load this rank's images of one epoch, step by step; seconds until all ranks have theirs."""
    data = dataclasses.replace(place.data, fetch=cache)
    steps = [step[run.rank] for step in epoch_steps(run, place, epoch)]
    cache.reset()
    run.plain.Barrier()
    start_s = time.perf_counter()
    load(run, data, steps)
    return time.perf_counter() - start_s


def load(run: kit.Run, data, steps) -> None:
    """Load the images of these steps. Ends on all ranks together.

    Where ranks share cores, some finish loading before others begin.
    """
    for step in steps:
        data.load(step)  # images, labels: a training step would follow here
    run.plain.Barrier()


def epoch_steps(run: kit.Run, place: cache_levels.Place, epoch: int) -> list[list[np.ndarray]]:
    return node_batches(
        shuffled(place.data.size, SEED, epoch), place.nodes, run.options.batch * run.size
    )


def predicted_s(n: int, p: int, shares: dict, cost_s: dict) -> float:
    return n / p * sum(shares[level] * cost_s[level] for level in LEVELS)


# ---- the oracle ----


def check_against_oracle(run: kit.Run, place: cache_levels.Place) -> None:
    """Every sample once an epoch, on its node, with the bits of uncached reading; hits too."""
    run.section("The oracle")
    read = (
        FolderStore(place.paths)
        if cache_levels.EMULATED in place.stores
        else next(iter(place.stores.values()))
    )
    direct = Cache(read, place.decode, place.shape)
    cache = cache_levels.make(run, place, read, place.room_for(0.5), cache_levels.PLENTY)
    for epoch in range(3):
        cache.reset()
        seen = []
        for step in epoch_steps(run, place, epoch):
            seen += step[run.rank].tolist()
            if not np.array_equal(cache(step[run.rank]), direct(step[run.rank])):
                raise AssertionError(
                    f"cache on rank {run.rank}, epoch {epoch}: got other bits than without a cache"
                )
        everybody = run.plain.allgather(seen)
        by_node = [sorted(i for rank in ranks for i in everybody[rank]) for ranks in place.nodes]
        if by_node != [
            [i for i in range(place.data.size) if i % run.size in ranks] for ranks in place.nodes
        ]:
            raise AssertionError(
                f"epoch {epoch}: got other samples; wanted each exactly once, "
                "on the node of rank i mod p"
            )
        cache_levels.check_hits(run, place, cache, epoch, 0.5, True)
    run.say(
        f"{len(place.nodes)} shard(s); 3 epochs: every sample once, on its node, "
        "with the bits of uncached reading"
    )
    run.say("hits: all from the store, then half from memory and the rest from disk, as predicted")
    run.plain.Barrier()
    cache.close()


# ---- the measurement ----


def measure_costs(run: kit.Run, place: cache_levels.Place, store: str) -> dict:
    """Seconds per sample from each level, all ranks at once: the slowest rank's median."""
    run.section(f"What does a sample cost? Slow store: {store}")
    mine = [step[run.rank] for step in epoch_steps(run, place, 99)[: run.quick(2, 12)]]
    count, cost = max(run.plain.allgather(sum(map(len, mine)))), {}
    epoch = max(
        1, round(place.data.size / (run.size * count))
    )  # as long as an epoch, where an epoch is short
    limits = {
        "memory": (place.room_for(1.0), 0, epoch),
        "disk": (0, cache_levels.PLENTY, 1),
        "store": (0, 0, 1),
    }
    for level, (memory, disk, rounds) in limits.items():
        cache = cache_levels.make(run, place, place.stores[store], memory, disk)
        data = dataclasses.replace(place.data, fetch=cache)
        work = mine * rounds
        times = run.time(
            lambda data=data, work=work: load(run, data, work), run.quick(2, 5)
        )  # the warm-up fills
        cost[level] = times.median_s / (count * rounds)
        cache.close()
    run.table(
        ["level", "time per sample", "images/s of all ranks"],
        [[level, kit.seconds(cost[level]), f"{run.size / cost[level]:.0f}"] for level in LEVELS],
    )
    return cost


def timed_epochs(
    run: kit.Run, place: cache_levels.Place, store: str, setting: tuple, epochs: int, cost: dict
) -> list[dict]:
    """Time, hits and prediction of `epochs` epochs that start with an empty cache."""
    (share, disk), rows = setting, []
    cache = cache_levels.make(run, place, place.stores[store], place.room_for(share), disk)
    for epoch in range(epochs):
        seconds = run.slowest([epoch_s(run, place, cache, epoch)]).median_s
        hits = cache_levels.check_hits(run, place, cache, epoch, share, bool(disk))
        rows.append(
            {
                "seconds": seconds,
                "hits": hits,
                "predicted_s": predicted_s(place.data.size, run.size, hits, cost),
            }
        )
    run.plain.Barrier()
    cache.close()
    return rows


def compare_levels(run: kit.Run, place: cache_levels.Place, store: str, cost: dict) -> list[dict]:
    """Images per second by epoch, with each combination of levels."""
    run.section(f"Images per second by epoch. Slow store: {store}")
    epochs, n = run.quick(2, 3, 5), place.data.size
    rows = [
        {
            "store": store,
            "name": name,
            "epochs": timed_epochs(run, place, store, setting, epochs, cost),
        }
        for name, setting in SETTINGS.items()
    ]
    table = [
        [
            row["name"],
            *(f"{n / e['seconds']:.0f} ({n / e['predicted_s']:.0f})" for e in row["epochs"]),
            ", ".join(
                f"{level} {100 * hit:.0f} %"
                for level, hit in row["epochs"][-1]["hits"].items()
                if hit
            ),
        ]
        for row in rows
    ]
    run.table(
        ["cache", *(f"epoch {e + 1}" for e in range(epochs)), "hits in the last epoch"], table
    )
    run.say(
        "measured (predicted from the hits and the costs above, without the time to fill the cache)"
    )
    return rows


def sweep_memory(run: kit.Run, place: cache_levels.Place, store: str, cost: dict) -> list[dict]:
    """Times of epochs after the first against the share of the shard that memory may hold."""
    run.section(f"How much memory? Second epoch, slow store: {store}")
    rows, n, epochs = [], place.data.size, run.quick(2, 2, 4)
    for share in run.quick([0.0, 0.5, 1.0], [0.0, 0.25, 0.5, 0.75, 0.9, 1.0]):
        row = {"share": share}
        for name, disk in (("store", 0), ("disk", cache_levels.PLENTY)):
            later = timed_epochs(run, place, store, (share, disk), epochs, cost)[1:]
            row[name] = {
                "seconds": [e["seconds"] for e in later],
                "predicted_s": later[0]["predicted_s"],
            }
        rows.append(row)
    cells = [
        [
            f"{n / np.median(row[name]['seconds']):.0f} ({n / row[name]['predicted_s']:.0f})"
            for name in ("store", "disk")
        ]
        for row in rows
    ]
    run.table(
        ["memory holds", "images/s, rest from the store", "rest from disk"],
        [[f"{100 * row['share']:.0f} %", *cell] for row, cell in zip(rows, cells)],
    )
    run.say("measured (predicted)")
    return rows


def look_at_memory(run: kit.Run, place: cache_levels.Place) -> list[dict]:
    """The memory that the memory level uses on each node: its own count, and the kernel's."""
    run.section("Memory used by a node")
    limit, read = place.room_for(1.0), next(iter(place.stores.values()))
    cache = cache_levels.make(run, place, read, limit)
    epoch_s(run, place, cache, 0)
    run.plain.Barrier()
    cache(place.shards[place.node])  # every rank reads all samples of its node
    run.plain.Barrier()
    everybody = run.plain.allgather((os.getpid(), cache_levels.mapped_bytes(), cache.memory.nbytes))
    rows = []
    for ranks in place.nodes:
        by_process = dict(
            everybody[rank][:2] for rank in ranks
        )  # ranks that are threads are one process
        sums = {
            kind: sum(mapped[kind] for mapped in by_process.values()) for kind in ("Pss", "Rss")
        }
        rows.append({"limit": limit, "file": everybody[ranks[0]][2], "ranks": len(ranks)} | sums)
        if rows[-1]["file"] > limit:
            raise AssertionError(
                f"memory level: got {rows[-1]['file']} bytes; wanted at most {limit}"
            )
    cache.close()
    run.table(
        [
            "node",
            "ranks",
            "limit",
            "file",
            "each page once (Pss)",
            "once for each rank (Rss)",
        ],
        [
            [
                i,
                row["ranks"],
                *(kit.number_of_bytes(row[k]) for k in ("limit", "file", "Pss", "Rss")),
            ]
            for i, row in enumerate(rows)
        ],
    )
    run.say("Pss and Rss are the kernel's counts: Pss is the memory in use; copies would take Rss")
    return rows


def say_gains(run: kit.Run, rows: list[dict]) -> None:
    """Compare the slowest cached epoch of this run with the fastest uncached one."""
    run.section(
        f"From the second epoch: {WANTED_GAIN:g} times the images/s of the uncached slow store?"
    )
    for row in rows:
        plain = next(
            other
            for other in rows
            if other["store"] == row["store"] and other["name"] == "no cache"
        )
        if row["name"] in ("disk", "memory", "memory + disk"):
            slowest = max(epoch["seconds"] for epoch in row["epochs"][1:])
            gain = min(epoch["seconds"] for epoch in plain["epochs"]) / slowest
            verdict = "yes" if gain >= WANTED_GAIN else "no"
            run.say(f"{row['store']}, {row['name']}: {gain:.1f} times: {verdict}")


if __name__ == "__main__":
    lesson = kit.Lesson(
        __file__,
        __doc__,
        claims=CLAIMS,
        picture="Seconds of an epoch for each cache, and against the share of memory.",
    )
    cache_levels.arguments(lesson)
    lesson.main(measure, draw)
