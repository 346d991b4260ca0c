"""Lesson 12 with --mine: your choice, your threshold and your step in a training; your bytes."""

import numpy as np

import kit
from kit import gathered, images
from kit.mine import Yours
from lab.topk.choice import heavy_tail

PERCENTS = 0.1, 1, 10
ELEMENTS, ROUNDS = 10_000, (0, 1, 2, 4, 8, 16)


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series = run.mine, []
    x = np.abs(heavy_tail(ELEMENTS).astype(np.float64))
    at = "density", [f"{percent:g} %" for percent in PERCENTS]
    counts = [mine.ours("keep_count")(ELEMENTS, percent) for percent in PERCENTS]
    if "keep_count" in mine:
        yours = [mine["keep_count"](ELEMENTS, percent) for percent in PERCENTS]
        title = f"Elements kept of {ELEMENTS:,}"
        series.append(mine.series("keep_count", title, at, counts, yours))
    if "top_k" in mine:
        both = (
            [100 * float(x[choose(x, k)].sum() / x.sum()) for k in counts]
            for choose in mine.pair("top_k")
        )
        title = "Share of the L1 norm that is sent"
        series.append(mine.series("top_k", title, at, *both, unit="%"))
    if "threshold" in mine:
        both = (
            [search(x, counts[1], rounds)[0] for rounds in ROUNDS]
            for search in mine.pair("threshold")
        )
        title = "Lower end of the interval of the threshold"
        series.append(mine.series("threshold", title, ("rounds", ROUNDS), *both))
    if "step_bytes" in mine:
        n = ELEMENTS * run.size
        both = (
            [cost(n, percent, run.size, 4)[1] for percent in PERCENTS]
            for cost in mine.pair("step_bytes")
        )
        title = "Bytes that a rank sends, top-k"
        series.append(mine.series("step_bytes", title, at, *both, unit="bytes"))
    return [*series, training(run)] if "topk_step" in mine else series


def training(run: kit.Run) -> dict:
    """Losses of a training whose sums are those of `topk_step`, at 1 %."""
    train, _ = images.load(run)
    k = max(1, images.parameter_count(run, train) // 100)
    steps = run.quick(6, 30)
    made = [
        gathered.losses(run, train, TopKSums(step, k), steps) for step in run.mine.pair("topk_step")
    ]
    return run.mine.series("topk_step", "Loss, 1 % sent", ("step", range(1, 1 + steps)), *made)


class TopKSums:
    """sums(gradients of all ranks, rank) with error feedback."""

    def __init__(self, step, k: int) -> None:
        self.step, self.k, self.residuals = step, k, list[np.ndarray]()

    def __call__(self, gradients: list[np.ndarray], rank: int) -> np.ndarray:
        residuals = self.residuals or [np.zeros_like(g) for g in gradients]
        sums, self.residuals = self.step(gradients, residuals, self.k)
        return sums


YOURS = Yours(
    {
        "keep_count": "how many elements are kept",
        "top_k": "which ones",
        "threshold": "the search for their threshold",
        "topk_step": "the step of a training",
        "step_bytes": "bytes",
    },
    measure,
)
