"""Lesson 11: large batches - linear scaling, warm-up, LARS, and LARS's norms formed by all ranks together.

    mpiexec -n 8 python lessons/11_large_batch.py            (--quick, --full, --plot, --data PATH, --trust ...)

QUESTION    More ranks at the same images per rank make a larger batch, and an epoch has fewer steps. How large may it be
            before accuracy is lost, and do warm-up and LARS move that limit?
IDEA        A step of a batch k times as large should go k times as far (linear scaling), but not at once (gradual warm-up),
            and not too far in any layer: LARS gives each layer a rate in proportion to |w| / |g| (You et al. 2017). All ranks
            hold the same w and g, so each need only form a p-th of the norms (Shi et al. 2021). (refgf/papers/jia/lars.py)
PREDICTION  b images per rank, p ranks: batch p b, N / (p b) steps an epoch; rate = rate of one rank p. LARS reads w and g of
            n parameters once more than SGD. With the norms of n parameters in T_norms and L tensors:

                each rank by itself      T_norms
                by slices                T_norms / p                                    + T_allreduce(2L numbers)
                by whole layers          T_norms (share of the busiest rank's layers)   + T_allreduce(2L numbers)

            One layer of AlexNet holds 60 % of the parameters: by layers it cannot gain more than a factor 1.7.

Before you run it, write down: at the whole set as one batch (--full) an epoch is one step. How many per cent will SGD reach?

Batches grow as under weak scaling. One rank with p parts of b images computes what p ranks compute (checked below, to the
bit), so here each rank trains for itself, accumulating gradients, and the trainings are dealt out to the ranks.

WHAT YOU SHOULD SEE    The larger the batch, the fewer steps, the less is learned in as many epochs: ten or fifteen steps
            are too few for anybody. Each peak rate is tuned, and still LARS loses less than SGD, at large batches above
            all: it stands rates that are too large for some layers of SGD. Warm-up costs steps, of which a large batch has
            few. What these runs have shown, and what not, is said at the end from the intervals. By slices the norms take a
            p-th of their time, by layers the busiest rank's share, about half; where ranks share cores the small allreduce
            may cost more than that saves.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/11_large_batch.py)
    1. Multiply one layer's gradient by 1000. What becomes of a step of SGD, and of LARS?
    2. Add norms instead of squared norms over the ranks. By how much is the ratio wrong, for p equal shares?
    3. Whole layers: which order of AlexNet's tensors would serve 4 ranks best, and how much is left to gain then?
"""

import refgf.launch  # noqa: F401  before MPI starts

import functools

import numpy as np

import kit
from kit import axes, images, trials
from lab import lars_norms, rate_search
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

BASE_BATCH = 64  # where --rate is
WARMUP_SHARE = 1 / 6  # of all steps
METHODS = [
    ("SGD", False),
    ("SGD", True),
    ("LARS", False),
    ("LARS", True),
]  # optimiser, with warm-up?
STYLES = dict(
    zip(METHODS, (("tab:blue", "o:"), ("tab:blue", "s-"), ("tab:red", "o:"), ("tab:red", "s-")))
)


def measure(run: kit.Run) -> dict:
    train, _ = images_of(run, 0)
    run.say(train.note)
    check_against_oracle(run, train)
    return {"norms": lars_norms.time_steps(run), "trained": compare(run, train)}


def images_of(run: kit.Run, number: int):
    """(train, held_out); of a folder there is one way to cut it, and what was tuned on is judged on, with other seeds."""
    options = run.options
    return fold(
        options.data,
        options.image_size,
        options.skip_bad_images,
        number if options.data is None else 0,
    )


@functools.cache
def fold(data, image_size: int, skip_bad_images: bool, number: int):
    """The digits in grey, cut in another place for each number; a folder of images as it is."""
    if data is None:
        return digits(image_size, number, channels=1)
    return image_folder(data, image_size, skip_bad_images=skip_bad_images)


# ---- one step: this is all there is to it, once the parts are there ----


class Alone:
    """An exchange with nobody: a step of one rank. A step with infinite gradients is not accepted."""

    def __init__(self, gradients) -> None:
        self.gradients = gradients

    def ready(self, i: int) -> None:
        pass

    def finish(self) -> StepResult:
        return StepResult(bool(np.isfinite(self.gradients.flat).all()))


def parts_of_steps(data, batch: int, per_rank: int, epoch: int, seed: int):
    """Step after step, the parts that ranks with `per_rank` images each would have of this batch; and its size. A part is
    loaded when it is asked for, or the whole set as one batch would have to fit into each rank's memory."""
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
    """LARS is that of the definition, in parallel too; and p ranks with a part each are one rank with p parts."""
    run.section("The oracle")
    tensors = network(run, data, 1).tensors
    n, rng = sum(spec.size for spec in tensors), np.random.default_rng(1)
    w, g = (rng.integers(-64, 65, (2, n)) / 16).astype(
        np.float32
    )  # squares and their sums are exact in any order
    sizes, decayed = tuple(t.size for t in tensors), tuple(t.decay for t in tensors)
    settings = LARSSettings(sizes, 0.3, 0.9, 0.01, 5e-4, decayed)
    wanted, _ = lars_step(w, np.zeros_like(w), g, settings)
    for by in (None, *SHARES):
        run.comm.reset()
        way = squared_norms if by is None else lars_norms.parallel(run, by)
        optimizer = LARS(tensors, w.copy(), 0.01, weight_decay=5e-4, norms=way)
        optimizer.step(g, 0.3)
        if not same_bits(optimizer.parameters, wanted):
            raise AssertionError(
                f"rank {run.rank}: a step of LARS, norms by {by}, is not that of the definition"
            )
        lars_norms.require_traffic(run, 0 if by is None else 2 * sum(t.decay for t in tensors))
    run.say(
        "a step of LARS, norms alone, by slices and by layers: bits as defined; one allreduce of 2L numbers"
    )
    ranks, batch, bits = run.size, 5 * run.size, []
    lars = functools.partial(LARS, trust=0.01, weight_decay=0.0)
    models = [replica(network(run, data, 1, 0.0), lars, seed=1) for _ in range(2)]
    with GradientFlow(run.comm, models[0], allreduce=direct_allreduce) as together:
        model = models[1]
        for step in range(2):
            parts = [
                data.load(np.arange(batch * step + 5 * r, batch * step + 5 * r + 5))
                for r in range(ranks)
            ]
            together.step(*parts[run.rank], batch, 0.1)
            accumulated_step(model, Alone(model.gradients), parts, batch, 0.1)
        bits = [together.model.parameters.flat, model.parameters.flat]
    if not same_bits(*bits):
        raise AssertionError(
            f"rank {run.rank}: {ranks} ranks with 5 images each are not one rank with {ranks} parts"
        )
    run.say(
        f"{ranks} ranks with 5 images each, direct allreduce: the bits of one rank that accumulates {ranks} parts"
    )


# ---- the measurement: accuracy against batch ----


def peak_rate(run: kit.Run, batch: int, exponent: int) -> float:
    return linear_scaling(run.options.rate, batch, BASE_BATCH) * 2.0**exponent


def learn(run: kit.Run, epochs: int, cell, exponent: int, number: int, seed: int) -> dict:
    """One training from the beginning, by this rank alone. cell: (optimiser, with warm-up?, batch)"""
    (optimizer, warm, batch), (train, held_out) = cell, images_of(run, number)
    kind = functools.partial(LARS, trust=run.options.trust) if optimizer == "LARS" else MomentumSGD
    update = functools.partial(kind, weight_decay=images.WEIGHT_DECAY)
    model = replica(network(run, train, seed), update, seed=seed)
    steps, step, losses = epochs * steps_per_epoch(train.size, batch), 0, []
    for epoch in range(epochs):
        losses = []
        for parts, size in parts_of_steps(train, batch, min(batch, run.options.batch), epoch, seed):
            rate = polynomial_decay(peak_rate(run, batch, exponent), step, steps)
            rate = warmup(rate, step, round(WARMUP_SHARE * steps)) if warm else rate
            with np.errstate(
                over="ignore", invalid="ignore", divide="ignore"
            ):  # some rates are meant to be too large
                losses.append(accumulated_step(model, Alone(model.gradients), parts, size, rate))
            step += 1
        if not np.isfinite(losses).all():
            return {"accuracy": 0.0, "loss": float("inf")}  # it diverged
    settle_statistics(model, train, run.options.batch)
    right, samples = evaluate(model.network, held_out, 0, 1)
    return {"accuracy": 100 * right / max(1, samples), "loss": float(np.mean(losses))}


def settle_statistics(model, data, batch: int, count: int = 8) -> None:
    """Running statistics become those of the last weights: the mean over some batches. After a dozen steps they would still
    be half of what they were at the beginning, and spoil the evaluation of large batches only."""
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
    """Each method at each batch: its peak rate searched on one fold, then judged on others."""
    epochs, whole = run.options.epochs or run.quick(1, 5, 10), data.size
    sizes = run.quick([run.options.batch * 4], [128, 512], [run.options.batch, 128, 512, whole])
    judged = [
        (k, s) for k in run.quick([1], [1, 2, 3], [1, 2, 3, 4]) for s in run.quick([1], [1], [1, 2])
    ]
    if run.options.data:
        judged = [(0, 2 + i) for i in range(len(judged))]
    cells = [(*method, min(batch, whole)) for batch in sizes for method in METHODS]
    run.section(
        f"Accuracy against batch: {epochs} epochs, {len(judged)} trainings each after the search"
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
                    f"{rate_search.told(r)} at {r['rate']:.3g}{'?' * r['edge']}"
                    for r in rows
                    if r["batch"] == b
                ),
            ]
            for b in dict.fromkeys(cell[2] for cell in cells)
        ],
    )
    run.say(
        "per cent of held-out images right, 95 % interval, at the peak rate found (?: at the edge of the search)"
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
        run.say("one run of each shows nothing about LARS; leave out --quick")
    else:
        run.say(
            f"so LARS gains on this task {', '.join(shown)}"
            if shown
            else "so LARS gains nothing shown on this task"
        )


def compared(run: kit.Run, rows: list[dict], batch: int) -> list[dict]:
    """What LARS and warm-up add at a batch, as paired differences of the same folds and seeds; and in words."""
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
            else ("loses" if gain["mean"] < -half else "gains nothing that these runs could show")
        )
        run.say(
            f"batch {batch:5}: {name:>21}: {gain['mean']:+.1f}"
            + (f" +- {half:.1f}" if half else "")
            + f" points: {said}"
        )
        found.append(gain | {"said": said})
    return found


def name_of(method) -> str:
    return f"{method[0]}{', warm-up' if method[1] else ''}"


# ---- the picture ----


def draw(result: dict):
    figure, (accuracy, gains, search, steps) = axes.frame(
        "Lesson 11: large batches - what linear scaling, warm-up and LARS keep, each rate tuned",
        2,
        2,
        size=(15, 10.5),
    )
    trained = result["trained"]
    for method, (colour, style) in STYLES.items():
        rows = [row for row in trained["rows"] if (row["optimizer"], row["warm"]) == method]
        accuracy.errorbar(
            [row["batch"] for row in rows],
            [row["mean"] for row in rows],
            [row["half"] or 0 for row in rows],
            fmt=style,
            color=colour,
            capsize=3,
            label=name_of(method),
        )
        search.semilogx(*zip(*rows[-1]["tried"]), style, color=colour, label=name_of(method))
    batches_ = [row["batch"] for row in rows]
    accuracy.set_xscale("log", base=2)
    accuracy.set_xticks(batches_, [f"{row['batch']}\n{row['steps']} steps" for row in rows])
    accuracy.set(
        title=f"Held-out images right after {trained['epochs']} epochs, 95 % intervals",
        xlabel="batch",
        ylabel="%",
    )
    search.set(
        title=f"The search at batch {batches_[-1]}, on fold 0 alone", xlabel="peak rate", ylabel="%"
    )
    for k, name in enumerate(dict.fromkeys(gain["name"] for gain in trained["gains"])):
        own = [gain for gain in trained["gains"] if gain["name"] == name]
        gains.errorbar(
            [i + 0.15 * k for i in range(len(own))],
            [gain["mean"] for gain in own],
            [gain["half"] or 0 for gain in own],
            fmt="os^v"[k],
            capsize=3,
            label=name,
        )
    gains.axhline(0, color="black", lw=1)
    gains.set_xticks(range(len(batches_)), batches_)
    gains.set(
        title="What is gained, same folds and seeds, 95 % intervals",
        xlabel="batch",
        ylabel="points",
    )
    sizes = [row["n"] for row in result["norms"]]
    for name, colour in (
        ("norms", "tab:grey"),
        ("alone", "black"),
        ("slices", "tab:green"),
        ("layers", "tab:orange"),
    ):
        label = {"norms": "norms only, alone", "alone": "step, norms alone"}.get(
            name, f"step, norms by {name}"
        )
        axes.measured(
            steps,
            sizes,
            [row["times"][name] for row in result["norms"]],
            "o",
            color=colour,
            label=label,
        )
        if name in result["norms"][0]["predicted_s"]:
            predicted = [1e3 * row["predicted_s"][name] for row in result["norms"]]
            steps.plot(sizes, predicted, "--", color=colour, label=f"predicted, {name}")
    steps.set(
        title="A step of LARS, the slowest rank",
        xlabel="parameters",
        ylabel="ms",
        xscale="log",
        yscale="log",
    )
    return axes.finish(figure, accuracy, gains, search, steps)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    images.arguments(lesson)
    lesson.argument(
        "--trust", type=float, default=0.1, help="of LARS; the rates searched are those of SGD"
    )
    lesson.parser.set_defaults(image_size=67, width=1 / 16, batch=32)
    lesson.main(measure, draw)
