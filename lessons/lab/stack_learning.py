"""Lesson 07's learning: time to an accuracy, dense and sparse, and the 1.5-minute system assembled.

    learning = stack_learning.measure(run, train, held_out, here)

Accuracies come from real training of a small network on these ranks. On an emulated cluster the
time is composed: steps of that training times the measured step of the full-size network, in the
cluster's time. The full-size network may need another number of steps; the composition only says
what a shorter step is worth if it does not.

Dense and sparse runs are paired: the same fold held out, the same seed.
"""

import math
from functools import partial

import numpy as np

import kit
from kit import flow, images
from kit.claims import NOISE, Claim
from kit.trials import mean_and_half
from refgf.engine.residual import FusedResidual
from refgf.exchange.chunk_choice import Density
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import CSCSettings
from refgf.exchange.precision import LossScale
from refgf.machine.checkpoint import Checkpoints
from refgf.papers.jia.lars import LARS
from refgf.training.data import batches, steps_per_epoch
from refgf.training.gradientflow import GradientFlow
from refgf.training.rates import polynomial_decay, warmup
from refgf.training.step import replica

DENSITY, SCALE, HALF = 10.0, 2.0**10, np.float16
WARMUP = (100, 25)  # percent in the first epochs of sparse training
DENSE, SPARSE = "dense", "CSC"
BARS = {DENSE: "+ lazy allreduce", SPARSE: "+ CSC"}
FOLDS = 5
LARGE_BATCH, TRUST, PEAK_RATE = 32, 0.1, 0.16  # of a rank; as found by lesson 11's search


def interval(mean: float, half: float | None) -> dict:
    """A mean and its 95 % interval as a claim compares it; one run alone has any interval."""
    half = math.inf if half is None else half
    return {"median_s": mean, "low_s": mean - half, "high_s": mean + half}


def later(result: dict):
    """Sparse training's time to the accuracy minus dense training's, in the cluster's time."""
    found = (result["learning"] or {}).get("later_s")
    return found and (interval(*found), "<", 0.0)


def points(result: dict):
    """Sparse training's accuracy minus dense training's, in points."""
    return result["learning"] and (interval(*result["learning"]["points"]), ">", -3.0)


def assembled_accuracy(result: dict):
    """Held-out images that the assembled system gets right, in percent."""
    learning = result["learning"]
    return learning and (100 * learning["assembled"]["accuracy"], ">", 80.0)


CLAIMS = (
    Claim(
        "CSC reaches the accuracy in less time than the dense stack.",
        later,
        "steps lost to sparsity next to time saved in each, and the number of runs",
        expected=NOISE,
    ),
    Claim(
        "At the end CSC is as accurate as dense training, to within 3 points.",
        points,
        "the length of the training, the density and its warm-up",
    ),
    Claim(
        "Assembled, the 1.5-minute system learns: at a large batch, with LARS, warm-up, half "
        "weights and CSC it gets more than 80 % of held-out images right.",
        assembled_accuracy,
        "the data, the number of epochs and the peak rate",
    ),
)


def measure(run: kit.Run, train, held_out, here: dict) -> dict:
    """What was learned: rows of epochs as flow.learn returns them, differences with intervals."""
    epochs = run.options.epochs or run.quick(1, 4, 12)
    pairs = 1 if run.options.checkpoints else run.options.pairs or run.quick(1, 2, 10)
    run.section(f"Learning: {pairs} pairs of {epochs} epochs, dense and sparse")
    runs, parameters = {DENSE: [], SPARSE: []}, {}
    for number in range(pairs):
        fold = None if pairs == 1 else number % FOLDS
        data = images.fold(run, train, held_out, fold)
        for name in runs:
            rows, digest = trained(run, name, *data, epochs, images.SEED + number // FOLDS)
            runs[name].append(rows)
            parameters[name] = digest  # of the last run
    right = {name: [final(rows) for rows in each] for name, each in runs.items()}
    points = mean_and_half([b - a for a, b in zip(right[DENSE], right[SPARSE])])
    per_epoch = steps_per_epoch(train.size, run.options.batch * run.size)
    steps_s = {row["name"]: row["step"].median_s / here["dilation"] for row in here["rows"]}
    epoch_s = {name: per_epoch * steps_s[bar] for name, bar in BARS.items()}
    reached = {
        name: [epochs_to(rows, run.options.accuracy) for rows in each]
        for name, each in runs.items()
    }
    both = [(a, b) for a, b in zip(reached[DENSE], reached[SPARSE]) if a and b]
    late_s = [b * epoch_s[SPARSE] - a * epoch_s[DENSE] for a, b in both]
    result = {
        "runs": runs,
        "parameters": parameters,
        "points": points,
        "epoch_s": epoch_s,
        "reached": reached,
        "later_s": mean_and_half(late_s) if late_s else None,
        "wanted": run.options.accuracy,
        "composed": run.regime.like is not None,
        "assembled": assembled(run, train, held_out, run.quick(1, 6, 12)),
    }
    show(run, result)
    return result


def trained(run: kit.Run, name: str, train, held_out, epochs: int, seed: int):
    """(epochs, hash of the parameters) of one training with the whole stack."""
    per_epoch = steps_per_epoch(train.size, run.options.batch * run.size)
    sparse = Density(DENSITY, WARMUP[: epochs - 1], per_epoch, epochs * per_epoch)
    csc = flow.csc(run, train, sparse) if name == SPARSE else None
    stack_ = {"wire": HALF, "grouping": Theta(2**18), "csc": csc, "overlap": True}
    model = {"half_weights": True, "loss_scale": LossScale(SCALE, dynamic=True)}
    with flow.new(run, train, seed, **stack_, **model) as stack:
        folder = run.options.checkpoints
        saved = Checkpoints(folder / name, stack, run.say) if folder else None
        rows = flow.learn(
            run, stack, train, held_out, epochs, say=False, seed=seed, checkpoints=saved
        )
        digest = stack.require_same_parameters()
    text = f"{name}: {final(rows):.1f} % right; the same parameters on all ranks: {digest[:16]}..."
    run.say(text)
    return rows, digest


def assembled(run: kit.Run, train, held_out, epochs: int) -> dict:
    """Large batch, LARS, warm-up, half weights, a dynamic loss scale, lazy allreduce, overlap, CSC.

    CSC has the form `history`, because LARS's ratio comes before momentum.
    """
    batch = min(LARGE_BATCH * run.size, train.size)
    per_epoch = steps_per_epoch(train.size, batch)
    steps = epochs * per_epoch
    density = Density(DENSITY, WARMUP[: epochs - 1], per_epoch, steps)
    chunk = flow.chunk_of(run, images.parameter_count(run, train))
    csc = CSCSettings(density, "history", chunk, residual=FusedResidual)
    optimizer = partial(LARS, trust=TRUST, weight_decay=images.WEIGHT_DECAY)
    scale = LossScale(SCALE, dynamic=True)
    network = images.network(run, train)
    model = replica(network, optimizer, seed=images.SEED, half_weights=True, loss_scale=scale)
    stack_ = {"wire": HALF, "grouping": Theta(2**18), "csc": csc, "overlap": True}
    with GradientFlow(run.comm, model, **stack_) as stack:
        for epoch in range(epochs):
            own = batches(train, batch, epoch, images.SEED, run.rank, run.size)
            for number, samples in enumerate(own):
                step = epoch * per_epoch + number
                rate = warmup(polynomial_decay(PEAK_RATE, step, steps), step, round(steps / 6))
                stack.step(*samples, rate=rate)
        right, samples = stack.evaluate(held_out)
        stack.require_same_parameters()
    return {"accuracy": right / max(1, samples), "batch": batch, "epochs": epochs, "steps": steps}


def final(rows: list[dict]) -> float:
    """The accuracy after the last epoch, in percent."""
    return 100 * (rows[-1]["accuracy"] or 0.0)


def epochs_to(rows: list[dict], percent: float) -> int | None:
    """Epochs until the accuracy is reached; None if it is not."""
    found = (i for i, row in enumerate(rows, 1) if 100 * (row["accuracy"] or 0) >= percent)
    return next(found, None)


def show(run: kit.Run, result: dict) -> None:
    """What was learned and when."""
    wanted, table = result["wanted"], []
    for name, rows in result["runs"].items():
        reached = [n for n in result["reached"][name] if n]
        mean = sum(reached) / len(reached) if reached else None
        seconds = kit.seconds(mean * result["epoch_s"][name]) if mean else "not reached"
        accuracy = sum(map(final, rows)) / len(rows)
        in_epochs = f"{mean:.1f}" if mean else "not reached"
        table.append([name, f"{accuracy:.1f} %", in_epochs, seconds])
    how = "composed: steps x step" if result["composed"] else "steps x step"
    run.table(["", "right at the end", f"epochs to {wanted:g} %", how], table)
    mean, half = result["points"]
    spread = "one pair has no interval" if half is None else f"+- {half:.2f}, 95 % interval"
    run.say(f"CSC - dense: {mean:+.2f} points ({spread})")
    last = result["assembled"]
    run.say(
        f"the 1.5-minute system in small: batch {last['batch']}, LARS, warm-up, half weights, CSC: "
        f"{100 * last['accuracy']:.1f} % right after {last['steps']} steps"
    )
