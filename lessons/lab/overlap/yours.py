"""Lesson 04 with --mine: when your timeline starts and ends AlexNet's calls, and what it hides."""

import numpy as np

import kit
from kit import flow, virtual
from kit.mine import CLUSTER_S, Yours, on
from lab.overlap.steps import NETWORK, WIRE
from refgf.predict.cost import ring_line
from refgf.predict.timeline import lazy

BACKWARD_S = 0.1  # where no cluster is emulated: an assumption


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series = run.mine, []
    gradients, compute_s, call_s = step_of(run)
    ready_s = [t for t, _ in gradients]
    calls_s = [call_s(nbytes) for _, nbytes in gradients]
    each = "call", range(1, 1 + len(gradients))
    if "ready_times" in mine:
        layers_s = np.diff([0.0, *ready_s]).tolist()
        both = [make(0.0, layers_s) for make in mine.pair("ready_times")]
        at = "gradient", each[1]
        series.append(mine.series("ready_times", "Gradients are ready", at, *both, unit=CLUSTER_S))
    for name, title in (
        ("calls_with_overlap", "Ends of eager calls, with overlap"),
        ("calls_without_overlap", "Ends of eager calls, without overlap"),
    ):
        if name in mine:
            both = ([stop for _, stop in make(ready_s, calls_s)] for make in mine.pair(name))
            series.append(mine.series(name, title, each, *both, unit=CLUSTER_S))
    if "exposed_and_hidden" in mine:
        series += hidden(run, found, (gradients, compute_s, call_s))
    return series


def step_of(run: kit.Run) -> tuple:
    """([(ready_s, bytes)], seconds of computing, T(m)) of the lesson's step, in this machine's
    time."""
    itemsize = np.dtype(WIRE).itemsize
    if run.regime.like:
        ready, compute_s = virtual.ready(run, NETWORK)
        call_s = ring_line(run.size, run.regime.goodput())
    else:
        shapes, compute_s = virtual.workload(run, NETWORK), BACKWARD_S
        sizes = [tensor.elements for tensor in shapes.tensors]
        ready = list(zip((t for t, _ in shapes.gradients(BACKWARD_S)), sizes))
        call_s = flow.fit_allreduce(run, [256, 2**18], WIRE, run.quick(2, 5)).line
    return [(t, itemsize * elements) for t, elements in ready], compute_s, call_s


def hidden(run: kit.Run, found: dict, step: tuple) -> list[dict]:
    """Exposed and hidden time for each theta that the lesson has measured."""
    mine, (gradients, compute_s, call_s) = run.mine, step
    measured = found.get("steps", {})
    rows = measured.get("rows") or [{"theta": 0}, {"theta": float("inf")}]
    values: list[list] = []
    for row in rows:
        groups = lazy(gradients, row["theta"])
        ready_s = [gradients[group[-1]][0] for group in groups]
        calls_s = [call_s(sum(gradients[i][1] for i in group)) for group in groups]
        both = mine.pair("exposed_and_hidden")
        values.append([make(ready_s, calls_s, compute_s) for make in both])
    added_s = compute_s + sum(call_s(nbytes) for _, nbytes in gradients)
    at, series = ("theta", [kit.threshold(float(row["theta"])) for row in rows]), []
    steps_s = [compute_s + yours[0] for _, yours in values]  # ours: bars 2, 4, ... of the figure
    shown = on(0, range(2, 2 * len(rows) + 1, 2), [1e3 * t / run.regime.dilation for t in steps_s])
    for i, title in enumerate(("Exposed communication", "Hidden communication")):
        ours, yours = ([pair[whose][i] for pair in values] for whose in (0, 1))
        more = {"unit": CLUSTER_S, "added": added_s}
        if measured:
            alone = measured["alone"]
            if i == 0:
                more["on"] = shown | {"across": True, "of": " (links alone)"}
            more["measured"] = [
                (row["overlapped"] - alone, row["sequential"] - row["overlapped"])[i]
                for row in rows
            ]
        series.append(mine.series("exposed_and_hidden", title, at, ours, yours, **more))
    return series


YOURS = Yours(
    {
        "ready_times": "when gradients are ready",
        "calls_with_overlap": "the timeline of eager calls",
        "calls_without_overlap": "the same with one thread",
        "exposed_and_hidden": "predictions for each theta",
    },
    measure,
)
