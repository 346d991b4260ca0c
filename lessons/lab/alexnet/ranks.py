"""Lesson 02's step on p ranks against the same step on one: equal within the bound on rounding."""

from functools import partial

import numpy as np

import kit
from kit.virtual import NoExchange
from refgf.comm.ring import ring_allreduce
from refgf.comm.slices import length, slices
from refgf.device import to_host
from refgf.exchange.dense import DenseExchange, Transport
from refgf.exchange.lazy import Theta
from refgf.machine.digits import digits
from refgf.machine.folders import image_folder
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.oracle.definitions import alexnet_rounding, momentum_rounding
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica, require_same_parameters, train_step

SMALL = {"image_size": 67, "width": 1 / 16}
RATE, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 5e-4
UNIT = 2.0**-53  # the unit roundoff of float64
NOISE = 0.1  # on images of variance 1
TENSORS = 16  # of AlexNet without normalisation
SHOWN_RANKS = 12
SEED = 1


def few_images(run: kit.Run, count: int):
    """`count` images with a little noise, their labels, the number of classes.

    Without noise two pixels of a pooling window may be equal, as in a black background, and
    rounding decides which of them gets the gradient.
    """
    size, options = SMALL["image_size"], run.options
    if options.data is None:
        train, _ = digits(size)
    else:
        train, _ = image_folder(
            options.data, size, skip_bad_images=options.skip_bad_images, comm=run.plain
        )
    if train.size < count:
        raise ValueError(
            f"lesson 02: got {train.size} images; wanted {count} for {run.size} ranks; "
            "next: fewer ranks"
        )
    images, labels = train.load(np.linspace(0, train.size - 1, count).astype(int))
    noise = NOISE * np.random.default_rng(SEED).standard_normal(images.shape)
    return images + noise, labels, train.num_classes


def compare_with_one(run: kit.Run, images, labels, classes: int) -> dict:
    """Take the step on p ranks, on one, and with the average of the ranks' averages."""
    run.section(f"The same step on {run.size} rank{'s' * (run.size > 1)}")
    count = len(labels)
    shards = slices(count, run.size)
    mine = shards[run.rank]
    counts = [str(length(shard)) for shard in shards[:SHOWN_RANKS]]
    counts += ["..."] * (run.size > SHOWN_RANKS)
    run.say(f"{count} images, {'/'.join(counts)} on the ranks. Every gradient is sent at once")
    run.say("by the ring. A small AlexNet in float64, without normalisation and dropout.")
    run.comm.reset()
    model = small_model(run, classes)
    eager = Transport(ring_allreduce(run.comm), Theta(0))
    exchange = DenseExchange(model.gradients, eager, model.loss_scale)
    train_step(model, exchange, images[mine], labels[mine], count, RATE)
    messages = 2 * (run.size - 1)
    if (len(exchange.calls), run.comm.messages) != (TENSORS, TENSORS * messages):
        raise AssertionError(
            f"eager step on rank {run.rank}: got {len(exchange.calls)} calls with "
            f"{run.comm.messages} messages; wanted {TENSORS} with {messages} each"
        )
    require_same_parameters(run.plain, model.parameters.flat)
    averaged = average_of_averages(run, images[mine], labels[mine], classes)
    return run.on_rank_0(lambda: against_one(run, model, averaged, images, labels))


def small_model(run: kit.Run, classes: int):
    space = Workspace(run.xp, np.float64)
    network = AlexNet(classes, normalization="none", dropout=0.0, workspace=space, **SMALL)
    optimizer = partial(MomentumSGD, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    return replica(network, optimizer, seed=SEED)


def average_of_averages(run: kit.Run, images, labels, classes: int) -> np.ndarray:
    """A mistake: each rank divides by its own batch, and the sum is divided by p."""
    model = small_model(run, classes)
    train_step(model, NoExchange(), images, labels, max(1, len(labels)), RATE)
    return sum(run.gather(model.gradients.flat)) / run.size


def against_one(run: kit.Run, model, averaged, images, labels) -> dict:
    """On rank 0: compare the step of p ranks with that of one rank and the bound on rounding."""
    one, tensors = small_model(run, model.network.num_classes), model.network.tensors
    before, nothing = to_host(one.parameters.flat).copy(), np.zeros(one.parameters.flat.size)
    views = [to_host(view) for view in one.parameters.views]
    rounding = alexnet_rounding(images, labels, views, len(labels), UNIT)
    train_step(one, NoExchange(), images, labels, len(labels), RATE)
    g, bound = (
        np.concatenate([array.reshape(-1) for array in arrays])
        for arrays in (rounding.gradients, rounding.bounds)
    )
    decay = np.concatenate([np.full(spec.size, WEIGHT_DECAY * spec.decay) for spec in tensors])
    allowed, _ = momentum_rounding(
        before, nothing, g, (nothing, nothing, 2 * bound), RATE, MOMENTUM, decay, UNIT
    )
    summed = to_host(model.gradients.flat)
    difference, wrong = (np.abs(flat - to_host(one.gradients.flat)) for flat in (summed, averaged))
    moved = np.abs(to_host(model.parameters.flat - one.parameters.flat))
    offsets = model.gradients.offsets
    rows = [
        [spec.name, *(f"{x[a:b].max():.1e}" for x in (np.abs(g), difference, 2 * bound, wrong))]
        for spec, a, b in zip(tensors, offsets, offsets[1:])
        if spec.name.endswith("weight")
    ]
    ranks = f"{run.size} ranks - 1 rank"
    wrong_title = "average of averages - 1 rank"
    run.table(["gradient", "largest element", ranks, "allowed", wrong_title], rows)
    run.say("allowed: the bound on rounding that refgf/oracle/spec/rounding.py derives.")
    run.say("The last column shows a common mistake: every rank averages over its own images, then")
    run.say("the averages are averaged. Shards of different sizes expose it.")
    if rounding.doubtful:
        run.say(f"{rounding.doubtful} choices of ReLU or pooling are too close to call.")
        run.say("This batch proves nothing.")
    elif (difference > 2 * bound).any() or (moved > allowed).any():
        raise AssertionError(
            f"step on {run.size} ranks: got a difference from one rank above the bound on rounding"
        )
    else:
        count, largest = np.count_nonzero(moved), f"{moved.max():.1e}"
        run.say("All differences are within the bound.")
        run.say(f"After the update {count} of {len(g)} parameters differ, by {largest} at most.")
    if len(labels) % run.size and run.size > 1 and not (wrong > 2 * bound).any():
        raise AssertionError("average of averages: got a result within the bound; wanted another")
    return {
        "largest_difference": difference.max(),
        "largest_bound": 2 * bound.max(),
        "average_of_averages": wrong.max(),
    }
