"""Lesson 16 with --mine: your step in a training; your counts of what is held and sent."""

import numpy as np

import kit
from kit import images
from kit.mine import Yours
from refgf.device import to_host

STAGES, ELEMENTS, MOMENTUM = range(4), 1003, 0.9
GRID = np.float32(2**16)  # gradients are rounded to multiples of its inverse


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series, p = run.mine, [], max(2, run.size)
    if "own_slice" in mine:
        both = ([own(ELEMENTS, p, r)[0] for r in range(p)] for own in mine.pair("own_slice"))
        title = f"First of {ELEMENTS:,} elements that a rank owns"
        series.append(mine.series("own_slice", title, ("rank", range(p)), *both))
    at = "ZeRO stage, 0: all hold all", STAGES
    if "held" in mine:
        both = (
            [4 * sum(held(ELEMENTS, p, p - 1, stage, 1)) for stage in STAGES]
            for held in mine.pair("held")
        )
        series.append(mine.series("held", "Bytes that a rank holds", at, *both, unit="bytes"))
    if "step_elements" in mine:
        n = 1000 * p
        both = ([4 * sent(n, p, s) for s in STAGES] for sent in mine.pair("step_elements"))
        title = "Bytes that a rank sends in a step"
        series.append(mine.series("step_elements", title, at, *both, unit="bytes"))
    return [*series, training(run)] if "sharded_step" in mine else series


def training(run: kit.Run) -> dict:
    """Losses of a training whose updates are those of `sharded_step`."""
    train, _ = images.load(run)
    steps = run.quick(6, 30)
    made = [losses(run, train, step, steps) for step in run.mine.pair("sharded_step")]
    return run.mine.series("sharded_step", "Loss", ("step", range(1, 1 + steps)), *made)


def losses(run: kit.Run, train, sharded_step, steps: int) -> list[float]:
    """Every rank receives all gradients and calls the function: what is learnt, not how fast."""
    model, own = images.model(run, train), run.mine.ours("own_slice")
    weights, mine = model.parameters.flat, []
    bounds = [own(weights.size, run.size, rank) for rank in range(run.size)]
    velocities = [np.zeros(stop - start, np.float32) for start, stop in bounds]
    for samples, labels, batch in images.steps(run, train, steps):
        mine.append(float(model.network.loss(samples, labels, batch)))
        model.network.backward(lambda i: None)
        gathered = run.gather(model.gradients.flat.copy())
        gradients = [np.round(g * GRID) / GRID for g in gathered]  # exact sums in any order
        w = to_host(weights).copy()
        w, velocities = sharded_step(w, velocities, gradients, run.options.rate, MOMENTUM)
        weights[:] = run.array(np.asarray(w))
    return np.sum(run.plain.allgather(mine), axis=0).tolist()


YOURS = Yours(
    {
        "own_slice": "who owns what",
        "held": "what a rank holds",
        "sharded_step": "the step of a training",
        "step_elements": "what a rank sends",
    },
    measure,
)
