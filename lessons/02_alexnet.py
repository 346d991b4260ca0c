"""Lesson 02: AlexNet - which layer makes which gradient, when, and how large.

    mpiexec -n 8 python lessons/02_alexnet.py       (--width, --image-size, --batch, --data PATH,
    --quick, --full, --plot)

QUESTION    A training step makes 26 gradients, and every one must be summed over all ranks. Where
            does the step spend its time, where are the bytes, and when is each gradient ready to
            travel?
IDEA        Backward goes through the layers from the last to the first and finishes a gradient in
            each. A convolution uses every weight at every pixel: few weights, much work. A fully
            connected layer uses every weight once an image: many weights, little work.
            (refgf/nn/conv.py, alexnet.py; training/step.py)
PREDICTION  A layer cannot be faster than its arithmetic or than its memory:

                time = max(flops / R, bytes / W)        R: flop/s of a matrix product, W: bytes/s of
                a copy, both measured a gradient is ready when the layers behind its own, and its
                own product, are over

            p ranks that share a batch B, however unevenly, add up what one rank would have added up
            by itself. Only the order of summation differs, and a bound on rounding says by how much
            the result may.

Before you run it, write down: AlexNet has 62 million parameters and takes 1.1 billion multiply-adds
an image, forward. What share of the parameters do the five convolutions hold? What share of the
multiply-adds? And after what share of the backward pass are nine tenths of the gradients' bytes
ready?

This is strong scaling: the last part shares one batch of 2p + 1 images between p ranks. The times
are those of one rank.

WHAT YOU SHOULD SEE    The convolutions take most of the time, the fully connected layers hold
                       nearly all the bytes, and
            those come first: most bytes are ready when most of backward is still to come. That is
            what makes hiding the communication behind it possible (lesson 04). On an idle machine
            the large convolutions come near their prediction. The fully connected layers do not:
            they are bound by memory, and for a few images BLAS first copies the weights into
            another order, which the prediction knows nothing of. Normalisation and pooling are
            short but far above it: they pass over their data several times. With --width 0.125
            --image-size 67 everything is small, and what costs is neither flops nor bytes but the
            calls.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/02_alexnet.py)
    1. From how many images a rank on do the fully connected layers take longer to compute than to
    read? Predict it with
       the R and W that this lesson prints, then try --batch.
    2. Someone lets every rank divide its loss by its own batch, and divides the sum by p. For which
    shards is that right? 3. Someone lays the pool out first layer first. When could the first of
    four equal quarters of it be sent? 4. Let measured_steps make AlexNet(...,
    convolution=minimal_filtering), from refgf.engine.minimal,
       and run it again, not --quick. conv2's time falls below the prediction, though no product got
       faster. Why? Check on paper that the four products in minimal.py make two outputs.
"""

import refgf.launch  # noqa: F401  before MPI starts

import time
from functools import partial
from pathlib import Path

import numpy as np

import kit
from kit import axes, layers
from refgf.comm.ring import ring_allreduce
from refgf.comm.slices import slices
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

    Events in their order: (layer, "forward"), then (number of a gradient, "ready") and (layer,
    "backward").
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
    """Central differences on a small network in float64, on rank 0."""
    run.section("The oracle: are the gradients right?")
    run.say(
        "(loss(w + h) - loss(w - h)) / 2h, h = 1e-7, for a few elements w of each layer of a small AlexNet in float64:"
    )
    rows = run.alone(lambda: differences(run.quick(2, 5)))
    run.table(
        ["layer", "elements tried", "norm of its gradient", "largest difference / norm"], rows or []
    )
    run.say(
        "A bias in front of a normalisation shifts what the normalisation takes away again: its gradient is 0."
    )


def differences(elements: int) -> list[list]:
    """One row for each layer with parameters; AssertionError where the difference is above 1e-6 of
    the norm.
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
        tried, norm, largest = found.get(spec.name.split(".")[0], (0, 0.0, 0.0))
        found[spec.name.split(".")[0]] = (
            tried + len(chosen),
            max(norm, float(np.linalg.norm(g))),
            max(largest, off),
        )
    for layer, (_, norm, off) in found.items():
        if off > 1e-6 * norm:
            raise AssertionError(
                f"{layer}: gradient and central differences differ by {off}, its norm is {norm}"
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
    run.section(
        f"One step, layer by layer: {size} x {size} pixels, width {width:g}, {batch} images, {classes} classes"
    )
    result = run.alone(lambda: measured_steps(size, width, batch, classes, run.quick(15, 7, 11)))
    if run.rank == 0:
        show_layers(run, result)
        layers.show_ready(run, result)
    return result


def measured_steps(size, width, batch, classes, repeats) -> dict:
    network = AlexNet(classes, size, width)
    network.bind(*(Pool(network.tensors).views for _ in range(2)))
    network.initialize(SEED)
    random = np.random.default_rng(SEED)
    images = random.standard_normal(
        (batch, *network.image_shape), dtype=np.float32
    )  # their content costs no time
    labels = random.integers(0, classes, batch)
    steps = [timed_step(network, images, labels) for _ in range(1 + repeats)][
        1:
    ]  # the first one fetches memory
    return layers.compare(network, alexnet(classes, size, width), batch, steps)


def show_layers(run: kit.Run, result: dict) -> None:
    node, rows, steps_s = result["node"], result["rows"], result["steps_s"]
    run.say(
        f"one rank while the others sleep: R = {node['flops'] / 1e9:.0f} Gflop/s, W = {node['bandwidth'] / 1e9:.1f} GB/s"
    )
    run.say(
        f"{len(steps_s)} steps of {kit.seconds(min(steps_s))} to {kit.seconds(max(steps_s))}; the median of each part:"
    )
    kinds = {
        "norm": "5 normalisations",
        "pool": "3 poolings",
        "relu": "7 ReLUs",
        "dropout": "2 dropouts",
    }
    groups = {row["name"]: [row] for row in rows if row["kind"] in ("conv", "fc")}
    groups |= {
        told: [row for row in rows if row["kind"] == kind] for kind, told in kinds.items()
    } | {"all": rows}
    cells = []
    for name, group in groups.items():
        (forward, backward), predicted = (
            np.sum([row[key] for row in group], axis=0) for key in ("seconds", "predicted_s")
        )
        told = [
            kit.seconds(t) if t else "-" for t in (forward, predicted[0], backward, predicted[1])
        ]
        parameters, flops = (sum(row[key] for row in group) for key in ("parameters", "flops"))
        shares = [
            f"{part / sum(row[key] for row in rows):.1%}"
            for part, key in ((parameters, "parameters"), (flops, "flops"))
        ]
        limit = group[0]["limit"] if len(group) == 1 else ""
        cells.append(
            [name, f"{parameters:,}", shares[0], f"{flops / 1e6:,.1f}", shares[1], *told, limit]
        )
    header = [
        "layer",
        "parameters",
        "share",
        "Mflop",
        "share",
        "forward",
        "predicted",
        "backward",
        "predicted",
        "limit",
    ]
    run.table(header, cells)
    run.say(
        "Mflop: forward and backward of the whole batch. Each time is a median of its own, so they need not add up."
    )
    for kind, told in (("conv", "convolutions"), ("fc", "fully connected layers")):
        totals = [np.array([row["parameters"], row["flops"], sum(row["seconds"])]) for row in rows]
        share = sum(t for t, row in zip(totals, rows) if row["kind"] == kind) / sum(totals)
        run.say(
            f"{told}: {share[0]:.1%} of the bytes, {share[1]:.1%} of the flops, {share[2]:.1%} of the time"
        )


# ---- the same step on p ranks ----


def compare_with_one_rank(run: kit.Run, images, labels, classes: int) -> dict:
    run.section(f"The same step on {run.size} rank{'s' * (run.size > 1)}")
    count = len(labels)
    parts = slices(count, run.size)
    shards = "/".join(str(part.stop - part.start) for part in parts[:12]) + (
        "/..." if run.size > 12 else ""
    )
    mine = parts[run.rank]
    run.say(
        f"{count} images, {shards} on the ranks, small AlexNet in float64 without normalisation and dropout, eager, ring"
    )
    run.comm.reset()
    model = small_model(classes)
    eager = Transport(ring_allreduce(run.comm), Theta(0))
    exchange = DenseExchange(model.gradients, eager, model.loss_scale)
    train_step(model, exchange, images[mine], labels[mine], count, RATE)
    if (len(exchange.calls), run.comm.messages) != (16, 16 * 2 * (run.size - 1)):
        raise AssertionError(
            f"rank {run.rank}: {len(exchange.calls)} calls, {run.comm.messages} messages"
        )
    require_same_parameters(run.plain, model.parameters.flat)
    averaged = average_of_averages(run, images[mine], labels[mine], classes)
    return run.alone(lambda: against_one(run, model, averaged, images, labels))


def few_images(run: kit.Run, count: int):
    """`count` images with a little noise: where two pixels of a window are equal, as in a black
    background, the gradient may go to either, and rounding decides."""
    size, options = SMALL["image_size"], run.options
    if options.data is None:
        train, _ = digits(size)
    else:
        train, _ = image_folder(
            options.data, size, skip_bad_images=options.skip_bad_images, comm=run.plain
        )
    if train.size < count:
        raise ValueError(
            f"lesson 02: got {train.size} images, wanted {count} for {run.size} ranks; next: fewer ranks"
        )
    images, labels = train.load(np.linspace(0, train.size - 1, count).astype(int))
    return (
        images + NOISE * np.random.default_rng(SEED).standard_normal(images.shape),
        labels,
        train.num_classes,
    )


def small_model(classes: int):
    space = Workspace(dtype=np.float64)
    network = AlexNet(classes, normalization="none", dropout=0.0, workspace=space, **SMALL)
    optimizer = partial(MomentumSGD, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    return replica(network, optimizer, seed=SEED)


class NoExchange:
    """What one rank by itself needs."""

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
    """Rank 0: the step of one rank, the bound, and how far from it the p ranks are."""
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
    run.table(
        [
            "gradient",
            "largest element",
            f"{run.size} ranks - 1 rank",
            "allowed",
            "average of averages - 1 rank",
        ],
        [
            [
                spec.name,
                *(
                    f"{values[start:stop].max():.1e}"
                    for values in (np.abs(g), difference, 2 * bound, wrong)
                ),
            ]
            for spec, start, stop in zip(tensors, offsets, offsets[1:])
            if spec.name.endswith("weight")
        ],
    )
    run.say(
        "allowed: the bound on rounding that refgf/oracle/definitions/rounding.py derives. Last column, a common mistake:"
    )
    run.say(
        "every rank averages over its own images, then the averages are averaged. Shards of different size give it away."
    )
    if rounding.doubtful:
        run.say(
            f"{rounding.doubtful} choices of ReLU or pooling are too close to call: this batch proves nothing"
        )
    elif (difference > 2 * bound).any() or (moved > allowed).any():
        raise AssertionError(f"{run.size} ranks differ from one by more than rounding explains")
    else:
        run.say(
            f"Within the bound everywhere. After the update {np.count_nonzero(moved)} of {len(g)} parameters differ, by "
            f"{moved.max():.1e} at most"
        )
    if len(labels) % run.size and run.size > 1 and not (wrong > 2 * bound).any():
        raise AssertionError("an average of averages passes for the average")
    return {
        "largest_difference": difference.max(),
        "largest_bound": 2 * bound.max(),
        "average_of_averages": wrong.max(),
    }


# ---- the picture ----


def draw(result: dict):
    title = "Lesson 02: who owns the time of a step, who the bytes, and when are they ready?"
    figure, (left, right) = axes.frame(title, 1, 2, (13, 5.2))
    layers.draw_times(left, result["layers"])
    layers.draw_ready(right, result["layers"])
    return axes.finish(figure)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, probe=True)
    lesson.argument(
        "--width",
        type=float,
        help="share of AlexNet's channels in the timed step (1; with --quick 1/8)",
    )
    lesson.argument(
        "--image-size",
        type=kit.positive,
        metavar="PIXELS",
        help="of the timed step, 67 or more (227; 67)",
    )
    lesson.argument(
        "--batch", type=kit.positive, help="images of the timed step (8; with --full 32)"
    )
    lesson.argument(
        "--data",
        type=Path,
        metavar="PATH",
        help="images for the last part; default: the bundled digits",
    )
    lesson.argument(
        "--skip-bad-images", action="store_true", help="go on without images that cannot be read"
    )
    lesson.main(measure, draw)
