"""Lesson 13's learning, by real training of a small network: drift, rounding, accuracy.

No message waits for an emulated latency here, because it would not change what is learned.
"""

import functools
import itertools

import numpy as np

import kit
from kit import flow, images, trials
from kit.claims import interval
from lab.daso.rare import DILOCO, OUTER, rare
from lab.daso.scene import SYNCHRONOUS, Scene, synchronous
from refgf import ops
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.device import to_host
from refgf.machine.digits import digits
from refgf.papers.daso.bfloat16 import bfloat16_bits, bfloat16_values
from refgf.papers.daso.daso import DASO
from refgf.papers.daso.phases import Constant, Phase, Phases
from refgf.training.data import steps_per_epoch

CYCLING, STALE = "DASO", "B = 8, W = 8 throughout"
UNROUNDED = "DASO, not rounded"  # float32 also in blocking phases
DRIFTS = {
    "B = 1, W = 1": Phase(1),
    "B = 4, W = 1": Phase(4),
    "B = 8, W = 1": Phase(8),
    "B = 8, W = 8": Phase(8, 1, 8),
    "no sums": Phase(1000, 1, 0),
}


def daso(run: kit.Run, data, nodes, phases, per_epoch: int, seed=images.SEED, wire="bfloat16"):
    """DASO around the lesson's small network."""
    return DASO(run.native, images.model(run, data, seed), nodes, phases, per_epoch, wire=wire)


def watch_drift(run: kit.Run, data, nodes) -> dict:
    """{name: [distance of a node's parameters after each batch, for each seed]}; an epoch each.

    The distance from the mean of all nodes, as a share of the mean's norm; the largest of all
    nodes.
    """
    run.section("How far nodes drift apart")
    per_epoch, found = run.quick(9, 18), {}
    for name in [*list(DRIFTS)[: run.quick(3, 5)], DILOCO]:
        found[name] = []
        for seed in run.quick([1], [1, 2, 3], [1, 2, 3, 4, 5]):
            distances = []
            with drifting(run, name, data, nodes, per_epoch, seed) as stack:
                for batch in images.steps(run, data, per_epoch):
                    stack.step(*batch, rate=run.options.rate)
                    distances.append(distance(run, stack.model.parameters.flat))
            found[name].append(distances)
        largest = [100 * max(distances) for distances in found[name]]
        run.say(
            f"{name:>12}: at most {np.median(largest):.2f} % of the norm ({len(largest)} seeds: "
            f"{min(largest):.2f} to {max(largest):.2f} %), "
            f"{100 * found[name][0][-1]:.2g} % after the last batch"
        )
    return found


def drifting(run: kit.Run, name: str, data, nodes, per_epoch: int, seed: int):
    """The stack whose nodes drift."""
    if name in OUTER:
        return rare(run.native, images.model(run, data, seed), nodes, name)
    return daso(run, data, nodes, Constant(DRIFTS[name]), per_epoch, seed)


def distance(run: kit.Run, w) -> float:
    w = to_host(w)
    mean = w.astype(np.float64)
    collective(ops.background(run.native), ring.allreduce)(mean)
    mean /= run.size
    return max(run.plain.allgather(float(np.linalg.norm(w - mean) / np.linalg.norm(mean))))


def lost_updates(run: kit.Run, data, nodes) -> float:
    """The share of a step's updates that rounding the parameters to bfloat16 undoes.

    After some synchronous steps, from parameters that a blocking phase has rounded.
    """
    batches = list(images.steps(run, data, run.quick(4, 12)))
    with synchronous(here(run, data, nodes)) as stack:
        w = stack.model.parameters.flat
        for batch in batches:
            w[:] = before = bfloat16_values(bfloat16_bits(w))
            stack.step(*batch, rate=run.options.rate)
    changed = w != before
    lost = changed & (bfloat16_values(bfloat16_bits(w)) == before)
    share = float(lost.sum() / max(1, changed.sum()))
    run.say(f"bfloat16 parameters lose {100 * share:.0f} % of the updates of a step entirely")
    return share


def here(run: kit.Run, data, nodes, seed: int = images.SEED) -> Scene:
    """The small network without emulated latency, for `synchronous`."""
    model = functools.partial(images.model, run, data, seed)
    return Scene(run.native, nodes, model, iter(()), kit.Timing(0.0, 0.0, 0.0, 0))


def compare_accuracy(run: kit.Run, train, held_out, nodes) -> dict:
    """The same training: synchronous, by DASO, by DiLoCo, and by a phase of DASO throughout.

    paired: the difference from synchronous in points, {"median_s": mean, and the 95 % interval}
    """
    epochs = run.options.epochs or run.quick(1, 5, 16)
    seeds, folds = run.quick([1], [1, 2]), range(run.quick(1, 5) if not run.options.data else 1)
    pairs = len(seeds) * len(folds)
    # The authors' example has 4 epochs of warm-up and 4 of cool-down in 90.
    ends = 0 if epochs == 1 else max(1, round(4 / 90 * epochs))
    run.section(f"Accuracy after {epochs} epochs, {pairs} runs of each")
    run.say(f"epochs of DASO's warm-up and cool-down: {ends} each")
    names = [SYNCHRONOUS, CYCLING, *OUTER, *run.quick([], [STALE], [STALE, UNROUNDED])]
    runs, paired = {name: [] for name in names}, {}
    for fold in folds:
        data, out = digits(run.options.image_size, fold) if fold else (train, held_out)
        for seed, name in itertools.product(seeds, names):
            with stack_of(run, name, data, nodes, Phases(epochs, ends, ends), seed) as stack:
                last = name != SYNCHRONOUS  # whose epochs are compared at equal seconds
                rows = flow.learn(run, stack, data, out, epochs, seed=seed, only_last=last)
                runs[name].append(rows)
    for name in names:
        run.say(f"{name:>24}: {trials.in_words(runs[name])}")
    for name in names[1:] if pairs > 1 else []:
        paired[name] = interval(*trials.difference(runs[name], runs[SYNCHRONOUS]))
        found = trials.interval(runs[name], runs[SYNCHRONOUS])
        run.say(f"{name} minus synchronous, {pairs} pairs: {found}")
    return {"runs": runs, "paired": paired, "epochs": epochs, "ends": ends}


def stack_of(run: kit.Run, name: str, data, nodes, phases: Phases, seed: int):
    """The stack of one training."""
    if name == SYNCHRONOUS:
        return synchronous(here(run, data, nodes, seed))
    if name in OUTER:
        return rare(run.native, images.model(run, data, seed), nodes, name)
    per_epoch = steps_per_epoch(data.size, run.options.batch * run.size)
    phases = Constant(Phase(8, 1, 8)) if name == STALE else phases
    wire = None if name == UNROUNDED else "bfloat16"
    return daso(run, data, nodes, phases, per_epoch, seed, wire)
