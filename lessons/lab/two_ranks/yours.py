"""Lesson 00 with --mine: your sum through rank 0, your gradient and your step in the training."""

from functools import partial

import numpy as np

import kit
from kit.mine import Yours
from kit.words import count
from lab.two_ranks.naive import through_rank_0
from lab.two_ranks.training import FEATURES, RATE, SAMPLES, TRUTH, samples

SIZES = 10, 1000, 100_000  # float64


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series = run.mine, []
    if "sum_of_ranks" in mine:
        series.append(times(run))
    steps = run.quick(50, 300)
    every = [samples(rank, steps) for rank in range(run.size)]
    shown = list(range(0, steps, steps // 10))
    at = "step", [step + 1 for step in shown]
    if {"gradient", "loss"} & set(mine.functions):
        one = [np.concatenate(both, axis=1) for both in zip(*every)]  # all samples on one rank
        made = [descend(one, *map(pick, ("loss", "gradient"))) for pick in (mine.ours, mine.either)]
        names = " ".join(name for name in ("loss", "gradient") if name in mine)
        losses = ([each[step] for step in shown] for each in made)
        series.append(mine.series(names, "Loss on one rank", at, *losses))
    if "step_on_ranks" in mine:
        both = mine.pair("step_on_ranks")
        made = [distances(unequal(every), step) for step in both]
        far = ([each[step] for step in shown] for each in made)
        title = f"Distance to the true weights; rank 0 has {SAMPLES} samples, others 1"
        series.append(mine.series("step_on_ranks", title, at, *far))
    return series


def times(run: kit.Run) -> dict:
    """The sum through rank 0, yours and this module's in turn."""
    functions, made = {"ours": through_rank_0, "yours": run.mine["sum_of_ranks"]}, {}
    for n in SIZES:
        x = np.zeros(n)
        calls = {name: partial(function, run.comm, x) for name, function in functions.items()}
        made[n] = run.alternate(calls, run.quick(3, 20))
    run.comm.reset()
    run.mine["sum_of_ranks"](run.comm, np.zeros(SIZES[0]))
    both = ([each[name] for each in made.values()] for name in functions)
    at, note = ("numbers of each rank", SIZES), count(run.comm.messages, "message")
    more = {"unit": "s", "note": f"{note} of rank 0"}
    return run.mine.series("sum_of_ranks", "Time of a sum through rank 0", at, *both, **more)


def descend(data, loss, gradient) -> list[float]:
    """The loss before each step of one rank. data: x (steps, samples, features), y"""
    w, losses = np.zeros(FEATURES), []
    for x, y in zip(*data):
        losses.append(loss(w, x, y))
        w = w - RATE * gradient(w, x, y)
    return losses


def unequal(every: list) -> list:
    """Rank 0's samples and one of each other rank: a mean of the ranks' means is wrong for them."""
    return [every[0], *((x[:, :1], y[:, :1]) for x, y in every[1:])]


def distances(every: list, step_on_ranks) -> list[float]:
    """The largest of any weight of any rank after each step. Rank 0's weights begin the next step.

    every: [(x, y) of a rank]
    """
    w, far = np.zeros(FEATURES), []
    for batches in zip(*(each[0] for each in every), *(each[1] for each in every)):
        xs, ys = list(batches[: len(every)]), list(batches[len(every) :])
        ws = step_on_ranks(w, xs, ys, RATE)
        far.append(float(np.abs(np.asarray(ws) - TRUTH).max()))
        w = np.asarray(ws[0])
    return far


YOURS = Yours(
    {
        "sum_of_ranks": "timed",
        "loss": "of one rank's training",
        "gradient": "of the same training",
        "step_on_ranks": "a training of all ranks",
    },
    measure,
)
