"""Lesson 14's measurement: seconds of a sample from each level, and of epochs with each cache."""

import dataclasses
import statistics
import time
from collections.abc import Callable

import kit
from lab.cache import levels
from refgf.papers.datacache import LEVELS, Cache

WANTED_GAIN = 5.0
SETTINGS = {  # name: share of the shard that memory may hold, bytes of disk
    "no cache": (0.0, 0),
    "disk": (0.0, levels.PLENTY),
    "half memory": (0.5, 0),
    "half memory + disk": (0.5, levels.PLENTY),
    "memory": (1.0, 0),
    "memory + disk": (1.0, levels.PLENTY),
}
WHOLE = "disk", "memory", "memory + disk"  # those that hold the whole shard
RESTS = {"store": 0, "disk": levels.PLENTY}  # where the misses in memory come from: bytes of disk
AGAIN = 2  # more first epochs, each with an empty cache
SHORT = 6  # more later epochs from memory alone, which are short and vary most
COST_EPOCH = 99  # the order in which costs are measured


@dataclasses.dataclass(frozen=True)
class CacheBench:
    """What epochs are measured with. All methods are collective.

    load         the lesson's: (run, data, steps)
    predicted_s  the lesson's: (samples, ranks, shares of the levels, their costs) -> seconds
    """

    run: kit.Run
    place: levels.Place
    load: Callable
    predicted_s: Callable

    def measure(self) -> dict:
        costs = {store: self.costs(store) for store in self.place.stores}
        rows = [row for store in costs for row in self.compare(store, costs[store])]
        first = next(iter(costs))
        sweep = self.sweep(first, costs[first], rows)
        self.say_gains(rows)
        return {"costs": costs, "rows": rows, "sweep": sweep}

    def costs(self, store: str) -> dict:
        """Seconds per sample from each level, all ranks at once: the slowest rank's median."""
        run, place = self.run, self.place
        run.section("What a sample costs")
        run.say(f"store: {store}")
        steps = place.steps(run, COST_EPOCH)[: run.quick(2, 12)]
        mine, cost = [step[run.rank] for step in steps], {}
        count = max(run.plain.allgather(sum(map(len, mine))))
        # as long as an epoch, where an epoch is short
        epoch = max(1, round(place.data.size / (run.size * count)))
        limits = {
            "memory": (place.room_for(1.0), 0, epoch),
            "disk": (0, levels.PLENTY, 1),
            "store": (0, 0, 1),
        }
        for level, (memory, disk, rounds) in limits.items():
            cache = levels.make(run, place, place.stores[store], memory, disk)
            data, work = dataclasses.replace(place.data, fetch=cache), mine * rounds
            timing = run.time(lambda d=data, w=work: self.load(run, d, w), run.quick(2, 5))
            cost[level] = timing.median_s / (count * rounds)  # the warm-up has filled the cache
            cache.close()
        run.table(
            ["level", "time per sample", "images/s of all ranks"],
            [
                [level, kit.seconds(cost[level]), f"{run.size / cost[level]:.0f}"]
                for level in LEVELS
            ],
        )
        return cost

    def compare(self, store: str, cost: dict) -> list[dict]:
        """Epochs with each combination of levels."""
        run, n = self.run, self.place.data.size
        run.section("Epochs with each cache")
        run.say(f"images per second by epoch, store: {store}")
        count, rows, table = run.quick(2, 3, 5), [], []
        for name, setting in SETTINGS.items():
            timed = self.epochs(store, setting, count + SHORT * (setting[0] == 1.0), cost)
            again = [self.epochs(store, setting, 1, cost) for _ in range(run.quick(0, AGAIN))]
            first_s = [first["seconds"] for first, *_ in [timed, *again]]
            rows.append({"store": store, "name": name, "epochs": timed, "first_s": first_s})
            rates = [f"{n / e['seconds']:.0f} ({n / e['predicted_s']:.0f})" for e in timed[:count]]
            hits = {level: f"{100 * hit:.0f} %" for level, hit in timed[-1]["hits"].items() if hit}
            table.append([name, *rates, ", ".join(map(" ".join, hits.items()))])
        heads = [f"epoch {epoch + 1}" for epoch in range(count)]
        run.table(["cache", *heads, "hits in the last"], table)
        run.say("measured (predicted from the hits and the costs above, without filling the cache)")
        return rows

    def sweep(self, store: str, cost: dict, compared: list[dict]) -> list[dict]:
        """Epochs after the first against the share of the shard that memory may hold.

        compared: rows of `compare`. A setting that is in them is not measured again.
        """
        run, n, rows, table = self.run, self.place.data.size, [], []
        known = {SETTINGS[row["name"]]: row["epochs"] for row in compared if row["store"] == store}
        run.section("How much memory?")
        run.say(f"epochs after the first, store: {store}")
        for share in run.quick([0.0, 0.5, 1.0], [0.0, 0.25, 0.5, 0.75, 0.9, 1.0]):
            row, cells = {"share": share}, [f"{100 * share:.0f} %"]
            for name, disk in RESTS.items():
                setting, count = (share, disk), run.quick(2, 3, 5)
                later = (known.get(setting) or self.epochs(store, setting, count, cost))[1:]
                times_s, predicted_s = [e["seconds"] for e in later], later[0]["predicted_s"]
                row[name] = {"seconds": times_s, "predicted_s": predicted_s}
                cells.append(f"{n / statistics.median(times_s):.0f} ({n / predicted_s:.0f})")
            rows.append(row)
            table.append(cells)
        run.table(["memory holds", "images/s, rest from the store", "rest from disk"], table)
        run.say("measured (predicted)")
        return rows

    def epochs(self, store: str, setting: tuple, count: int, cost: dict) -> list[dict]:
        """Time, hits and prediction of `count` epochs that start with an empty cache."""
        run, place, (share, disk), rows = self.run, self.place, setting, []
        cache = levels.make(run, place, place.stores[store], place.room_for(share), disk)
        for epoch in range(count):
            seconds = run.slowest([self.epoch_s(cache, epoch)]).median_s
            hits = levels.check_hits(run, place, cache, epoch, share, bool(disk))
            predicted_s = self.predicted_s(place.data.size, run.size, hits, cost)
            rows.append({"seconds": seconds, "hits": hits, "predicted_s": predicted_s})
        run.plain.Barrier()
        cache.close()
        return rows

    def epoch_s(self, cache: Cache, epoch: int) -> float:
        """Load this rank's images of one epoch; seconds until all ranks have theirs."""
        data = dataclasses.replace(self.place.data, fetch=cache)
        steps = [step[self.run.rank] for step in self.place.steps(self.run, epoch)]
        cache.reset()
        self.run.plain.Barrier()
        start_s = time.perf_counter()
        self.load(self.run, data, steps)
        return time.perf_counter() - start_s

    def say_gains(self, rows: list[dict]) -> None:
        """Compare the slowest cached epoch of this run with the fastest uncached one."""
        run = self.run
        run.say("\nFrom the second epoch:")
        run.say(f"{WANTED_GAIN:g} times the images/s of the uncached slow store?")
        plain = {row["store"]: row["epochs"] for row in rows if row["name"] == "no cache"}
        for row in rows:
            if row["name"] in WHOLE:
                slowest = max(epoch["seconds"] for epoch in row["epochs"][1:])
                gain = min(epoch["seconds"] for epoch in plain[row["store"]]) / slowest
                verdict = "yes" if gain >= WANTED_GAIN else "no"
                run.say(f"{row['store']}, {row['name']}: {gain:.1f} times: {verdict}")
