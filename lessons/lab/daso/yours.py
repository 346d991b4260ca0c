"""Lesson 13 with --mine: the nodes' drift in your epoch, your sums and your merge."""

import numpy as np

import kit
from kit.mine import Yours

SETTINGS = {"B = 1, W = 0": (1, 0), "B = 1, W = 1": (1, 1), "B = 4, W = 1": (4, 1)}
SETTINGS |= {"B = 4, W = 3": (4, 3), "B = 8, W = 8": (8, 8)}
BATCHES, NODES, RANKS, N, RATE = 20, 4, 2, 1000, 0.1


def measure(run: kit.Run, found: dict) -> list[dict]:
    """Random gradients: a part that all ranks share, and a part of each rank's own."""
    mine, series = run.mine, []
    random = np.random.default_rng(13)
    shared = random.standard_normal((BATCHES, 1, N))
    own = random.standard_normal((BATCHES, NODES * RANKS, N))
    gradients = (shared + own).astype(np.float32)  # (batches, ranks, n)
    means = gradients.reshape(BATCHES, NODES, RANKS, N).mean(axis=2)
    if "node_means" in mine:
        both = (
            [float(mean[0]) for mean in make(gradients[0], RANKS)]
            for make in mine.pair("node_means")
        )
        at = "node", range(NODES)
        series.append(mine.series("node_means", "First mean gradient of each node", at, *both))
    if "global_sums" in mine:
        both = (
            [len(plan(BATCHES, *setting)) for setting in SETTINGS.values()]
            for plan in mine.pair("global_sums")
        )
        title = f"Sums over nodes in an epoch of {BATCHES} batches"
        at = "B, W", [f"{skip}, {wait}" for skip, wait in SETTINGS.values()]
        series.append(mine.series("global_sums", title, at, *both))
    if "merge" in mine:
        waited = range(5)
        w, others = np.ones(1, np.float32), np.zeros(1, np.float32)
        both = (
            [100 * float(merge(w, w + (NODES - 1) * others, NODES, each)[0]) for each in waited]
            for merge in mine.pair("merge")
        )
        title = f"A node's own share after the merge, {NODES} nodes"
        series.append(mine.series("merge", title, ("batches waited", waited), *both, unit="%"))
    if "epoch" in mine:
        start = np.zeros(N, np.float32)
        for name in ("B = 4, W = 1", "B = 8, W = 8"):
            both = (
                [float(np.ptp(ws, axis=0).max()) for ws in run_epoch(start, means, *plan, RATE)]
                for run_epoch, plan in ((f, SETTINGS[name]) for f in mine.pair("epoch"))
            )
            title, at = f"Nodes apart after each batch, {name}", ("batch", range(BATCHES))
            series.append(mine.series("epoch", title, at, *both))
    return series


YOURS = Yours(
    {
        "node_means": "the mean in a node",
        "global_sums": "how often nodes sum",
        "merge": "what a late sum counts",
        "epoch": "how far nodes drift apart",
    },
    measure,
)
