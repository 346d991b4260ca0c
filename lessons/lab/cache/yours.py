"""Lesson 14 with --mine: your shards and hits, and your prediction of the lesson's epochs."""

import statistics

import numpy as np

import kit
from kit.mine import Yours, on

SPEEDUPS = 1.5, 2, 4, 8, 16, 1000


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series = run.mine, []
    nodes, n = found["nodes"], found["samples"]
    shards = mine.ours("shards")(n, nodes)
    if "shards" in mine:
        both = ([len(shard) for shard in make(n, nodes)] for make in mine.pair("shards"))
        series.append(mine.series("shards", "Samples", ("node", range(len(nodes))), *both))
    if "hits" in mine:
        random, size = np.random.default_rng(14), len(shards[0])
        orders = [random.permutation(shards[0]).tolist() for _ in range(3)]
        made = [count(orders, size // 4, size // 2) for count in mine.pair("hits")]
        at = "epoch", range(1, 4)
        for level, title in enumerate(
            ("Hits in memory, a quarter of the shard", "Hits on disk, half of it")
        ):
            both = ([epoch[level] for epoch in counts] for counts in made)
            series.append(mine.series("hits", title, at, *both))
    costs = next(iter(found["costs"].values()))
    costs_s = costs["memory"], costs["store"]
    if "epoch_seconds" in mine:
        rows = found["sweep"]
        ours, yours = (
            [
                predict(
                    n, run.size, len(nodes), 1000, row["share"] * 1000 * n / len(nodes), *costs_s
                )[1]
                for row in rows
            ]
            for predict in mine.pair("epoch_seconds")
        )
        at = "memory holds", [f"{100 * row['share']:.0f} %" for row in rows]
        measured = [statistics.median(row["store"]["seconds"]) for row in rows]
        place = on(1, [100 * row["share"] for row in rows], [yours[0] / t for t in yours])
        title, more = "Later epochs", {"unit": "s", "measured": measured, "on": place}
        series.append(mine.series("epoch_seconds", title, at, ours, yours, **more))
    if "share_needed" in mine:
        both = (
            [share and 100 * share for share in (need(s, *costs_s) for s in SPEEDUPS)]
            for need in mine.pair("share_needed")
        )
        title, at = "Share of the shard that memory must hold", ("speedup", SPEEDUPS)
        series.append(mine.series("share_needed", title, at, *both, unit="%"))
    return series


YOURS = Yours(
    {
        "shards": "which samples a node has",
        "hits": "what memory and disk serve",
        "epoch_seconds": "the prediction of later epochs",
        "share_needed": "the memory for a speedup",
    },
    measure,
)
