"""Lesson 02: AlexNet - which layer makes which gradient, when, and how large.

    mpiexec -n 8 python lessons/02_alexnet.py
    options: --width, --image-size, --batch, --data PATH, --quick, --full, --plot

QUESTION    A training step makes 26 gradients, and every one must be summed over all ranks. Where
            does the step spend its time? Where are the bytes? When is each gradient ready to be
            sent?
IDEA        Backward goes through the layers from the last to the first and finishes a gradient in
            each. A convolution uses every weight at every pixel: few weights, much work. A fully
            connected layer uses every weight once per image: many weights, little work.
            (refgf/nn/conv.py, alexnet.py; training/step.py)
PREDICTION  A layer cannot be faster than its arithmetic or its memory allows:

                time = max(flops / R, bytes / W)

                R    flop/s of a matrix product, measured
                W    bytes/s of a copy, measured

            A gradient is ready once backward has finished all later layers and this layer's weight
            product.

            When p ranks share a batch B, however unevenly, they add the same numbers as one rank
            would. Only the order of summation differs. A bound on rounding says how far apart the
            two results may be.

Before you run it, write down: AlexNet has 62 million parameters and takes 1.1 billion multiply-adds
per image, forward. What share of the parameters do the five convolutions hold? What share of the
multiply-adds do they take? After what share of the backward pass are nine tenths of the gradients'
bytes ready?

This is strong scaling: in the last section p ranks share one batch of 2p + 1 images. The times are
those of one rank.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/02_alexnet.py)
    1. From how many images per rank on do the fully connected layers take longer to compute than to
       read? Predict it with the R and W that this lesson prints, then try --batch.
    2. A colleague lets every rank divide its loss by its own batch, and divides the sum by p. For
       which shards is that right?
    3. A colleague lays the pool out with the first layer first. When could the first of four equal
       quarters of it be sent?
    4. Let measured_steps make AlexNet(..., convolution=minimal_filtering), from
       refgf.engine.minimal, and run it again without --quick. conv2's time falls below the
       prediction, although no product became faster. Why? Check on paper that the four products in
       minimal.py make two outputs.
"""

import refgf.launch  # noqa: F401  before MPI starts

import time
from functools import partial
from pathlib import Path

import numpy as np

import kit
from kit import axes, layers
from lab import layer_tables
from lab.layer_claims import CLAIMS
from refgf.comm.ring import ring_allreduce
from refgf.comm.slices import length, slices
from refgf.exchange.dense import DenseExchange, Transport
from refgf.exchange.lazy import Theta
from refgf.exchange.result import StepResult
from refgf.exchange.pool import Pool
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.oracle.definitions import alexnet_rounding, central_differences, momentum_rounding
from refgf.papers.scaling.workloads import alexnet
from refgf.machine.digits import digits
from refgf.machine.folders import image_folder
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica, require_same_parameters, train_step

SMALL = {"image_size": 67, "width": 1 / 16}  # where gradients are checked
RATE, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 5e-4
UNIT = 2.0**-53  # the unit roundoff of float64
NOISE = 0.1  # on images of variance 1
SEED = 1


def measure(run: kit.Run) -> dict:
    batch = few_images(run, 2 * run.size + 1)
    check_gradients(run)
    measured = time_layers(run)
    ranks = compare_with_one_rank(run, *batch)
    return {"layers": measured, "ranks_against_one": ranks}


# ---- one step: forward, backward, and a clock ----


def timed_step(network, images, labels):
    """[(event, seconds since the event before)] of a step without exchange and update.

    First come the events (layer, "forward"), then (number of a gradient, "ready") and
    (layer, "backward").
    """
    events, last_s = [], time.perf_counter()

    def mark(name, what):
        nonlocal last_s
        now_s = time.perf_counter()
        events.append(((name, what), now_s - last_s))
        last_s = now_s

    network.loss(images, labels, len(images), mark)
    network.backward(lambda i: mark(i, "ready"), mark)
    return events


# ---- the oracle ----


def check_gradients(run: kit.Run) -> None:
    """Compare gradients with central differences on a small network in float64, on rank 0."""
    run.section("The oracle: are the gradients right?")
    run.say("(loss(w + h) - loss(w - h)) / 2h with h = 1e-7, for a few elements w of each layer")
    run.say("of a small AlexNet in float64:")
    rows = run.on_rank_0(lambda: differences(run.quick(2, 5)))
    run.table(
        ["layer", "elements tried", "norm of its gradient", "largest difference / norm"], rows or []
    )
    run.say("A normalisation removes the shift of the bias before it, so this bias has gradient 0.")


def differences(elements: int) -> list[list]:
    """One row for each layer with parameters.

    AssertionError where the difference is above 1e-6 of the gradient's norm.
    """
    model = replica(
        AlexNet(10, dropout=0.0, workspace=Workspace(dtype=np.float64), **SMALL), seed=SEED
    )
    network, random = model.network, np.random.default_rng(SEED)
    images, labels = random.standard_normal((3, *network.image_shape)), random.integers(0, 10, 3)
    network.loss(images, labels, 3)
    network.backward(lambda i: None)
    found = {}  # layer: [elements tried, norm, largest difference]
    for spec, w, g in zip(network.tensors, model.parameters.views, model.gradients.views):
        w, g = w.reshape(-1), g.reshape(-1)
        chosen = np.unique([np.abs(g).argmax(), *random.integers(0, w.size, elements)])

        def loss_with(values, w=w, chosen=chosen):
            w[chosen] = values
            return network.loss(images, labels, 3)

        before = w[chosen]
        off = np.abs(central_differences(loss_with, before, 1e-7) - g[chosen]).max()
        w[chosen] = before
        layer = spec.name.split(".")[0]
        tried, norm, largest = found.get(layer, (0, 0.0, 0.0))
        norm = max(norm, float(np.linalg.norm(g)))
        found[layer] = (tried + len(chosen), norm, max(largest, off))
    for layer, (_, norm, off) in found.items():
        if off > 1e-6 * norm:
            raise AssertionError(
                f"gradient of {layer}: got {off} off central differences; wanted 1e-6 x {norm}"
            )
    return [
        [layer, tried, f"{norm:.3g}", f"{off / norm:.1e}"]
        for layer, (tried, norm, off) in found.items()
    ]


# ---- the measurement: one step of one rank ----


def time_layers(run: kit.Run) -> dict:
    options = run.options
    size = options.image_size or run.quick(67, 227)
    width = options.width or run.quick(1 / 8, 1.0)
    batch, classes = options.batch or run.quick(8, 8, 32), run.quick(10, 1000)
    run.section("One step, layer by layer")
    run.say(f"{size} x {size} pixels, width {width:g}, {batch} images, {classes} classes")
    result = run.on_rank_0(
        lambda: measured_steps(size, width, batch, classes, run.quick(15, 7, 11))
    )
    if run.rank == 0:
        layer_tables.show(run, result)
        layers.show_ready(run, result)
    return result


def measured_steps(size, width, batch, classes, repeats) -> dict:
    network = AlexNet(classes, size, width)
    network.bind(*(Pool(network.tensors).views for _ in range(2)))
    network.initialize(SEED)
    random = np.random.default_rng(SEED)
    images = random.standard_normal((batch, *network.image_shape), dtype=np.float32)
    labels = random.integers(0, classes, batch)
    steps = [timed_step(network, images, labels) for _ in range(1 + repeats)]
    del steps[0]  # it allocates memory
    return layers.compare(network, alexnet(classes, size, width), batch, steps)


# ---- the same step on p ranks ----


def compare_with_one_rank(run: kit.Run, images, labels, classes: int) -> dict:
    run.section(f"The same step on {run.size} rank{'s' * (run.size > 1)}")
    count = len(labels)
    shards = slices(count, run.size)
    mine = shards[run.rank]
    counts = [str(length(shard)) for shard in shards[:12]] + ["..."] * (run.size > 12)
    run.say(f"{count} images, {'/'.join(counts)} on the ranks. Every gradient is sent at once")
    run.say("by the ring. A small AlexNet in float64, without normalisation and dropout.")
    run.comm.reset()
    model = small_model(classes)
    eager = Transport(ring_allreduce(run.comm), Theta(0))
    exchange = DenseExchange(model.gradients, eager, model.loss_scale)
    train_step(model, exchange, images[mine], labels[mine], count, RATE)
    if (len(exchange.calls), run.comm.messages) != (16, 16 * 2 * (run.size - 1)):
        raise AssertionError(
            f"eager step on rank {run.rank}: got {len(exchange.calls)} calls with "
            f"{run.comm.messages} messages; wanted 16 with {2 * (run.size - 1)} each"
        )
    require_same_parameters(run.plain, model.parameters.flat)
    averaged = average_of_averages(run, images[mine], labels[mine], classes)
    return run.on_rank_0(lambda: against_one(run, model, averaged, images, labels))


def few_images(run: kit.Run, count: int):
    """`count` images with a little noise.

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


def small_model(classes: int):
    space = Workspace(dtype=np.float64)
    network = AlexNet(classes, normalization="none", dropout=0.0, workspace=space, **SMALL)
    optimizer = partial(MomentumSGD, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    return replica(network, optimizer, seed=SEED)


class NoExchange:
    """The exchange of a single rank: nothing."""

    def ready(self, i):
        pass

    def finish(self):
        return StepResult()


def average_of_averages(run: kit.Run, images, labels, classes: int):
    """A mistake: each rank divides by its own batch, and the sum is divided by p."""
    model = small_model(classes)
    train_step(model, NoExchange(), images, labels, max(1, len(labels)), RATE)
    return sum(run.gather(model.gradients.flat)) / run.size


def against_one(run: kit.Run, model, averaged, images, labels) -> dict:
    """On rank 0: compare the step of p ranks with that of one rank and the bound on rounding."""
    one, tensors = small_model(model.network.num_classes), model.network.tensors
    before, nothing = one.parameters.flat.copy(), np.zeros(one.parameters.flat.size)
    rounding = alexnet_rounding(images, labels, one.parameters.views, len(labels), UNIT)
    train_step(one, NoExchange(), images, labels, len(labels), RATE)
    g, bound = (
        np.concatenate([array.reshape(-1) for array in arrays])
        for arrays in (rounding.gradients, rounding.bounds)
    )
    decay = np.concatenate([np.full(spec.size, WEIGHT_DECAY * spec.decay) for spec in tensors])
    allowed, _ = momentum_rounding(
        before, nothing, g, (nothing, nothing, 2 * bound), RATE, MOMENTUM, decay, UNIT
    )
    difference, wrong = (
        np.abs(flat - one.gradients.flat) for flat in (model.gradients.flat, averaged)
    )
    moved = np.abs(model.parameters.flat - one.parameters.flat)
    offsets = model.gradients.offsets
    rows = [
        [spec.name, *(f"{x[a:b].max():.1e}" for x in (np.abs(g), difference, 2 * bound, wrong))]
        for spec, a, b in zip(tensors, offsets, offsets[1:])
        if spec.name.endswith("weight")
    ]
    ranks = f"{run.size} ranks - 1 rank"
    wrong_title = "average of averages - 1 rank"
    run.table(["gradient", "largest element", ranks, "allowed", wrong_title], rows)
    run.say("allowed: the bound on rounding that refgf/oracle/definitions/rounding.py derives.")
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


# ---- the figure ----


def draw(result: dict):
    title = "Lesson 02: time and bytes of each layer, and when its gradients are ready"
    figure, (left, right) = axes.frame(title, 1, 2, (13, 5.2))
    layers.draw_times(left, result["layers"])
    layers.draw_ready(right, result["layers"])
    return axes.finish(figure)


if __name__ == "__main__":
    lesson = kit.Lesson(
        __file__,
        __doc__,
        claims=CLAIMS,
        picture="The time of each layer with its prediction; bytes ready against time.",
        probe=True,
    )
    lesson.argument(
        "--width",
        type=float,
        help="width of AlexNet in the timed step, a share of its channels (1; with --quick 1/8)",
    )
    lesson.argument(
        "--image-size",
        type=kit.positive,
        metavar="PIXELS",
        help="image size of the timed step, 67 or more (227; with --quick 67)",
    )
    lesson.argument(
        "--batch", type=kit.positive, help="images of the timed step (8; with --full 32)"
    )
    lesson.argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="images for the last section; default: the bundled digits",
    )
    lesson.argument(
        "--skip-bad-images", action="store_true", help="ignore images that cannot be read"
    )
    lesson.main(measure, draw)
