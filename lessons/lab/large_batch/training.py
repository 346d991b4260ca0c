"""Complete trainings of lesson 11, each on one rank: micro-batches accumulated, then evaluated.

    train, held_out = training.images_of(run, 3)               fold 3
    result = training.learn(run, rules, cell, exponent, fold, seed)

A cell is (optimiser, with warm-up?, batch, epochs). `rules`: the lesson's learning rate and step.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import kit
from kit import images
from refgf.machine.digits import digits
from refgf.machine.folders import image_folder
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.jia.lars import LARS
from refgf.training.data import batches, steps_per_epoch
from refgf.training.evaluation import evaluate
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica


@dataclass(frozen=True)
class Rules:
    """The lesson's functions.

    rate  (base rate, batch, step, steps, with warm-up?) -> learning rate
    step  (model, micro-batches, batch, rate) -> loss
    """

    rate: Callable
    step: Callable


def images_of(run: kit.Run, number: int):
    """(train, held_out) of a fold.

    A folder of images has one split only: tuning and judging use it with different seeds.
    """
    options = run.options
    number = number if options.data is None else 0
    return fold(options.data, options.image_size, options.skip_bad_images, number)


@functools.cache
def fold(data, image_size: int, skip_bad_images: bool, number: int):
    """The grey digits with fold `number` held out, or a folder of images with its own split."""
    if data is None:
        return digits(image_size, number, channels=1)
    return image_folder(data, image_size, skip_bad_images=skip_bad_images)


def network(run: kit.Run, data, seed: int, dropout: float = images.DROPOUT) -> AlexNet:
    shape = data.num_classes, data.image_size, run.options.width
    space = Workspace(run.xp, images_per_block=64)
    net = AlexNet(*shape, dropout=dropout, channels=data.channels, workspace=space)
    net.dropout_rng = np.random.default_rng([seed, 11])
    return net


def micro_batches_of_steps(data, batch: int, per_rank: int, epoch: int, seed: int):
    """Yields for each step (its micro-batches of `per_rank` images, the size of its batch).

    Micro-batches are loaded lazily: a batch of the whole data set need not fit in memory.
    """
    ranks = -(-batch // per_rank)
    streams = [batches(data, batch, epoch, seed, rank, ranks) for rank in range(ranks)]
    for step in range(steps_per_epoch(data.size, batch)):
        yield (next(stream)[:2] for stream in streams), min(batch, data.size - step * batch)


def learn(run: kit.Run, rules: Rules, cell: tuple, exponent: int, number: int, seed: int) -> dict:
    """Accuracy in percent and loss of one training at 2^exponent times the base rate."""
    (optimizer, warm, batch, epochs), (train, held_out) = cell, images_of(run, number)
    kind = functools.partial(LARS, trust=run.options.trust) if optimizer == "LARS" else MomentumSGD
    update = functools.partial(kind, weight_decay=images.WEIGHT_DECAY)
    model = replica(network(run, train, seed), update, seed=seed)
    steps, step, losses = epochs * steps_per_epoch(train.size, batch), 0, []
    base_rate, per_rank = run.options.rate * 2.0**exponent, min(batch, run.options.batch)
    for epoch in range(epochs):
        losses = []
        for micro_batches, size in micro_batches_of_steps(train, batch, per_rank, epoch, seed):
            rate = rules.rate(base_rate, batch, step, steps, warm)
            # Some rates of the search are too large on purpose, so the numbers overflow.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                losses.append(rules.step(model, micro_batches, size, rate))
            step += 1
        if not np.isfinite(losses).all():
            return {"accuracy": 0.0, "loss": float("inf")}  # it diverged
    recompute_statistics(model, train, run.options.batch)
    right, samples = evaluate(model.network, held_out, 0, 1)
    return {"accuracy": 100 * right / max(1, samples), "loss": float(np.mean(losses))}


def recompute_statistics(model, data, batch: int, count: int = 8) -> None:
    """Set the running statistics to the mean over `count` batches with the final weights.

    After a dozen steps the running statistics would still be half initial values. That would
    spoil the evaluation of large batches only.
    """
    momentum = [layer.momentum for layer in model.network.normalizations]
    for number in range(min(count, -(-data.size // batch))):
        inputs, labels = data.load(np.arange(number * batch, min(data.size, (number + 1) * batch)))
        for layer in model.network.normalizations:
            layer.momentum = 1 / (number + 1)
        model.network.loss(inputs, labels, len(inputs))
        model.network.accept()
    for layer, before in zip(model.network.normalizations, momentum):
        layer.momentum = before
