"""Lesson 07 with --mine: your calls of each stack, your step in a training, your gains."""

import numpy as np

import kit
from kit import flow, gathered, images, virtual
from kit.mine import CLUSTER_S, Yours
from lab.csc.yours import importance
from lab.stack.bars import CSC, DENSITY, HALF, LAZY, OVERLAP, RING, median_s
from refgf.papers.scaling.systems import CHUNK

LETTERS = {HALF: "H", OVERLAP: "O", LAZY: "L", CSC: "C"}  # in the order of the lesson's bars


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, here = run.mine, list(found["places"].values())[-1]
    series = []
    if {"call_bytes", "traffic"} & set(mine.functions):
        series += calls(run, here)
    if "exchange" in mine:
        series.append(training(run))
    if "gains" in mine:
        series += gains(run, here)
    return series


def calls(run: kit.Run, here: dict) -> list[dict]:
    """How many calls each stack makes, and how many bytes rank 0 sends."""
    mine, options = run.mine, run.options
    if run.regime.like:
        shapes = virtual.workload(run, options.network)
        sizes, chunk = [tensor.elements for tensor in shapes.tensors], run.quick(256, CHUNK)
    else:
        train, _ = images.load(run)
        sizes = [spec.size for spec in images.network(run, train).tensors]
        chunk = flow.chunk_of(run, sum(sizes))
    chosen = list(range(max(1, round(-(-sum(sizes) // chunk) * DENSITY / 100))))
    stacks = {
        RING: (0, False, None),
        HALF: (0, True, None),
        LAZY: (options.theta, True, None),
        CSC: (options.theta, True, chosen),
    }
    names = [name for name in ("call_bytes", "traffic") if name in mine]
    made = [
        [make(sizes, theta, half, chunk, which) for theta, half, which in stacks.values()]
        for make in (mine.ours("call_bytes"), mine.either("call_bytes"))
    ]
    at, series = ("stack", [name.strip("+ ") for name in stacks]), []
    if "call_bytes" in mine:
        counts = ([len(each) for each in both] for both in made)
        rows = {row["name"]: row["calls"] for row in here["rows"]}
        title, more = "Calls of a step", {"measured": [rows.get(name) for name in stacks]}
        series.append(mine.series("call_bytes", title, at, *counts, **more))
    sent = (
        [traffic(each, run.size)[1] for each in both]
        for traffic, both in zip((mine.ours("traffic"), mine.either("traffic")), made)
    )
    title = "Bytes that a rank sends in a step"
    return [*series, mine.series(" ".join(names), title, at, *sent, unit="bytes")]


def training(run: kit.Run) -> dict:
    """Losses of a training whose whole exchange is `exchange`; the project chooses the chunks."""
    train, _ = images.load(run)
    n, steps = images.parameter_count(run, train), run.quick(gathered.QUICK_STEPS, 30)
    made = [
        gathered.losses(run, train, Exchange(run.mine.ours("exchange"), n), steps),
        gathered.losses(run, train, Exchange(run.mine["exchange"], n), steps),
    ]
    at = "step", range(1, 1 + steps)
    title, note = f"Loss, {DENSITY:g} % in float16", "in so few steps little is learned"
    return run.mine.series("exchange", title, at, *made, note=note)


class Exchange:
    """sums(gradients of all ranks, rank) by the whole step; the first one is dense."""

    def __init__(self, exchange, n: int) -> None:
        self.exchange, self.chunk = exchange, flow.chunk_elements(n)
        self.chosen, self.residuals = np.ones(n, bool), list[np.ndarray]()

    def __call__(self, gradients: list[np.ndarray], rank: int) -> np.ndarray:
        residuals = self.residuals or [np.zeros_like(g) for g in gradients]
        waiting = [g + kept for g, kept in zip(gradients, residuals)]
        sums, self.residuals = self.exchange(gradients, residuals, self.chosen.copy())
        values = importance(waiting, self.chunk)
        count = max(1, int(np.ceil(len(values) * DENSITY / 100)))
        best = np.argsort(-values, kind="stable")[:count]
        self.chosen = np.isin(np.arange(self.chosen.size) // self.chunk, best)
        return sums


def gains(run: kit.Run, here: dict) -> list[dict]:
    """Gain and efficiency of each technique, from the lesson's own bars."""
    rows = {row["name"]: median_s(row["step"]) for row in here["rows"]}
    shown = [name for name in LETTERS if name in rows]
    order, steps_s = "", {"": rows[RING]}
    for name in shown:
        order += LETTERS[name]
        steps_s["".join(sorted(order))] = rows[name]
    given = median_s(here["alone"]), steps_s, order
    ours, yours = (make(*given) for make in run.mine.pair("gains"))
    at, series = ("technique, in this order", [name.strip("+ ") for name in shown]), []
    for i, (title, unit) in enumerate((("Gain", CLUSTER_S), ("Scaling efficiency", "%"))):
        both = ([pair[i] for pair in pairs] for pairs in (ours, yours))
        series.append(run.mine.series("gains", title, at, *both, unit=unit))
    return series


YOURS = Yours(
    {
        "call_bytes": "the calls of each stack",
        "traffic": "their bytes",
        "exchange": "the whole step of a training",
        "gains": "what each technique gains in the bars",
    },
    measure,
)
