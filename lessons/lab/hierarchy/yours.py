"""Lesson 10 with --mine: what your phases leave on each rank, and what crosses your slow links."""

import numpy as np

import kit
from kit.mine import Yours
from refgf.comm import ring
from refgf.comm.slices import length

NODES, ELEMENTS = [[0, 1], [2, 3], [4, 5], [6, 7]], 24
PHASES = {"three_phases": "phase", "two_levels": "step"}


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, p, series = run.mine, sum(map(len, NODES)), []
    random, nodes = np.random.default_rng(10), NODES
    xs = [random.integers(-9, 9, ELEMENTS).astype(np.float32) for _ in range(p)]
    for name, step in PHASES.items():
        if name in mine:
            both = [reached(make(xs, nodes), xs) for make in mine.pair(name)]
            title = f"Ranks that hold the whole sum: {name}"
            series.append(mine.series(name, title, (f"after {step}", (1, 2, 3)), *both))
    names = [name for name in ("nodes_of", "slow_links") if name in mine]
    if names:
        hosts = {
            "in order": [f"node {i}" for i, node in enumerate(nodes) for _ in node],
            "round robin": [f"node {rank % len(nodes)}" for rank in range(p)],
        }
        sends = [
            (rank, step.send_to, length(step.send))
            for rank in range(p)
            for step in ring.allreduce(rank, p, 1000)
            if step.send_to is not None
        ]
        both = (
            [pick("slow_links")(sends, pick("nodes_of")(each))[0][1] for each in hosts.values()]
            for pick in (mine.ours, mine.either)
        )
        title = "Elements of a ring that leave the first node, n = 1000"
        series.append(mine.series(" ".join(names), title, ("ranks", hosts), *both))
    return series


def reached(phases: list[list[np.ndarray]], xs: list[np.ndarray]) -> list[int]:
    """After each phase: how many ranks hold the sum of all, in whole numbers."""
    total = np.sum(xs, axis=0)
    return [sum(np.array_equal(held, total) for held in phase) for phase in phases]


YOURS = Yours(
    {
        "nodes_of": "which ranks share a node",
        "three_phases": "sums of three phases",
        "two_levels": "sums of two levels",
        "slow_links": "what leaves a node",
    },
    measure,
)
