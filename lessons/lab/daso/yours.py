"""Lesson 13 with --mine: nodes' drift in your epoch, your sums, your merge, your outer steps."""

import numpy as np

import kit
from kit.mine import Yours

SETTINGS = {"B = 1, W = 0": (1, 0), "B = 1, W = 1": (1, 1), "B = 4, W = 1": (4, 1)}
SETTINGS |= {"B = 4, W = 3": (4, 3), "B = 8, W = 8": (8, 8)}
BATCHES, NODES, RANKS, N, RATE = 20, 4, 2, 1000, 0.1
H, OUTER_RATE, OUTER_MOMENTUM, OUTER_STEPS = 8, 0.7, 0.9, 12  # those of the lesson


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
    if "outer_step" in mine:
        points = own[0, :NODES]
        both = (distances(take, points) for take in mine.pair("outer_step"))
        title, at = f"From the best parameters, H = {H}", ("outer steps", range(1, 1 + OUTER_STEPS))
        series.append(mine.series("outer_step", title, at, *both))
    return series


def distances(outer_step, points: np.ndarray) -> list[float]:
    """How far the start is from the best parameters after each outer step. points: (nodes, n)

    Node i's loss is |w - points[i]|^2 / 2, so the best parameters are the mean of the points.
    """
    start, v, found = np.zeros(N), np.zeros(N), []
    for _ in range(OUTER_STEPS):
        ws = points + (1 - RATE) ** H * (start - points)  # H steps of rate RATE
        start, v = outer_step(start, v, ws, OUTER_RATE, OUTER_MOMENTUM)
        found.append(float(np.linalg.norm(start - points.mean(axis=0))))
    return found


YOURS = Yours(
    {
        "node_means": "the mean in a node",
        "global_sums": "how often nodes sum",
        "merge": "what a late sum counts",
        "epoch": "how far nodes drift apart",
        "outer_step": "how near DiLoCo comes",
    },
    measure,
)
