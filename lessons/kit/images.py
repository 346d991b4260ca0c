"""Images of the training lessons, and the network that learns them (flow.py trains it).

images.arguments(lesson, rate=0.02)                  --data, --width, --batch ...
images.arguments(lesson, networks=images.NETWORKS)   and --network, for ResNet-50
train, held_out = images.load(run)
train, held_out = images.fold(run, train, held_out, 3)      another fifth held out
model = images.model(run, train)
for batch in images.steps(run, train, 10): ...
"""

import itertools
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import kit
from kit import memory
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.resnet50.resnet50 import ResNet50
from refgf.machine.digits import digits, hold_out
from refgf.machine.folders import image_folder
from refgf.training.data import batches
from refgf.training.rates import polynomial_decay, warmup
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica

SEED = 1
WARMUP_EPOCHS = 2
WEIGHT_DECAY = 5e-4
DROPOUT = 0.2  # half of the units is too much for a network of an eighth of the width
NETWORKS = {"alexnet": "AlexNet", "resnet50": "ResNet-50"}
SIZES = {
    "alexnet": {"image_size": 67, "width": 1 / 8},
    "resnet50": {"image_size": 48, "width": 1 / 8},
}
DIGITS, CLASSES = 1797, 10  # the bundled images
COPIES = 5  # of parameters: weights, gradients, momentum, residual, what is sent
PASSES = 2  # of a layer's output: itself and its gradient
FULL_SIZE = {"image_size": 227, "width": 1.0}
# With 32 pixels, ResNet-50's last blocks would normalise over one pixel of each image of a rank.


def arguments(lesson: kit.Lesson, rate: float = 0.02, networks=("alexnet",)) -> None:
    add, lesson.estimate = lesson.argument, estimated_bytes
    add(
        "--data",
        type=Path,
        metavar="PATH",
        help="images as PATH/train/CLASS/*.jpg; default: the bundled digits",
    )
    add("--skip-bad-images", action="store_true", help="skip images that cannot be read")
    if len(networks) > 1:
        add("--network", choices=list(networks), default="alexnet", help="what is trained")
    add(
        "--image-size",
        type=kit.positive,
        metavar="PIXELS",
        help="AlexNet: 67 or more (67); ResNet-50: any (48)",
    )
    add("--width", type=float, help="share of the network's channels (1/8; 1 = full size)")
    add("--batch", type=kit.positive, default=8, help="images per rank and step")
    add("--rate", type=float, default=rate, help="learning rate")
    add("--epochs", type=kit.positive, help="epochs of the training at the end")


def set_defaults(options) -> None:
    """Fill in the options whose default depends on the network."""
    options.network = getattr(options, "network", "alexnet")
    for name, value in SIZES[options.network].items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def estimated_bytes(options, batch: int | None = None, full_size: bool = False) -> int:
    """Memory of a rank with this batch (None: that of the options), within a factor of two.

    COPIES of the parameters, the bundled images, and for each image of the batch its pixels and
    PASSES of each layer's output. full_size: of the network, unless the options say otherwise.
    """
    name = getattr(options, "network", None)
    usual = SIZES.get(name, SIZES["alexnet"]) if not full_size else FULL_SIZE
    size = options.image_size or usual["image_size"]
    kind = ResNet50 if name == "resnet50" else AlexNet
    net = kind(CLASSES, size, options.width or usual["width"])
    layers = [inner for layer in net.layers for inner in layer.sublayers()]
    outputs = sum(math.prod(layer.output_shape) for layer in layers)
    parameters = sum(spec.size for spec in net.tensors)
    images = (getattr(options, "batch", None) or 8) if batch is None else batch
    numbers = COPIES * parameters + images * (3 * size**2 + PASSES * outputs)
    bundled = 0 if getattr(options, "data", None) else DIGITS * size**2
    return memory.process_bytes(options) + bundled + 4 * numbers


def load(run: kit.Run):
    """(train, held_out); prints a sentence about them."""
    options = run.options
    set_defaults(options)
    if options.data is None:
        train, held_out = digits(options.image_size)
    else:
        train, held_out = image_folder(
            options.data,
            options.image_size,
            skip_bad_images=options.skip_bad_images,
            comm=run.plain,
        )
    run.say(train.note)
    if train.skipped:
        run.say(f"skipped {len(train.skipped)} files: {'; '.join(train.skipped[:5])}")
    return train, held_out


def fold(run: kit.Run, train, held_out, number: int | None, folds: int = 5):
    """(train, held_out) with another fifth held out. number=None: unchanged.

    The fifth is one of the digits, or of both sets of --data together.
    """
    if number is None:
        return train, held_out
    if run.options.data is None:
        return digits(run.options.image_size, number, folds)
    labels = np.concatenate([train.labels, held_out.labels])
    out = hold_out(labels, number, folds)

    def fetch(indices):
        in_train = indices < train.size
        samples = np.empty((len(indices), *[train.image_size] * 2, train.channels), np.uint8)
        samples[in_train] = train.fetch(indices[in_train])
        samples[~in_train] = held_out.fetch(indices[~in_train] - train.size)
        return samples  # (N, H, W, C)

    def subset(members):
        return replace(train, fetch=lambda indices: fetch(members[indices]), labels=labels[members])

    return subset(np.flatnonzero(~out)), subset(np.flatnonzero(out))


def network(
    run: kit.Run, data, seed: int = SEED, dtype=np.float32, dropout: float = DROPOUT, xp=None
):
    """The lesson's network. AlexNet has its own dropout masks on each rank; ResNet-50 has none.

    xp: numpy for a network on the host; None: the run's.
    """
    shape = data.num_classes, data.image_size, run.options.width
    workspace = Workspace(xp or run.xp, dtype)
    if run.options.network == "resnet50":
        return ResNet50(*shape, channels=data.channels, workspace=workspace)
    net = AlexNet(*shape, dropout=dropout, channels=data.channels, workspace=workspace)
    net.dropout_rng = np.random.default_rng([seed, run.rank])
    return net


def in_words(run: kit.Run) -> str:
    """The network and each rank's batch."""
    options = run.options
    return f"{NETWORKS[options.network]}, width {options.width:g}, {options.batch} images a rank"


def parameter_count(run: kit.Run, data) -> int:
    """The number of parameters of the lesson's network."""
    return sum(spec.size for spec in network(run, data).tensors)


def model(
    run: kit.Run, data, seed: int = SEED, momentum: float = 0.9, weight_decay=WEIGHT_DECAY, **more
):
    """A replica of the network with momentum SGD: the same parameters on every rank."""
    optimizer = partial(MomentumSGD, momentum=momentum, weight_decay=weight_decay)
    return replica(network(run, data, seed), optimizer, seed=seed, **more)


def steps(run: kit.Run, data, count: int):
    """`count` batches of this rank, epoch after epoch."""
    epoch = 0
    while count > 0:
        for batch in batches(data, run.options.batch * run.size, epoch, SEED, run.rank, run.size):
            if count > 0:
                yield batch
            count -= 1
        epoch += 1


def whole_batches(run: kit.Run, data, count: int, per_rank: int) -> list:
    """`count` batches of `per_rank` images for each rank, loaded in advance.

    A smaller data set gives smaller batches. Epochs follow one another.
    """
    size = run.size * min(per_rank, data.size // run.size)
    rounds = (
        batches(data, size, epoch, SEED, run.rank, run.size, drop_last=True)
        for epoch in itertools.count()
    )
    return list(itertools.islice(itertools.chain.from_iterable(rounds), count))


def rate(run: kit.Run, step: int, steps_an_epoch: int, epochs: int) -> float:
    """The learning rate of a step: a warm-up of two epochs, then a linear decay to zero."""
    falling = polynomial_decay(run.options.rate, step, epochs * steps_an_epoch, power=1)
    return warmup(falling, step, min(WARMUP_EPOCHS, epochs) * steps_an_epoch)
