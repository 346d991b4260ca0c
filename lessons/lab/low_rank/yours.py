"""Lesson 17 with --mine: your sum of low rank in a training; elements, columns, bytes, votes."""

import numpy as np

import kit
from kit import gathered, images
from kit.mine import Yours
from lab.low_rank.learning import tensors

SHAPES = (9,), (9, 8), (3, 3, 8, 16), (128, 10)
KINDS = "floats", "votes", "signs", "pairs"
ELEMENTS = 8000


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series, p = run.mine, [], max(2, run.size)
    if "factor_elements" in mine:
        both = (
            [sum(count(shape, 1)) for shape in SHAPES] for count in mine.pair("factor_elements")
        )
        at = "shape", [" x ".join(map(str, shape)) for shape in SHAPES]
        series.append(mine.series("factor_elements", "Elements sent, rank 1", at, *both))
    if "orthogonal" in mine:
        drawn = np.random.default_rng(0).standard_normal((20, 4))
        both = (
            [
                round(abs(float(found[:, i] @ found[:, j])), 9)
                for i, j in ((0, 0), (1, 1), (0, 1), (2, 3))
            ]
            for found in (make(drawn.copy()) for make in mine.pair("orthogonal"))
        )
        at = "columns", ["0, 0", "1, 1", "0, 1", "2, 3"]
        series.append(mine.series("orthogonal", "Product of two columns", at, *both))
    if "sent_bytes" in mine:
        both = ([sent(kind, ELEMENTS, p) for kind in KINDS] for sent in mine.pair("sent_bytes"))
        title = f"Bytes that a rank sends of {ELEMENTS:,}"
        series.append(mine.series("sent_bytes", title, ("kind", KINDS), *both, unit="bytes"))
    if "majority" in mine:
        ranks, drawn = (1, 2, 3, 8, 32), np.random.default_rng(1)
        given = [1 + 2 * drawn.standard_normal((count, 1000)) for count in ranks]
        both = (
            [100 * float((vote(g.copy()) > 0).mean()) for g in given]
            for vote in mine.pair("majority")
        )
        title = "Right signs of a vote; a gradient's noise is twice its size"
        series.append(mine.series("majority", title, ("ranks", ranks), *both, unit="%"))
    return [*series, training(run)] if "low_rank_sum" in mine else series


def training(run: kit.Run) -> dict:
    """Losses of a training whose sums are those of `low_rank_sum`, rank 1."""
    train, _ = images.load(run)
    shapes, _ = tensors(run, train)
    steps = run.quick(6, 30)
    made = [
        gathered.losses(run, train, LowRankSums(run, total, shapes), steps)
        for total in run.mine.pair("low_rank_sum")
    ]
    at = "step", range(1, 1 + steps)
    return run.mine.series("low_rank_sum", "Loss, PowerSGD of rank 1", at, *made)


class LowRankSums:
    """sums(gradients of all ranks, rank) with error feedback and warm start, in float64."""

    def __init__(self, run: kit.Run, total, shapes: list) -> None:
        self.total, self.shapes, self.elements = total, shapes, run.mine.ours("factor_elements")
        rng = np.random.default_rng(0)
        self.qs = [rng.standard_normal((s[-1], 1)) for s in shapes]
        self.errors: list[list] = [[0.0] * run.size for _ in shapes]

    def __call__(self, gradients: list[np.ndarray], rank: int) -> np.ndarray:
        sums, start = sum(gradients), 0
        for i, shape in enumerate(self.shapes):
            part = slice(start, start + int(np.prod(shape)))
            start = part.stop
            if self.elements(shape, 1)[1]:
                given = [np.float64(g[part]).reshape(-1, shape[-1]) for g in gradients]
                ms = [m + error for m, error in zip(given, self.errors[i])]
                sums_of_part, self.qs[i], self.errors[i] = self.total(ms, self.qs[i])
                sums[part] = np.reshape(sums_of_part, -1)
        return sums


YOURS = Yours(
    {
        "factor_elements": "elements that are sent",
        "orthogonal": "its columns",
        "low_rank_sum": "the sums of a training",
        "sent_bytes": "bytes",
        "majority": "signs that a vote gets right",
    },
    measure,
)
