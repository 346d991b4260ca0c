"""Measured points of lesson 08: GradientFlow's stack on 1, 2, 4 ... ranks of an emulated cluster.

    found = points.measure(run, systems, predict)       a point for each number of ranks

The inputs of a prediction are the link, the accelerator's pace and the processor's own work. That
work is a step on an accelerator and a network that take no time. No input is a measured step with
an exchange. The inputs of all ranks predict more ranks too: `curve_s`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

import kit
from kit import flow, virtual
from kit.calls import SCALE
from kit.experiment import is_own
from lab.scaling import rank_subset
from lab.stack.bars import CSC, HALF, RING
from refgf.engine.residual import FusedResidual
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import CSCSettings
from refgf.exchange.precision import LossScale
from refgf.papers.scaling.systems import CHUNK, System
from refgf.predict.cost import Link
from refgf.training.step import Replica

NETWORK = "alexnet"
FAR = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]  # ranks that are only predicted
NAMES = {"eager": RING, "+ float16": HALF, "+ CSC 10 %": CSC}  # as lesson 07 calls them
SPREAD = 1.0  # of the logarithms of the chunks' norms: some chunks matter more than others


@dataclass(frozen=True)
class StepInputs:
    """What a step is predicted from. Seconds are this machine's.

    ready      [(ready_s, elements)] in the order of generation
    compute_s  forward and backward, slept
    update_s   the optimiser's
    work_s     the processor's own work for this exchange: additions, casts, packing, choosing
    after_s    CSC's part of it after the last gradient, and its update
    """

    ranks: int
    link: Link
    ready: list
    compute_s: float
    update_s: float
    work_s: float
    after_s: float
    chunk: int


Predict = Callable[[System, StepInputs], float]


def sizes(size: int) -> list[int]:
    """All ranks, half of them, a quarter and so on down to 1, in ascending order."""
    found = [size]
    while found[0] > 1:
        found.insert(0, (found[0] + 1) // 2)
    return found


def measure(run: kit.Run, systems: tuple[System, ...], predict: Predict) -> list[dict]:
    """A point for each number of ranks: all systems on all ranks, the first and the last on half.

    predict(system, inputs) -> seconds of a step. With --full all systems on half too. Collective.
    """
    run.section("AlexNet on the emulated cluster")
    points = []
    for p in sizes(run.size):
        chosen = systems if p == run.size or run.options.full else (systems[0], systems[-1])
        function = partial(on_ranks, systems=chosen if p > 1 else (), predict=predict)
        points.append(run.plain.bcast(rank_subset.first(run, p, function)))
    report(run, points)
    return points


def on_ranks(run: kit.Run, systems: tuple[System, ...], predict: Predict) -> dict:
    """Steps without exchange and with each system on these ranks, measured and predicted.

    curve_s: [[ranks, seconds of a step]], predicted from 2 ranks on with the same inputs.
    """
    count = run.quick(2, 2, 5)
    model = virtual.model(run, NETWORK, norms(run))
    off = virtual.without_exchange_of(run, model, count)
    if not systems:
        return {"ranks": run.size, "off": off, "rows": []}
    fill_s, update_s = virtual.idle_work(run, model, 1)
    ready, compute_s = virtual.ready(run, NETWORK)
    rows = []
    for system in systems:
        settings, warmup = arguments(run, system, model), int(system.itemsize == 2)
        if system.percent:
            own_s, after_s = virtual.own_work_of_csc(run, NETWORK, **settings())
        else:
            own_s, after_s = virtual.own_work(run, NETWORK, 1, **settings()), 0.0
        work_s = own_s - fill_s - update_s
        with virtual.flow(run, NETWORK, **settings()) as stack:
            timing = virtual.time_steps(run, stack, count, warmup)
        link = run.regime.goodput()
        work = update_s, work_s, after_s
        inputs = StepInputs(run.size, link, ready, compute_s, *work, chunk_of(run))
        share = max(0.0, work_s) / timing.median_s
        rows.append(
            {
                "name": system.name,
                "timing": timing,
                "predicted_s": predict(system, inputs),
                "curve_s": [(p, predict(system, replace(inputs, ranks=p))) for p in (2, *FAR)],
                "own_share": share,
                "processor": is_own(share),
            }
        )
    return {"ranks": run.size, "off": off, "rows": rows}


def norms(run: kit.Run) -> np.ndarray:
    """How large the gradients of each chunk are. (C,)"""
    count = -(-elements(run) // chunk_of(run))
    return np.random.default_rng(0).lognormal(0, SPREAD, count)


def arguments(run: kit.Run, system: System, model: Replica):
    """A function that returns the arguments of `virtual.flow` for this system, new each time.

    All systems share the pools of one model, because new ones take seconds.
    """

    def new() -> dict:
        found = {"shared": model, "grouping": Theta(system.threshold_bytes)}
        found["overlap"] = bool(system.overlap)
        if system.itemsize == 2:
            found |= {"wire": np.float16, "loss_scale": LossScale(SCALE)}
        if system.percent:
            residual = {"residual": FusedResidual}
            found["csc"] = CSCSettings(system.percent, chunk=chunk_of(run), **residual)
        return found

    return new


def elements(run: kit.Run) -> int:
    return sum(tensor.elements for tensor in virtual.workload(run, NETWORK).tensors)


def chunk_of(run: kit.Run) -> int:
    """32,768 gradients; with --quick as many chunks as the full network has."""
    return run.quick(flow.chunk_elements(elements(run)), CHUNK)


def efficiency(off_s: float, step_s: float) -> float:
    """Scaling efficiency in percent: T(exchange off) / T(exchange on) on the same ranks."""
    return 100 * off_s / step_s


def short(name: str) -> str:
    """The name of a technique in lesson 07, tables and figures."""
    name = name.partition(",")[0]
    return NAMES.get(name, name)


def report(run: kit.Run, points: list[dict]) -> None:
    """A row for each system and number of ranks."""
    factor, cells, pairs = run.regime.dilation, [], []
    for point in points:
        off = point["off"]
        name, here = "no exchange", kit.seconds(off.median_s)
        cells.append([point["ranks"], name, off.divided(factor), "", "", here, ""])
        for row in point["rows"]:
            timing, predicted_s = row["timing"], row["predicted_s"]
            pairs.append((predicted_s, timing.median_s))
            both = (efficiency(off.median_s, s) for s in (timing.median_s, predicted_s))
            own = f"{row['own_share']:.0%}{' processor' * row['processor']}"
            cells.append(
                [
                    point["ranks"],
                    short(row["name"]),
                    timing.divided(factor),
                    kit.seconds(predicted_s / factor),
                    "{:.0f} ({:.0f}) %".format(*both),
                    kit.seconds(timing.median_s),
                    own,
                ]
            )
    run.say("step and predicted: the cluster's time. here: this machine's, slept and real.")
    run.say("efficiency: T(no exchange) / T, measured (predicted). own work: share of the step.")
    run.say("CSC updates the chunks that were sent, every other row all weights.")
    header = ["ranks", "technique", "step", "predicted", "efficiency", "here", "own work"]
    run.table(header, cells)
    if pairs:
        run.say(kit.errors_in_words(pairs))
        report_curves(run, points[-1])


def report_curves(run: kit.Run, point: dict) -> None:
    """The scaling efficiency predicted for other numbers of ranks, with this point's inputs."""
    run.say("PREDICTED for other numbers of ranks with the inputs of the last row, in percent:")
    curves = {row["name"]: dict(row["curve_s"]) for row in point["rows"]}
    off_s = point["off"].median_s
    rows = [[p, *(f"{efficiency(off_s, s[p]):.1f}" for s in curves.values())] for p in (2, *FAR)]
    run.table(["ranks", *map(short, curves)], rows)
