"""Lesson 17: what is learned with each exchange. Real training; nothing is timed.

Differences in accuracy are paired: the same fold and the same seed.
"""

import copy
import itertools

import numpy as np

import kit
from kit import claims, flow, images, trials
from lab.low_rank.methods import (
    CSC,
    CSC_PERCENT,
    DENSE,
    DROPPED,
    RANK_1,
    SIGNS,
    TOPK,
    TRAINED,
    VOTE,
    exchange_of,
    predicted_bytes,
)
from refgf import ops

ENOUGH = 10  # runs
FOLDS = range(5)
OF_CSC = """\
- CSC chooses whole chunks, so an important gradient waits until its neighbours are worth it. Lesson
  12 compares it with as many single gradients, and with a warm-up of its density."""
OF_POWERSGD = """\
- PowerSGD of rank 1 is better with its error than without: what was left out adds up until Q turns
  to it."""
OF_TOPK = """\
- Top-k at 1 % is worse with its error. Likely, and not shown here: an element is sent about every
  hundredth step, so what is sent late belongs to older weights, and momentum repeats it."""
OF_SIGNS = """\
- Signs, with their error, lose more than votes, without one. The reason is open. Signs feed an
  error back and add p scaled signs; a vote feeds nothing back and takes one sign. Signs without
  their error are not trained here, so the numbers do not say which of the two matters."""


def measure(run: kit.Run, train, held_out, vote) -> dict:
    """{"methods": {name: accuracies in percent}, "differences": from dense in points, "bytes"}."""
    quiet = copy.copy(run)
    quiet.comm = ops.background(run.native)  # ranks that wait leave their core to others
    epochs = run.options.epochs or run.quick(1, 3, 12)
    seeds, folds = run.quick([1], [1, 2], [1, 2, 3, 4]), run.quick([None], FOLDS)
    names, pairs = run.quick(TRAINED[:2], TRAINED), len(seeds) * len(folds)
    run.section(f"Accuracy after {epochs} epochs, {pairs} runs of each (a small network)")
    runs: dict = {name: [] for name in names}
    for number in folds:
        parts = images.fold(run, train, held_out, number)
        for seed, (name, rows) in itertools.product(seeds, runs.items()):
            with stack_of(quiet, name, parts[0], seed, vote) as stack:
                rows.append(flow.learn(quiet, stack, *parts, epochs, seed=seed, only_last=True))
    shapes, n = tensors(run, train)
    sent = {name: predicted_bytes(name, shapes, n, max(2, run.size)) for name in names}
    result: dict = {"epochs": epochs, "bytes": sent, "methods": {}, "differences": {}}
    for name, rows in runs.items():
        result["methods"][name] = [100 * (epoch[-1]["accuracy"] or 0) for epoch in rows]
        if pairs >= ENOUGH:
            found = {"dense": DENSE, "fed": name.partition(", no error")[0]}
            for key, other in found.items():
                points = trials.difference(rows, runs[other])
                result["differences"].setdefault(key, {})[name] = claims.interval(*points)
    report(run, result, runs)
    return result


def stack_of(run: kit.Run, name: str, data, seed: int, vote):
    """One call for the whole pool; momentum after the sum, but for CSC, which has its own."""
    if name == CSC:
        return flow.new(run, data, seed, csc=flow.csc(run, data, CSC_PERCENT))
    return flow.new(run, data, seed, allreduce=exchange_of(name, *tensors(run, data), vote))


def tensors(run: kit.Run, data) -> tuple[list, int]:
    """(shapes of the gradients in the order of the pool, elements)."""
    pool = images.model(run, data).gradients
    return [tuple(spec.shape) for spec in pool.specs], pool.flat.size


def report(run: kit.Run, result: dict, runs: dict) -> None:
    cells = []
    for name, accuracies in result["methods"].items():
        enough = name != DENSE and result["differences"]
        minus = trials.interval(runs[name], runs[DENSE]) if enough else ""
        share = result["bytes"][name] / result["bytes"][DENSE]
        cells.append([name, f"{100 * share:.3g} %", f"{np.mean(accuracies):.1f} %", minus])
    run.table(["exchange", "bytes, of dense", "mean accuracy", "minus dense, paired"], cells)
    run.say(reading(result["differences"]) or f"fewer than {ENOUGH} runs: too few to compare")


def reading(differences: dict) -> str:
    """What the points say, each sentence where its interval does; "" without differences."""
    if not differences:
        return ""
    lost, fed = differences["dense"], differences["fed"]
    said = {
        OF_CSC: lost[CSC]["high_s"] < 0,
        OF_POWERSGD: fed[RANK_1 + DROPPED]["high_s"] < 0,
        OF_TOPK: fed[TOPK + DROPPED]["low_s"] > 0,
        OF_SIGNS: lost[SIGNS]["high_s"] < lost[VOTE]["low_s"],
    }
    return "\n".join(["How to read the points:", *(text for text, holds in said.items() if holds)])
