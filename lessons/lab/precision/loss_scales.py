"""Lesson 05's loss scales: what they lose on the wire, and how networks learn with them.

    gradients = loss_scales.real_gradients(run, train)
    found = loss_scales.lost(run, gradients[rank])     shares that become zero or infinite, and
                                                       the share of the norm that becomes zero
    found = loss_scales.learn(run, train, held_out)    paired trainings in float32 and float16

A training runs on one rank: all the ranks' images in one batch, gradients rounded once for the
wire. What more ranks round is measured without training, in rounding.py. Each rank trains
other pairs at the same time.
"""

import copy
import functools

import numpy as np

import kit
from kit import flow, images, trials
from kit.claims import interval
from refgf.device import to_host
from refgf.exchange.lazy import Theta
from refgf.exchange.precision import LossScale
from refgf.machine.accelerator import InstantComm
from refgf.machine.trace import TracedComm
from refgf.machine.underflow import Underflow
from refgf.oracle.definitions import on_wire, underflow_share

HALF = np.float16
LARGEST_ZERO = float(np.finfo(HALF).smallest_subnormal) / 2  # the largest that rounds to zero
TOO_LOW, GOOD, TOO_HIGH = 2.0**-16, 2.0**12, 2.0**24
SCALES = [2.0**k for k in range(-16, 29, 4)]
BASELINE, DYNAMIC, LOW = "float32", "dynamic scale, from 2^24", "scale 2^-16"
NONE = "scale 2^-24"  # as no scale does, where the gradients are 2^24 times as small
MIXED = {"wire": HALF, "half_weights": True}
KINDS = {
    BASELINE: lambda: {},
    DYNAMIC: lambda: MIXED | {"loss_scale": LossScale(TOO_HIGH, dynamic=True, interval=50)},
    LOW: lambda: MIXED | {"loss_scale": LossScale(TOO_LOW)},
    NONE: lambda: MIXED | {"loss_scale": LossScale(2.0**-24)},
}
FOLDS, FIRST_SEED = 5, 100


def real_gradients(run: kit.Run, data) -> list[np.ndarray]:
    """Every rank's gradients of a batch, after a few steps of training."""
    with flow.new(run, data) as stack:
        for batch in images.steps(run, data, run.quick(2, 20)):
            stack.step(*batch, rate=run.options.rate)
        stack.model.network.loss(*next(images.steps(run, data, 1)))
        stack.model.network.backward(lambda i: None)
        return run.gather(stack.model.gradients.flat.copy())


def lost(run: kit.Run, gradients: np.ndarray) -> dict:
    """For each loss scale, what becomes zero on the wire, by count and by norm, or infinite."""
    run.section("Underflow, overflow and the loss scale")
    rows = {}
    for scale in SCALES:
        scaled = gradients * np.float32(scale)
        measured = Underflow(lambda x: None, HALF)
        measured(scaled)
        shares = zero_shares(scaled)
        assert shares["zero"] == measured.share == underflow_share(scaled, "float16")
        infinite = float(np.isinf(on_wire(scaled, "float16")).mean())
        rows[scale] = shares | {"infinite": infinite}
    run.table(
        ["loss scale", "become zero", "their share of the norm", "become infinite"],
        [[f"2^{exponent(scale)}", *map(percent, row.values())] for scale, row in rows.items()],
    )
    return {"rows": rows}


def zero_shares(scaled: np.ndarray) -> dict:
    """What becomes zero on the wire: its share of the non-zero gradients and of their norm."""
    lost = scaled[np.abs(scaled) <= LARGEST_ZERO]
    zero = np.count_nonzero(lost) / max(1, np.count_nonzero(scaled))
    return {"zero": zero, "norm": float(np.linalg.norm(lost) / (np.linalg.norm(scaled) or 1))}


def exponent(scale) -> int:
    """Of a power of two; `scale` may be the text that JSON has for a key."""
    return int(np.log2(float(scale)))


def percent(share: float) -> str:
    return f"{100 * share:.4f} %"


def learn(run: kit.Run, train, held_out) -> dict | None:
    """Train pairs that differ only in precision, and compare their accuracies. None: --pairs 0."""
    epochs, pairs = run.options.epochs or run.quick(1, 3, 8), run.options.pairs
    pairs = run.quick(1, 10, 20) if pairs is None else pairs
    if not pairs:
        return None
    run.section(f"Does the network learn the same? {pairs} pairs of {epochs} epochs")
    run.say("Each training runs on one rank, so its gradients are rounded for the wire once.")

    @functools.cache
    def fold(number: int):
        return images.fold(run, train, held_out, number)

    def job(number: int, name: str) -> dict:
        return train_alone(run, *fold(number % FOLDS), FIRST_SEED + number, epochs, name)

    jobs = [(number, name) for number in range(pairs) for name in KINDS]
    results = dict(zip(jobs, trials.deal(run, jobs, job)))
    runs = {name: [results[number, name] for number in range(pairs)] for name in KINDS}
    differences = {
        name: difference(runs[name], runs[BASELINE]) for name in KINDS if name != BASELINE
    }
    run.table(
        ["float16 with", "points against float32, 95 % interval", "skipped steps"],
        [
            [name, in_words(row), sum(one["skipped"] for one in runs[name]) / pairs]
            for name, row in differences.items()
        ],
    )
    lost = {
        name: {
            key: float(np.mean([step[key] for one in runs[name] for step in one["steps"]]))
            for key in ("zero", "norm")
        }
        for name in (LOW, NONE)
    }
    for name, shares in lost.items():
        zero, norm = map(percent, shares.values())
        run.say(f"{name} makes {zero} of the gradients zero, with {norm} of the norm (mean).")
    for name in KINDS:
        run.say(f"{name}: {trials.in_words([one['epochs'] for one in runs[name]])}")
    epochs_of = {name: [one["epochs"] for one in row] for name, row in runs.items()}
    return {
        "runs": epochs_of,
        "differences": differences,
        "pairs": pairs,
        "lost": lost,
        "skipped": runs[DYNAMIC][0]["skipped"],
    }


def train_alone(run: kit.Run, train, held_out, seed: int, epochs: int, name: str) -> dict:
    """One training on this rank alone, with the batch of all ranks."""
    own = copy.copy(run)
    own.plain, own.rank, own.size = InstantComm(0, 1), 0, 1
    own.comm, own.options = TracedComm(own.plain), copy.copy(run.options)
    own.options.batch *= run.size
    with flow.new(own, train, seed, grouping=Theta(), **KINDS[name]()) as stack:
        steps = record(stack)
        rows = flow.learn(own, stack, train, held_out, epochs, seed=seed)
        return {"epochs": rows, "skipped": stack.model.loss_scale.skipped, "steps": steps}


def record(stack) -> list[dict]:
    """A list to which each step from now on appends what becomes zero."""
    steps, finish = [], stack.finish

    def recorded():
        steps.append(zero_shares(to_host(stack.model.gradients.flat)))
        return finish()

    stack.finish = recorded
    return steps


def difference(some: list[dict], others: list[dict]) -> dict | None:
    """Paired difference in final accuracy, in points, with its 95 % interval."""
    mean, half = trials.difference(*([one["epochs"] for one in runs] for runs in (some, others)))
    return None if half is None else interval(mean, half)  # a single pair has no interval


def in_words(points: dict | None) -> str:
    if points is None:
        return "one pair: no interval"
    return f"{points['median_s']:+.2f} [{points['low_s']:+.2f}..{points['high_s']:+.2f}]"
