"""Lesson 06 with --mine: a sparse training whose chunks, norms, choice and step are yours."""

from collections.abc import Callable

import numpy as np

import kit
from kit import flow, gathered, images
from kit.mine import Yours

NAMES = "chunk_bounds", "importance", "choose", "csc_step"


def measure(run: kit.Run, found: dict) -> list[dict]:
    """Form `none`: losses, what is sent, how often the shorter last chunk is, and what never is.

    Without momentum: it multiplies what ten steps send at once, which hides the gain.
    """
    mine, written = run.mine, [name for name in NAMES if name in run.mine]
    if not written:
        return []
    train, _ = images.load(run)
    n, steps = images.parameter_count(run, train), run.quick(8, 40)
    chunk = flow.chunk_of(run, n)
    if chunk > 1 and n % chunk == 0:
        chunk -= 1  # the last chunk is to be shorter
    ours = {name: mine.ours(name) for name in NAMES} | {"importance": importance}
    trained = []
    for functions in (ours, {name: mine[name] if name in mine else ours[name] for name in NAMES}):
        sparse = Sparse(functions, n, chunk, run.options.density)
        losses = gathered.losses(run, train, sparse, steps, momentum=0.0)
        trained.append((losses, sparse.elements, np.cumsum(sparse.last).tolist(), sparse.never))
    titles = {
        f"Loss without momentum, {run.options.density:g} % of the chunks are sent": "",
        "Elements that a rank packs": "",
        "Steps so far that sent the shorter last chunk": "",
        "Chunks that no sparse step has sent yet": "%",
    }
    names, at, values = " ".join(written), ("step", range(1, 1 + steps)), zip(*trained)
    return [mine.series(names, title, at, *next(values), unit=titles[title]) for title in titles]


class Sparse:
    """sums(gradients of all ranks, rank): CSC by these four functions, the first step dense."""

    def __init__(self, functions: dict[str, Callable], n: int, chunk: int, percent: float) -> None:
        self.does, self.n, self.chunk, self.percent = functions, n, chunk, percent
        self.bounds = functions["chunk_bounds"](n, chunk)
        self.chosen = list(range(len(self.bounds)))
        self.residuals: list[np.ndarray] = []
        self.elements, self.last = list[int](), list[bool]()
        self.unsent, self.never = np.ones(len(self.bounds), bool), list[float]()  # percent

    def __call__(self, gradients: list[np.ndarray], rank: int) -> np.ndarray:
        residuals = self.residuals or [np.zeros_like(g) for g in gradients]
        waiting = [g + kept for g, kept in zip(gradients, residuals)]
        step = self.does["csc_step"]
        packed, self.residuals = step(gradients, residuals, list(self.chosen), self.chunk)
        sums, at = np.zeros(self.n, np.float32), 0
        for start, stop in (self.bounds[c] for c in self.chosen):
            sums[start:stop] = packed[at : at + stop - start]
            at += stop - start
        self.elements.append(len(packed))
        self.last.append(len(self.bounds) - 1 in list(self.chosen))
        if len(self.never):  # the first step is dense
            self.unsent[list(self.chosen)] = False
        self.never.append(100 * float(self.unsent.mean()))
        self.chosen = self.does["choose"](
            self.does["importance"](waiting, self.chunk), self.percent
        )
        return sums


def importance(waiting: list[np.ndarray], chunk: int) -> np.ndarray:
    """The definition's, up to rounding: it adds exactly, which takes too long here."""
    norms = sum(np.abs(x.astype(np.float64)) for x in waiting)  # (n,)
    starts = np.arange(0, norms.size, chunk)
    return np.add.reduceat(norms, starts) / np.diff([*starts, norms.size])


YOURS = Yours(
    {
        "chunk_bounds": "the chunks of a sparse training",
        "importance": "its norms",
        "choose": "its choice",
        "csc_step": "what it sends and keeps",
    },
    measure,
)
