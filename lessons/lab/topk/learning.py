"""Lesson 12: what is learned with each exchange. Real training of a small network.

Differences in accuracy are paired: the same fold and the same seed. They are shown from ten runs
on, with their 95 % interval.
"""

import copy
import itertools

import numpy as np

import kit
from kit import claims, flow, images, trials
from lab.topk.traffic import share_of_dense
from refgf import ops
from refgf.comm import gather
from refgf.exchange.chunk_choice import Density
from refgf.papers.mstopk.topk import TopK, exact_top_k
from refgf.training.data import steps_per_epoch

CSC_PERCENT = 10.0
MOMENTUM = 0.9
ENOUGH = 10  # runs
WARM = "CSC, warm-up"
METHODS = ("CSC", "top-k, same density", "top-k, same bytes", WARM, "dense")
FOLDS = range(5)


class MomentumBefore:
    """Applies each rank's momentum before the choice, as in CSC's form `dgc`.

    The residual then decays as the momentum does.
    """

    def __init__(self, run: kit.Run, exchange, n: int) -> None:
        self.exchange, self.u = exchange, run.xp.zeros(n, np.float32)

    def __call__(self, x) -> None:
        self.u *= MOMENTUM
        self.u += x
        x[:] = self.u
        self.exchange(x)  # adds the residual, chooses, sends, stores the new residual


def measure(run: kit.Run, train, held_out) -> dict:
    """{"methods": {name: accuracies in percent}, "differences" from CSC in points, "percents"}."""
    quiet = copy.copy(run)
    # only what is learned counts: no stated links, and ranks that wait leave their core to others
    quiet.comm = ops.background(run.native)
    epochs = run.options.epochs or run.quick(1, 3, 12)
    seeds, folds = run.quick([1], [1, 2], [1, 2, 3, 4]), run.quick([None], FOLDS)
    pairs = len(seeds) * len(folds)
    percents = dict.fromkeys((*METHODS[:2], WARM), CSC_PERCENT)
    percents[METHODS[2]] = CSC_PERCENT / run.size  # the bytes of CSC's chunks; norms not counted
    run.section(f"Accuracy after {epochs} epochs, {pairs} runs of each (a small network)")
    methods = run.quick(METHODS[:2], METHODS)
    runs = {name: [] for name in methods}
    for number in folds:
        parts = images.fold(run, train, held_out, number)
        for seed, (name, rows) in itertools.product(seeds, runs.items()):
            with stack_of(quiet, name, parts[0], seed, percents.get(name), epochs) as stack:
                trained = flow.learn(quiet, stack, *parts, epochs, seed=seed, only_last=True)
                rows.append(trained)
    steps = epochs * steps_per_epoch(train.size, run.options.batch * run.size)
    result = {"epochs": epochs, "steps": steps, "percents": percents}
    result["sent"] = {name: sent(name, percents.get(name), run.size, epochs) for name in methods}
    result |= {"methods": {}, "differences": {}}
    for name, rows in runs.items():
        result["methods"][name] = [100 * (epoch[-1]["accuracy"] or 0) for epoch in rows]
        if name != "CSC" and pairs >= ENOUGH:
            points = trials.difference(rows, runs["CSC"])
            result["differences"][name] = claims.interval(*points)
    print_runs(run, result, runs)
    return result


def sent(name: str, percent: float | None, ranks: int, epochs: int) -> float:
    """Bytes of a training over those of the dense ring, by the formulas, without norms."""
    if name == WARM:
        densities = [*trials.usual_warmup(epochs), *[percent] * epochs][:epochs]
        return sum(densities) / epochs / 100
    if name.startswith("top-k"):
        return float(share_of_dense(ranks, percent))
    return (percent or 100.0) / 100


def print_runs(run: kit.Run, result: dict, runs: dict) -> None:
    cells = []
    for name, accuracies in result["methods"].items():
        percent, difference = result["percents"].get(name), result["differences"].get(name)
        minus = "" if difference is None else trials.interval(runs[name], runs["CSC"])
        density = "100 %" if percent is None else f"{percent:.3g} %"
        bytes_sent = f"{100 * result['sent'][name]:.3g} %"
        cells.append([name, density, bytes_sent, f"{np.mean(accuracies):.1f} %", minus])
    head = ["exchange", "density", "bytes, of dense", "mean accuracy", "minus CSC, paired"]
    run.table(head, cells)
    if not result["differences"]:
        run.say(f"fewer than {ENOUGH} runs: too few to compare")


def stack_of(run: kit.Run, name: str, data, seed: int, percent: float | None, epochs: int):
    """The training stack of lesson 07 with another exchange: one call for the whole pool."""
    if name == "dense":
        return flow.new(run, data, seed)
    per_epoch = steps_per_epoch(data.size, run.options.batch * run.size)
    if name in ("CSC", WARM):
        warmup = trials.usual_warmup(epochs) if name == WARM else ()
        density = Density(percent, warmup, per_epoch, epochs * per_epoch)
        return flow.new(run, data, seed, csc=flow.csc(run, data, density))
    n = images.parameter_count(run, data)

    def exchange(comm, wire=None):
        topk = TopK(n, percent, gather.allgather(comm), exact_top_k, xp=run.xp)
        return MomentumBefore(run, topk, n)

    return flow.new(run, data, seed, allreduce=exchange, momentum=0.0)
