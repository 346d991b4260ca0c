"""Lesson 14: the data cache - is it the network, or the disk?

    mpiexec -n 8 python lessons/14_data_cache.py                 (--quick, --full, --data PATH, --slow-store RATE,LATENCY ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- python lessons/14_data_cache.py

QUESTION    A step waits for its images as it waits for its gradients. The data set lies on a slow store; every epoch reads all
            of it again. What has a node to keep, where, and how much, so that only the first epoch is slow?
IDEA        Each node keeps to its own part of the data set, its shard, and three levels serve it: decoded samples in memory
            that the node's ranks share, files on its disk, the slow store. The first epoch fills while it trains (DataCache,
            Shi et al. 2021; refgf/papers/datacache/__init__.py, shards.py, stores.py).
PREDICTION  n samples on p ranks; a sample from level l costs a rank c_l seconds (decoding included), h_l of them come from it:

                time of an epoch = n/p (h_memory c_memory + h_disk c_disk + h_store c_store)

            The first epoch has h_store = 1. From the second on h_memory = min(1, limit / bytes of the shard): every sample
            is asked for once an epoch, in an order that changes, and nothing is thrown out.

Before you run it, write down: memory holds half of the shard, there is no disk. How many times as fast as without a cache
is the second epoch? And with nine tenths?

This is strong scaling: one data set, shared by all ranks.

WHAT YOU SHOULD SEE    The first epoch is as slow as without a cache. Later ones take what their worst misses take: half the
            shard in memory is not half way to all of it, but about twice as fast as nothing, as with Amdahl's law. With a
            disk below, missing memory costs a decoding and not a journey. p ranks of a node hold one copy, not p.
            One machine's slow store is EMULATED by waiting; in a cluster files also come over the link of another node.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/14_data_cache.py)
    1. Let memory throw out the least recently used sample when it is full. It has room for half of the shard: what is the
       hit rate, in an order that changes every epoch, and in one that stays?
    2. Memory and disk have room for half of the shard each. How much comes from the slow store in the second epoch, and
       what would have to change so that nothing does?
    3. Do without shards: all nodes draw from the whole data set. What is the hit rate on 4 nodes, each of which can keep a
       quarter of the data set?
"""

import refgf.launch  # noqa: F401  before MPI starts

import contextlib
import dataclasses
import os
import time

import numpy as np

import kit
from lab import cache_levels
from refgf.papers.datacache import LEVELS, Cache
from refgf.training.data import shuffled
from refgf.papers.datacache.shards import node_batches
from refgf.papers.datacache.stores import FolderStore

SEED = 1
WANTED_GAIN = 5.0
SETTINGS = {  # cache: share of the shard that memory may hold, bytes of disk
    "no cache": (0.0, 0),
    "disk": (0.0, cache_levels.PLENTY),
    "half memory": (0.5, 0),
    "half memory + disk": (0.5, cache_levels.PLENTY),
    "memory": (1.0, 0),
    "memory + disk": (1.0, cache_levels.PLENTY),
}
COLOURS = dict(
    zip(SETTINGS, ("black", "tab:blue", "tab:orange", "tab:purple", "tab:red", "tab:green"))
)


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
        tell_bar(run, rows)
        run.plain.Barrier()  # nobody asks the storing rank any more
    return {
        "costs": costs,
        "rows": rows,
        "sweep": sweep,
        "memory": memory,
        "nodes": place.nodes,
        "samples": place.data.size,
    }


# ---- one epoch: this is all there is to it, once the parts are there ----


def epoch_s(run: kit.Run, place: cache_levels.Place, cache: Cache, epoch: int) -> float:
    """Load this rank's images of one epoch, step by step, and nothing else; seconds until all ranks have theirs."""
    data = dataclasses.replace(place.data, fetch=cache)
    steps = [step[run.rank] for step in epoch_steps(run, place, epoch)]
    cache.reset()
    run.plain.Barrier()
    start_s = time.perf_counter()
    load(run, data, steps)
    return time.perf_counter() - start_s


def load(run: kit.Run, data, steps) -> None:
    """Ends on all ranks together: where they share cores, some have all their images before others begin."""
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
    """Every sample once an epoch, on its node, with the bits of reading without a cache; hits as predicted."""
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
                    f"rank {run.rank}, epoch {epoch}: other bits than without a cache"
                )
        everybody = run.plain.allgather(seen)
        by_node = [sorted(i for rank in ranks for i in everybody[rank]) for ranks in place.nodes]
        if by_node != [
            [i for i in range(place.data.size) if i % run.size in ranks] for ranks in place.nodes
        ]:
            raise AssertionError(
                f"epoch {epoch}: not every sample exactly once, on the node of rank i mod p"
            )
        cache_levels.check_hits(run, place, cache, epoch, 0.5, True)
    run.say(
        f"{len(place.nodes)} shard(s); 3 epochs: every sample once, on its node, with the bits of uncached reading"
    )
    run.say(
        "hits: all from the store, then half from memory and the rest from disk, exactly as predicted"
    )
    run.plain.Barrier()
    cache.close()


# ---- the measurement ----


def measure_costs(run: kit.Run, place: cache_levels.Place, store: str) -> dict:
    """Seconds a sample from each level, all ranks at once, on a part of the shards; the slowest rank's median."""
    run.section(f"What does a sample cost? Slow store: {store}")
    mine = [step[run.rank] for step in epoch_steps(run, place, 99)[: run.quick(2, 12)]]
    count, cost = max(run.plain.allgather(sum(map(len, mine)))), {}
    epoch = max(
        1, round(place.data.size / (run.size * count))
    )  # as long as an epoch, where that is short
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
        ["from", "a sample takes", "images/s of all ranks"],
        [[level, kit.seconds(cost[level]), f"{run.size / cost[level]:.0f}"] for level in LEVELS],
    )
    return cost


def timed_epochs(
    run: kit.Run, place: cache_levels.Place, store: str, setting: tuple, epochs: int, cost: dict
) -> list[dict]:
    """So many epochs from an empty cache: time, hits, prediction."""
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
    run.table(["cache", *(f"epoch {e + 1}" for e in range(epochs)), "last epoch's hits"], table)
    run.say(
        "measured (predicted from the hits and the costs above; what filling takes is not in the prediction)"
    )
    return rows


def sweep_memory(run: kit.Run, place: cache_levels.Place, store: str, cost: dict) -> list[dict]:
    """Epochs after the first against the share of the shard that memory may hold."""
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
        ["memory holds", "images/s, the rest from the store", "the rest from disk"],
        [[f"{100 * row['share']:.0f} %", *cell] for row, cell in zip(rows, cells)],
    )
    run.say("measured (predicted)")
    return rows


def look_at_memory(run: kit.Run, place: cache_levels.Place) -> list[dict]:
    """What the memory level takes on each node, by its own account and by the kernel's."""
    run.section("Memory used by a node")
    limit, read = place.room_for(1.0), next(iter(place.stores.values()))
    cache = cache_levels.make(run, place, read, limit)
    epoch_s(run, place, cache, 0)
    run.plain.Barrier()
    cache(place.shards[place.node])  # every rank looks at all that its node has
    run.plain.Barrier()
    everybody = run.plain.allgather((os.getpid(), cache_levels.mapped_bytes(), cache.memory.nbytes))
    rows = []
    for ranks in place.nodes:
        by_process = dict(everybody[rank][:2] for rank in ranks)  # ranks on threads are one process
        sums = {
            kind: sum(mapped[kind] for mapped in by_process.values()) for kind in ("Pss", "Rss")
        }
        rows.append({"limit": limit, "file": everybody[ranks[0]][2], "ranks": len(ranks)} | sums)
        if rows[-1]["file"] > limit:
            raise AssertionError(
                f"the memory level takes {rows[-1]['file']} bytes; its limit is {limit}"
            )
    cache.close()
    run.table(
        [
            "node",
            "ranks",
            "limit",
            "file",
            "kernel, each page once (Pss)",
            "kernel, once for each rank (Rss)",
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
    run.say("Rss is what a copy for each rank would take; Pss is what is taken")
    return rows


def tell_bar(run: kit.Run, rows: list[dict]) -> None:
    """As measured in this run: the slowest cached epoch against the fastest uncached one."""
    run.section(
        f"From the second epoch: {WANTED_GAIN:g} times the images per second of the uncached slow store?"
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
            run.say(
                f"{row['store']}, {row['name']}: {gain:.1f} times: {'yes' if gain >= WANTED_GAIN else 'no'}"
            )


# ---- the picture ----


def draw(result: dict):
    import matplotlib.pyplot as plt

    figure, ((by_epoch, memory_axis), (hit_axis, used)) = plt.subplots(2, 2, figsize=(15, 10.5))
    n, first = result["samples"], result["rows"][0]["store"]
    for row in result["rows"]:
        x, style = range(1, 1 + len(row["epochs"])), "o-" if row["store"] == first else "^:"
        label = row["name"] if row["store"] == first else f"{row['name']}, {row['store']}"
        by_epoch.plot(
            x,
            [n / e["seconds"] for e in row["epochs"]],
            style,
            color=COLOURS[row["name"]],
            label=label,
        )
        by_epoch.plot(
            x, [n / e["predicted_s"] for e in row["epochs"]], "_", ms=18, color=COLOURS[row["name"]]
        )
    by_epoch.set(
        title=f"Images per second by epoch; bars: predicted\n{first}", xlabel="epoch", yscale="log"
    )
    by_epoch.set_xticks(range(1, 1 + len(result["rows"][0]["epochs"])))
    shares = [100 * row["share"] for row in result["sweep"]]
    cost, fine = result["costs"][first], np.linspace(0, 1, 201)
    for name, colour in (("store", "tab:orange"), ("disk", "tab:purple")):
        rates = [n / np.array(row[name]["seconds"]) for row in result["sweep"]]
        middle = np.array([np.median(rate) for rate in rates])
        spread = [middle - [min(rate) for rate in rates], [max(rate) for rate in rates] - middle]
        forecast = result["ranks"] / (fine * cost["memory"] + (1 - fine) * cost[name])
        memory_axis.errorbar(
            shares, middle, spread, fmt="o", capsize=2, color=colour, label=f"the rest from {name}"
        )
        memory_axis.plot(100 * fine, forecast, "--", color=colour, label="predicted")
    memory_axis.set(
        title="Images per second after the first epoch",
        xlabel="% of the shard that memory may hold",
        yscale="log",
    )
    shown, left = [row for row in result["rows"] if row["store"] == first], 0
    for level, colour in zip(LEVELS, ("tab:green", "tab:blue", "tab:grey")):
        width = np.array([100 * row["epochs"][-1]["hits"][level] for row in shown])
        hit_axis.barh([row["name"] for row in shown], width, left=left, color=colour, label=level)
        left = left + width
    hit_axis.set(title="Where samples come from in the last epoch", xlabel="%")
    labels = (
        "limit",
        "file of the node",
        "kernel, each page once (Pss)",
        "kernel, once for each rank (Rss)",
    )
    for i, (kind, label) in enumerate(zip(("limit", "file", "Pss", "Rss"), labels)):
        x = [node + 0.2 * (i - 1.5) for node in range(len(result["memory"]))]
        used.bar(x, [row[kind] / 2**20 for row in result["memory"]], 0.2, label=label)
    used.set(
        title="Memory of a node's cache: one copy, whatever the number of ranks",
        xlabel="node",
        ylabel="MiB",
    )
    used.set_xticks(range(len(result["memory"])))
    by_epoch.set_ylim(top=30 * by_epoch.get_ylim()[1])  # room for the legends
    used.set_ylim(top=1.35 * used.get_ylim()[1])
    hit_axis.set_ylim(top=len(shown) + 0.2)
    for axis, columns in ((by_epoch, 2), (memory_axis, 1), (hit_axis, 3), (used, 2)):
        axis.legend(fontsize=8, ncols=columns, loc="upper left")
        axis.grid(alpha=0.3)
    figure.suptitle(
        "Lesson 14: only the first epoch is slow, if the node may keep its shard; the misses decide the rest"
    )
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    cache_levels.arguments(lesson)
    lesson.main(measure, draw)
