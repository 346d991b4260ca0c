"""Lesson 07's learning: time to an accuracy, dense and sparse, and the 1.5-minute system assembled.

    trained = learning.measure(run, train, held_out, here)

Accuracies come from real training of a small network on these ranks. On an emulated cluster the
time is composed: steps of that training times the measured step of the full-size network, in the
cluster's time. Sparse training's warm-up epochs count as what they send. The full-size network may
need another number of steps; the composition only says what a shorter step is worth if it does not.

Dense and sparse runs are paired: the same fold held out, the same seed.
"""

from functools import partial

import numpy as np

import kit
from kit import flow, images
from kit.trials import mean_and_half
from lab.stack import bars
from lab.stack.bars import DENSITY, SCALE
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

HALF = np.float16
WARMUP = (100, 25)  # percent in the first epochs of sparse training
DENSE, SPARSE = "dense", "CSC"
BARS = {DENSE: bars.LAZY, SPARSE: bars.CSC}  # whose steps these trainings take
FOLDS = 5
LARGE_BATCH, TRUST, PEAK_RATE = 32, 0.1, 0.16  # of a rank; as found by lesson 11's search


def measure(run: kit.Run, train, held_out, here: dict) -> dict:
    """What was learned: rows of epochs as flow.learn returns them, differences with intervals."""
    epochs = run.options.epochs or run.quick(1, 4, 12)
    pairs = 1 if run.options.checkpoints else run.options.pairs or run.quick(1, 1, 10)
    run.section(f"Learning: dense and CSC, {pairs} x {epochs} epochs each")
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
    time_s = {name: epoch_ends(steps_s, name, epochs, per_epoch) for name in BARS}
    reached = {
        name: [epochs_to(rows, run.options.accuracy) for rows in each]
        for name, each in runs.items()
    }
    both = [(a, b) for a, b in zip(reached[DENSE], reached[SPARSE]) if a and b]
    late_s = [time_s[SPARSE][b - 1] - time_s[DENSE][a - 1] for a, b in both]
    result = {
        "runs": runs,
        "parameters": parameters,
        "points": points,
        "time_s": time_s,
        "reached": reached,
        "later_s": mean_and_half(late_s) if late_s else None,
        "wanted": run.options.accuracy,
        "ranks": run.size,
        "place": run.place,
        "composed": run.regime.like is not None,
        "assembled": assembled(run, train, held_out, run.quick(1, 6, 12)),
    }
    show(run, result)
    return result


def epoch_ends(steps_s: dict, name: str, epochs: int, per_epoch: int) -> list[float]:
    """When each epoch ends, in seconds of the cluster.

    The first epochs of sparse training send more (WARMUP). Between the measured steps of DENSITY
    and of 100 percent, a step is taken to grow linearly with the percentage.
    """
    dense_s, own_s = steps_s[BARS[DENSE]], steps_s[BARS[name]]
    sent = [*WARMUP[: epochs - 1], *[DENSITY] * epochs][:epochs]
    shares = [(percent - DENSITY) / (100 - DENSITY) for percent in sent]
    steps = [own_s + share * (dense_s - own_s) for share in shares]
    return np.cumsum([per_epoch * step_s for step_s in steps]).tolist()


def trained(run: kit.Run, name: str, train, held_out, epochs: int, seed: int):
    """(epochs, hash of the parameters) of one training with the whole stack."""
    per_epoch = steps_per_epoch(train.size, run.options.batch * run.size)
    sparse = Density(DENSITY, WARMUP[: epochs - 1], per_epoch, epochs * per_epoch)
    csc = flow.csc(run, train, sparse) if name == SPARSE else None
    stack_ = {"wire": HALF, "grouping": Theta(2**18), "csc": csc, "overlap": True}
    model = {"half_weights": True, "loss_scale": LossScale(SCALE, dynamic=True)}
    with flow.new(run, train, seed, **stack_, **model) as stack:
        folder = run.options.checkpoints
        saved = Checkpoints(folder / name, stack, run.tell) if folder else None
        rows = flow.learn(run, stack, train, held_out, epochs, seed=seed, checkpoints=saved)
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


def first(learning: dict) -> str:
    """Which training reached the accuracy first, with the interval of the pairs' differences."""
    pairs = [pair for pair in zip(*learning["reached"].values()) if all(pair)]
    what = f"{learning['wanted']:g} % of held-out images"
    if not learning["later_s"]:
        return f"{what}: no pair of trainings has reached it"
    later_s, half_s = learning["later_s"]
    text = f"CSC reaches it {abs(later_s):.2g} s {'later' if later_s > 0 else 'sooner'}"
    if half_s is None:
        return f"{what}: {text} (one pair has no interval)"
    low_s, high_s = later_s - half_s, later_s + half_s
    first = "CSC is first" if high_s < 0 else "dense is first" if low_s > 0 else "not decided"
    interval = f"95 % interval {low_s:+.2g} to {high_s:+.2g} s, {len(pairs)} pairs"
    return f"{what}: {first}; {text} ({interval})"


def show(run: kit.Run, result: dict) -> None:
    """What was learned and when."""
    wanted, table = result["wanted"], []
    for name, rows in result["runs"].items():
        reached = [n for n in result["reached"][name] if n]
        mean = sum(reached) / len(reached) if reached else None
        times_s = [result["time_s"][name][n - 1] for n in reached]
        seconds = kit.seconds(sum(times_s) / len(times_s)) if reached else "not reached"
        accuracy = sum(map(final, rows)) / len(rows)
        in_epochs = f"{mean:.1f}" if mean else "not reached"
        table.append([name, f"{accuracy:.1f} %", in_epochs, seconds])
    how = "composed: steps x step" if result["composed"] else "steps x step"
    run.table(["", "right at the end", f"epochs to {wanted:g} %", how], table)
    mean, half = result["points"]
    spread = "one pair has no interval" if half is None else f"+- {half:.2f}, 95 % interval"
    run.say(f"CSC - dense: {mean:+.2f} points ({spread})")
    run.say(first(result))
    last = result["assembled"]
    run.say(
        f"the 1.5-minute system in small: batch {last['batch']}, LARS, warm-up, half weights, CSC: "
        f"{100 * last['accuracy']:.1f} % right after {last['steps']} steps"
    )
