"""Lesson 11: large batches - linear scaling, warm-up, LARS, and LARS's norms in parallel.

    mpiexec -n 8 python lessons/11_large_batch.py     (--quick, --full, --plot, --data, --trust ...)

QUESTION    More ranks with the same images per rank make a larger batch, and an epoch has fewer
            steps. How large may the batch be before accuracy is lost? Do warm-up and LARS move
            that limit?
IDEA        With a batch k times as large, each step should go k times as far (linear scaling).
            The rate must not be that large at once (gradual warm-up), and no layer should move too
            far: LARS gives each layer a rate proportional to |w| / |g| (You et al. 2017). All ranks
            hold the same w and g, so each rank needs to compute only 1/p of the norms (Shi et al.
            2021). (refgf/papers/jia/lars.py)
PREDICTION  b images per rank and p ranks: batch p b, N / (p b) steps an epoch, and a learning rate
            p times that of one rank. LARS reads w and g of n parameters once more than SGD. With
            the norms of n parameters in T_norms and L tensors:

                each rank all norms    T_norms
                by slices              T_norms / p                        + T_allreduce(2L numbers)
                by whole layers        T_norms (the busiest rank's share) + T_allreduce(2L numbers)

            One layer of AlexNet holds 60 % of the parameters. Distribution by layers therefore
            gains at most a factor of 1.7.

Before you run it, write down: with the whole data set as one batch (--full), an epoch is one step.
What accuracy, in percent, will SGD reach?

Batches grow as in weak scaling. One rank with p micro-batches of b images computes what p ranks
compute (checked below, to the bit). So each rank trains a model of its own by gradient
accumulation, and the trainings are distributed over the ranks.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/11_large_batch.py)
    1. Multiply one layer's gradient by 1000. What happens to a step of SGD, and to one of LARS?
    2. Sum norms instead of squared norms over the ranks. How wrong is the ratio for p equal shares?
    3. Whole layers: which order of AlexNet's tensors suits 4 ranks best? How much can then be
       gained?
"""

import refgf.launch  # noqa: F401  before MPI starts

import functools

import numpy as np

import kit
from kit import images, trials
from lab import lars_norms, rate_search
from lab.large_batch_picture import METHODS, draw, name_of
from lab.large_batch_claims import CLAIMS
from refgf.exchange.result import StepResult
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.oracle.definitions import LARSSettings, lars_step, same_bits
from refgf.papers.jia.accumulate import accumulated_step
from refgf.machine.digits import digits
from refgf.training.data import batches, steps_per_epoch
from refgf.machine.folders import image_folder
from refgf.comm.direct import direct_allreduce
from refgf.training.gradientflow import GradientFlow
from refgf.papers.jia.lars import LARS, SHARES, squared_norms
from refgf.training.rates import linear_scaling, polynomial_decay, warmup
from refgf.training.sgd import MomentumSGD
from refgf.training.evaluation import evaluate
from refgf.training.step import replica

BASE_BATCH = 64  # the batch that --rate is meant for
WARMUP_SHARE = 1 / 6  # of all steps


def measure(run: kit.Run) -> dict:
    train, _ = images_of(run, 0)
    run.say(train.note)
    check_against_oracle(run, train)
    return {"norms": lars_norms.time_steps(run), "trained": compare(run, train)}


def images_of(run: kit.Run, number: int):
    """(train, held_out) of a fold.

    A folder of images has one split only: tuning and judging use it with different seeds.
    """
    options = run.options
    return fold(
        options.data,
        options.image_size,
        options.skip_bad_images,
        number if options.data is None else 0,
    )


@functools.cache
def fold(data, image_size: int, skip_bad_images: bool, number: int):
    """The grey digits with fold `number` held out, or a folder of images with its own split."""
    if data is None:
        return digits(image_size, number, channels=1)
    return image_folder(data, image_size, skip_bad_images=skip_bad_images)


# ---- one step ----


class LocalExchange:
    """The exchange of a step on one rank. A step with infinite gradients is not accepted."""

    def __init__(self, gradients) -> None:
        self.gradients = gradients

    def ready(self, i: int) -> None:
        pass

    def finish(self) -> StepResult:
        return StepResult(bool(np.isfinite(self.gradients.flat).all()))


def micro_batches_of_steps(data, batch: int, per_rank: int, epoch: int, seed: int):
    """Yields for each step (its micro-batches of `per_rank` images, the size of its batch).

    Micro-batches are loaded lazily: a batch of the whole data set need not fit in memory.
    """
    ranks = -(-batch // per_rank)
    streams = [batches(data, batch, epoch, seed, rank, ranks) for rank in range(ranks)]
    for step in range(steps_per_epoch(data.size, batch)):
        yield (next(stream)[:2] for stream in streams), min(batch, data.size - step * batch)


# ---- the oracle ----


def network(run: kit.Run, data, seed: int, dropout: float = images.DROPOUT) -> AlexNet:
    shape = data.num_classes, data.image_size, run.options.width
    space = Workspace(images_per_block=16)
    net = AlexNet(*shape, dropout=dropout, channels=data.channels, workspace=space)
    net.dropout_rng = np.random.default_rng([seed, 11])
    return net


def check_against_oracle(run: kit.Run, data) -> None:
    """LARS has the bits of the definition, serial and parallel.

    One rank with p micro-batches has the bits of p ranks with one each.
    """
    run.section("The oracle")
    tensors = network(run, data, 1).tensors
    n, rng = sum(spec.size for spec in tensors), np.random.default_rng(1)
    # Small multiples of 1/16: squares and their sums are exact in any order.
    w, g = (rng.integers(-64, 65, (2, n)) / 16).astype(np.float32)
    sizes, decayed = tuple(t.size for t in tensors), tuple(t.decay for t in tensors)
    settings = LARSSettings(sizes, 0.3, 0.9, 0.01, 5e-4, decayed)
    wanted, _ = lars_step(w, np.zeros_like(w), g, settings)
    for by in (None, *SHARES):
        run.comm.reset()
        norms = squared_norms if by is None else lars_norms.parallel(run, by)
        optimizer = LARS(tensors, w.copy(), 0.01, weight_decay=5e-4, norms=norms)
        optimizer.step(g, 0.3)
        if not same_bits(optimizer.parameters, wanted):
            raise AssertionError(
                f"LARS step on rank {run.rank}, norms by {by}: got other bits than the definition"
            )
        lars_norms.require_traffic(run, 0 if by is None else 2 * sum(t.decay for t in tensors))
    run.say(
        "LARS step with serial norms, by slices and by layers: the bits of the definition;\n"
        "parallel norms take one allreduce of 2L numbers"
    )
    ranks, batch, bits = run.size, 5 * run.size, []
    lars = functools.partial(LARS, trust=0.01, weight_decay=0.0)
    models = [replica(network(run, data, 1, 0.0), lars, seed=1) for _ in range(2)]
    with GradientFlow(run.comm, models[0], allreduce=direct_allreduce) as together:
        model = models[1]
        for step in range(2):
            micro_batches = [
                data.load(np.arange(batch * step + 5 * r, batch * step + 5 * r + 5))
                for r in range(ranks)
            ]
            together.step(*micro_batches[run.rank], batch, 0.1)
            accumulated_step(model, LocalExchange(model.gradients), micro_batches, batch, 0.1)
        bits = [together.model.parameters.flat, model.parameters.flat]
    if not same_bits(*bits):
        raise AssertionError(
            f"gradient accumulation on rank {run.rank}: got other bits than {ranks} ranks "
            "with 5 images each"
        )
    run.say(
        f"{ranks} ranks with 5 images each, direct allreduce: the bits of one rank that "
        f"accumulates {ranks} micro-batches"
    )


# ---- the measurement: accuracy against batch ----


def peak_rate(run: kit.Run, batch: int, exponent: int) -> float:
    return linear_scaling(run.options.rate, batch, BASE_BATCH) * 2.0**exponent


def learn(run: kit.Run, epochs: int, cell, exponent: int, number: int, seed: int) -> dict:
    """One complete training on this rank. cell: (optimiser, with warm-up?, batch)"""
    (optimizer, warm, batch), (train, held_out) = cell, images_of(run, number)
    kind = functools.partial(LARS, trust=run.options.trust) if optimizer == "LARS" else MomentumSGD
    update = functools.partial(kind, weight_decay=images.WEIGHT_DECAY)
    model = replica(network(run, train, seed), update, seed=seed)
    steps, step, losses = epochs * steps_per_epoch(train.size, batch), 0, []
    for epoch in range(epochs):
        losses = []
        per_rank = min(batch, run.options.batch)
        for micro_batches, size in micro_batches_of_steps(train, batch, per_rank, epoch, seed):
            rate = polynomial_decay(peak_rate(run, batch, exponent), step, steps)
            rate = warmup(rate, step, round(WARMUP_SHARE * steps)) if warm else rate
            exchange = LocalExchange(model.gradients)
            # Some rates of the search are too large on purpose, so the numbers overflow.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                losses.append(accumulated_step(model, exchange, micro_batches, size, rate))
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
        images_, labels = data.load(np.arange(number * batch, min(data.size, (number + 1) * batch)))
        for layer in model.network.normalizations:
            layer.momentum = 1 / (number + 1)
        model.network.loss(images_, labels, len(images_))
        model.network.accept()
    for layer, before in zip(model.network.normalizations, momentum):
        layer.momentum = before


def compare(run: kit.Run, data) -> dict:
    """Each method at each batch: search its peak rate on one fold, then judge it on others."""
    epochs, whole = run.options.epochs or run.quick(1, 5, 10), data.size
    sizes = run.quick([run.options.batch * 4], [128, 512], [run.options.batch, 128, 512, whole])
    judged = [
        (k, s) for k in run.quick([1], [1, 2, 3], [1, 2, 3, 4]) for s in run.quick([1], [1], [1, 2])
    ]
    if run.options.data:
        judged = [(0, 2 + i) for i in range(len(judged))]
    cells = [(*method, min(batch, whole)) for batch in sizes for method in METHODS]
    run.section(
        f"Accuracy against batch size: {epochs} epochs, {len(judged)} trainings after each search"
    )
    train = functools.partial(learn, run, epochs)
    tried = rate_search.search(run, cells, train, rounds=run.quick(0, 1, 2))
    jobs = [(cell, rate_search.best(tried[cell]), *place) for cell in cells for place in judged]
    results = iter(trials.deal(run, jobs, train))
    rows = []
    for cell in cells:
        right, at = [next(results)["accuracy"] for _ in judged], rate_search.best(tried[cell])
        rows.append(
            {
                "optimizer": cell[0],
                "warm": cell[1],
                "batch": cell[2],
                "steps": epochs * steps_per_epoch(whole, cell[2]),
                "rate": peak_rate(run, cell[2], at),
                "edge": at in (min(tried[cell]), max(tried[cell])),
                "tried": [
                    [peak_rate(run, cell[2], e), r["accuracy"]]
                    for e, r in sorted(tried[cell].items())
                ],
                **rate_search.interval(right),
            }
        )
    run.table(
        ["batch", "steps", *(name_of(m) for m in METHODS)],
        [
            [
                b,
                *dict.fromkeys(r["steps"] for r in rows if r["batch"] == b),
                *(
                    f"{rate_search.in_words(r)} at {r['rate']:.3g}{'?' * r['edge']}"
                    for r in rows
                    if r["batch"] == b
                ),
            ]
            for b in dict.fromkeys(cell[2] for cell in cells)
        ],
    )
    run.say(
        "held-out accuracy in percent, 95 % interval, at the peak rate found "
        "(?: at the edge of the search)"
    )
    gains = [
        gain
        for batch in dict.fromkeys(cell[2] for cell in cells)
        for gain in compared(run, rows, batch)
    ]
    say_verdict(run, gains)
    return {
        "rows": rows,
        "gains": gains,
        "epochs": epochs,
        "tuned_on": rate_search.TUNED_ON,
        "judged_on": judged,
    }


def say_verdict(run: kit.Run, gains: list[dict]) -> None:
    lars = [gain for gain in gains if gain["name"].startswith("LARS")]
    shown = [
        f"at batch {gain['batch']} {gain['name'][6:]}" for gain in lars if gain["said"] == "gains"
    ]
    if any(gain["half"] is None for gain in lars):
        run.say("one run of each method shows nothing about LARS; leave out --quick")
    else:
        run.say(
            f"so LARS gains accuracy on this task {', '.join(shown)}"
            if shown
            else "so these runs show no gain of LARS on this task"
        )


def compared(run: kit.Run, rows: list[dict], batch: int) -> list[dict]:
    """Gains of LARS and of warm-up at one batch size: paired over folds and seeds."""
    right = {
        (row["optimizer"], row["warm"]): row["values"] for row in rows if row["batch"] == batch
    }
    sgd, sgd_warm, lars, lars_warm = METHODS
    pairs = {
        "LARS, without warm-up": (lars, sgd),
        "LARS, with warm-up": (lars_warm, sgd_warm),
        "warm-up, for SGD": (sgd_warm, sgd),
        "warm-up, for LARS": (lars_warm, lars),
    }
    found = []
    for name, (some, others) in pairs.items():
        gain = {
            "name": name,
            "batch": batch,
            **rate_search.interval([a - b for a, b in zip(right[some], right[others])]),
        }
        half = gain["half"]
        said = (
            "one run: no interval"
            if half is None
            else "gains"
            if gain["mean"] > half
            else ("loses" if gain["mean"] < -half else "no difference shown by these runs")
        )
        run.say(
            f"batch {batch:5}: {name:>21}: {gain['mean']:+.1f}"
            + (f" +- {half:.1f}" if half else "")
            + f" points: {said}"
        )
        found.append(gain | {"said": said})
    return found


if __name__ == "__main__":
    lesson = kit.Lesson(
        __file__,
        __doc__,
        claims=CLAIMS,
        picture="Accuracy against batch for SGD and LARS; times of forming the norms.",
    )
    images.arguments(lesson)
    lesson.argument(
        "--trust", type=float, default=0.1, help="of LARS; it is searched over the rates of SGD"
    )
    lesson.parser.set_defaults(image_size=67, width=1 / 16, batch=32)
    lesson.main(measure, draw)
