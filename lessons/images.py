"""What the training lessons share: images, the AlexNet that learns them, and a whole training run.

    images.arguments(lesson, rate=0.02)      --data, --width, --batch ...
    train, held_out = images.load(run)
    model = images.model(run, train)
    for batch in images.steps(run, train, 10): ...
"""

import time
from pathlib import Path

import numpy as np

import kit
from refgf.nn.alexnet import AlexNet
from refgf.training.data import batches, digits
from refgf.training.folders import image_folder
from refgf.training.step import evaluate, replica, require_same_parameters, train_step

SEED = 1
WARMUP_EPOCHS = 2
WEIGHT_DECAY = 5e-4


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


def model(run: kit.Run, data, seed: int = SEED):
    """A replica with the same parameters on every rank, and dropout masks of its own on each."""
    network = AlexNet(data.num_classes, data.image_size, width=run.options.width, channels=data.channels)
    network.dropout_rng = np.random.default_rng([seed, run.rank])
    return replica(network, seed, weight_decay=WEIGHT_DECAY)


def steps(run: kit.Run, data, count: int):
    """`count` batches of this rank, epoch after epoch."""
    epoch = 0
    while count > 0:
        for batch in batches(data, run.options.batch * run.size, epoch, SEED, run.rank, run.size):
            if count > 0:
                yield batch
            count -= 1
        epoch += 1


def learn(run: kit.Run, trained, exchange, train, held_out, epochs: int) -> list[dict]:
    """Train for some epochs; loss and accuracy of each. The rate rises over the first two epochs."""
    rows, start_s = [], time.perf_counter()
    for epoch in range(epochs):
        rate = run.options.rate * min(1, (epoch + 1) / WARMUP_EPOCHS)
        mine = [
            train_step(trained, exchange, *batch, rate=rate)
            for batch in batches(train, run.options.batch * run.size, epoch, SEED, run.rank, run.size)
        ]
        loss = float(np.mean(np.sum(run.plain.allgather(mine), axis=0)))
        average_running_statistics(run, trained.network)
        right, samples = np.sum(run.plain.allgather(evaluate(trained.network, held_out, run.rank, run.size)), axis=0)
        rows.append({"loss": loss, "accuracy": float(right / samples) if samples else None})
        told = f"{100 * right / samples:5.1f} % of {samples} held-out images right" if samples else "no images held out"
        run.say(f"epoch {epoch + 1:2d}: loss {loss:.4f}, {told}")
    same = require_same_parameters(run.plain, trained.parameters.flat)
    run.say(f"{time.perf_counter() - start_s:.1f} s; all ranks hold the same parameters: {same[:16]}...")
    return rows


def average_running_statistics(run: kit.Run, network) -> None:
    """Batch normalisation's running statistics are each rank's own until they are averaged for evaluation."""
    for array in network.running:
        array[...] = np.mean(run.plain.allgather(array.copy()), axis=0)
