"""Lesson 11 with --mine: your learning rate, and a training by your accumulation and your LARS."""

import itertools

import numpy as np

import kit
from kit import images
from kit.mine import Yours
from lab.large_batch import training
from refgf.device import to_host
from refgf.training.step import replica

MICRO, TRUST, MOMENTUM, WARMUP = 4, 0.02, 0.9, 4  # micro-batches of a batch; steps


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series, steps = run.mine, [], run.quick(6, 30)
    images.set_defaults(run.options)
    if "learning_rate" in mine:
        base, batch = run.options.rate, run.options.batch
        shown = range(0, steps + 1, max(1, steps // 10))
        both = (
            [rate(base, MICRO * batch, batch, step, steps, WARMUP) for step in shown]
            for rate in mine.pair("learning_rate")
        )
        series.append(mine.series("learning_rate", "Learning rate", ("step", shown), *both))
    if "lars_ratio" in mine:
        series.append(ratios(run))
    names = [n for n in ("accumulated", "learning_rate", "lars_step") if n in mine]
    if names:
        made = [run.on_rank_0(lambda f=f: learn(run, f, steps)) for f in (mine.ours, mine.either)]
        at = "step", range(1, 1 + steps)
        title = f"Loss, LARS, {MICRO} micro-batches a step"
        series.append(mine.series(" ".join(names), title, at, *(each or [] for each in made)))
    return series


def ratios(run: kit.Run) -> dict:
    """LARS's ratio for each kind of layer, at norms of a weight and of a gradient."""
    mine, random = run.mine, np.random.default_rng(11)
    w, g = random.standard_normal((2, 1000)).astype(np.float32)
    cases = {"equal": (w, g), "small gradient": (w, g / 100), "zero weights": (0 * w, g)}
    both = (
        [ratio(*case, TRUST, 5e-4) for case in cases.values()] for ratio in mine.pair("lars_ratio")
    )
    return mine.series("lars_ratio", "LARS's ratio of a layer", ("norms", cases), *both)


def learn(run: kit.Run, pick, steps: int) -> list[float]:
    """Losses of a training on this rank by these functions. pick: name -> function"""
    add, rate_of, lars_step = (pick(n) for n in ("accumulated", "learning_rate", "lars_step"))
    train, _ = training.images_of(run, 0)
    model = replica(training.network(run, train, 1), seed=1)
    base, each, losses = run.options.rate, run.options.batch, []
    weights, offsets = model.parameters.flat, model.parameters.offsets
    velocity = np.zeros(weights.size, np.float32)
    epochs = (training.micro_batches_of_steps(train, MICRO * each, each, e, 1) for e in range(99))
    for step, (micro, batch) in enumerate(itertools.islice(itertools.chain(*epochs), steps)):
        loss, gradients = 0.0, []
        for x, labels in micro:
            loss += float(model.network.loss(run.array(x), labels, batch))
            model.network.backward(lambda i: None)
            gradients.append(to_host(model.gradients.flat).copy())
        losses.append(loss)
        g, w = add(gradients), to_host(weights).copy()
        rate = rate_of(base, MICRO * each, each, step, steps, WARMUP)
        for spec, start, stop in zip(model.parameters.specs, offsets, offsets[1:]):
            own, decay = slice(start, stop), 5e-4
            given = w[own], velocity[own], g[own], rate, TRUST, MOMENTUM, decay, spec.decay
            w[own], velocity[own] = lars_step(*given)
        weights[:] = run.array(w)
    return losses


YOURS = Yours(
    {
        "accumulated": "the sum of micro-batches in a training",
        "learning_rate": "its rate",
        "lars_ratio": "ratios of layers",
        "lars_step": "its update",
    },
    measure,
)
