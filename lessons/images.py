"""What the training lessons share: images, and the AlexNet that learns them (flow.py trains it).

    images.arguments(lesson, rate=0.02)      --data, --width, --batch ...
    train, held_out = images.load(run)
    model = images.model(run, train)
    for batch in images.steps(run, train, 10): ...
"""

from pathlib import Path

import numpy as np

import kit
from refgf.nn.alexnet import AlexNet
from refgf.training.data import batches, digits
from refgf.training.folders import image_folder
from refgf.training.sgd import polynomial_decay, warmup
from refgf.training.step import replica

SEED = 1
WARMUP_EPOCHS = 2
WEIGHT_DECAY = 5e-4
DROPOUT = 0.2  # half of the units would be too many of a network an eighth as wide


def arguments(lesson: kit.Lesson, rate: float = 0.02) -> None:
    add = lesson.argument
    add("--data", type=Path, metavar="PATH", help="images as PATH/train/CLASS/*.jpg; default: the bundled digits")
    add("--skip-bad-images", action="store_true", help="go on without images that cannot be read")
    add("--image-size", type=kit.positive, default=67, metavar="PIXELS", help="67 or more")
    add("--width", type=float, default=1 / 8, help="share of AlexNet's channels (1 = full size)")
    add("--batch", type=kit.positive, default=8, help="images per rank and step")
    add("--rate", type=float, default=rate, help="learning rate")
    add("--epochs", type=kit.positive, help="epochs of the training at the end")


def load(run: kit.Run):
    """(train, held_out), and a sentence about them on the screen."""
    options = run.options
    if options.data is None:
        train, held_out = digits(options.image_size)
    else:
        train, held_out = image_folder(
            options.data, options.image_size, skip_bad_images=options.skip_bad_images, comm=run.plain
        )
    run.say(train.note)
    if train.skipped:
        run.say(f"skipped {len(train.skipped)} files: {'; '.join(train.skipped[:5])}")
    return train, held_out


def network(run: kit.Run, data, seed: int = SEED) -> AlexNet:
    """AlexNet of the lesson's width, with dropout masks of its own on each rank."""
    net = AlexNet(data.num_classes, data.image_size, run.options.width, dropout=DROPOUT, channels=data.channels)
    net.dropout_rng = np.random.default_rng([seed, run.rank])
    return net


def model(run: kit.Run, data, seed: int = SEED):
    """A replica: the network in its pools, with the same parameters on every rank."""
    return replica(network(run, data, seed), seed, weight_decay=WEIGHT_DECAY)


def steps(run: kit.Run, data, count: int):
    """`count` batches of this rank, epoch after epoch."""
    epoch = 0
    while count > 0:
        for batch in batches(data, run.options.batch * run.size, epoch, SEED, run.rank, run.size):
            if count > 0:
                yield batch
            count -= 1
        epoch += 1


def rate(run: kit.Run, step: int, steps_an_epoch: int, epochs: int) -> float:
    """The learning rate of a step: up over the first two epochs, then down along a line to nothing."""
    falling = polynomial_decay(run.options.rate, step, epochs * steps_an_epoch, power=1)
    return warmup(falling, step, min(WARMUP_EPOCHS, epochs) * steps_an_epoch)
