"""Lesson 04's steps on virtual accelerators: groups of gradients, without overlap and with it.

    found, charts = steps.measure(run)      all times are this machine's

What is measured, for each theta:

    communication   step without overlap - step without exchange
    backward left   from the start of the first call to the end of backward, read from a trace
    can be hidden   min(communication, backward left)
    hidden          step without overlap - step with overlap

What predicts it: the emulated link, the pace of the accelerator, and the processor's own work,
which is measured without a network and without sleeps.

    T(m) = ring's time on the link + work per byte * m               m bytes on the wire
    step = timeline(when gradients are ready, groups, T) + update
"""

import math
import statistics
from bisect import bisect
from collections.abc import Callable
from functools import partial

import numpy as np

import kit
from kit import virtual
from kit.experiment import MOST_OWN, is_own
from kit.rows import at
from kit.words import count
from refgf.exchange.lazy import Theta
from refgf.machine.timeline import Event, Timeline, gather
from refgf.predict.cost import ring_line
from refgf.predict.timeline import lazy, predict
from refgf.training.step import Replica

NETWORK, WIRE = "alexnet", np.float16
EAGER, ONE_CALL = 0, math.inf  # theta: a call per gradient, one call a step
CURVE = [EAGER, *(2**k for k in range(14, 29, 2)), ONE_CALL]
KINDS = {"sequential": "no overlap", "overlapped": "overlap"}


def measure(run: kit.Run) -> tuple[dict, dict]:
    """({"steps": numbers}, {kind: events of all ranks in an eager step}). Collective.

    Numbers: "alone", "window_s", "rows" (one for each theta), "curve", "errors", "largest_error".
    """
    thetas = sorted({EAGER, *(run.options.theta or ()), ONE_CALL})
    run.section("AlexNet's gradients in float16, computing slept")
    count = run.quick(2, 3, 7)
    model = virtual.model(run, NETWORK)
    alone = virtual.without_exchange_of(run, model, count)
    settings = {"wire": WIRE, "grouping": Theta(EAGER), "shared": model}
    fill_s, update_s = virtual.idle_work(run, model)
    work_s = max(0.0, virtual.own_work(run, NETWORK, **settings) - fill_s - update_s)
    forecast = partial(predicted, run, work_s=work_s, update_s=update_s)
    measured, charts = {}, {}
    for theta in thetas:
        measured[theta], charts[theta] = one_theta(run, model, theta, count)
    window_s = backward_left(charts[EAGER]["overlapped"])
    rows = [
        row | {"predicted": forecast(theta)} | compared(row, alone, work_s, window_s)
        for theta, row in measured.items()
    ]
    pairs = [(row["predicted"][kind], row[kind].median_s) for row in rows for kind in KINDS]
    found = {
        "alone": alone,
        "window_s": window_s,
        "rows": rows,
        "curve": [forecast(theta) for theta in CURVE],
        "errors": kit.errors_in_words(pairs),
        "largest_error": max(abs(ours_s / step_s - 1) for ours_s, step_s in pairs),
    }
    show(run, found)
    return {"steps": found}, charts[EAGER]


def one_theta(run: kit.Run, model: Replica, theta: float, count: int) -> tuple[dict, dict]:
    """(the times of a row, {kind: the last step's events of all ranks}). Collective."""
    row, charts = {"theta": theta}, {}
    for kind in KINDS:
        timeline, overlap = Timeline(), kind == "overlapped"
        settings = {"grouping": Theta(theta), "overlap": overlap, "observe": timeline}
        with virtual.flow(run, NETWORK, shared=model, wire=WIRE, **settings) as stack:
            row[kind] = virtual.time_steps(run, stack, count)
            row["calls"] = len(stack.calls)
            charts[kind] = gather(run.plain, typical_step(run, timeline, row[kind].median_s))
    return row, charts


def typical_step(run: kit.Run, timeline: Timeline, median_s: float) -> Timeline:
    """Only the events of one step: on rank 0 the nearest to the median. Collective."""
    found = split(timeline)
    apart = [abs(stop_s(step) - start_s(step) - median_s) for step in found]
    return found[run.plain.bcast(apart.index(min(apart)))]


def split(timeline: Timeline) -> list[Timeline]:
    """The events of each step, which begins with FORWARD."""
    starts = [e.start_s for e in timeline.lanes["compute"] if e.name == "FORWARD"]
    steps = [Timeline() for _ in starts]
    for lane, events in timeline.lanes.items():
        for e in events:
            steps[bisect(starts, e.start_s) - 1].lanes.setdefault(lane, []).append(e)
    return steps


def start_s(step: Timeline) -> float:
    return min(e.start_s for events in step.lanes.values() for e in events)


def stop_s(step: Timeline) -> float:
    return max(e.stop_s for events in step.lanes.values() for e in events)


def backward_left(chart: list[dict[str, list[Event]]]) -> float:
    """Seconds from the start of a rank's first call to the end of its backward; the median."""
    return statistics.median(
        next(e.stop_s for e in lanes["compute"] if e.name == "BACKWARD")
        - min(e.start_s for e in lanes["communication"])
        for lanes in chart
    )


def row_of(result: dict, theta: float) -> dict | None:
    """The row of this theta in the lesson's JSON; None where it was not measured."""
    return at(result, "steps", "rows", {"theta": theta})


def hidden(row: dict) -> dict:
    """The timing of what overlap hides, of a row in the JSON; below 0 where the step is longer."""
    off, on = (row[kind] for kind in KINDS)
    return {
        "median_s": off["median_s"] - on["median_s"],
        "low_s": off["low_s"] - on["high_s"],
        "high_s": off["high_s"] - on["low_s"],
    }


# ---- the prediction ----


def predicted(run: kit.Run, theta: float, work_s: float, update_s: float) -> dict:
    """Seconds of both steps, and of what can be hidden and is hidden, all from the timeline.

    work_s: the processor's work on all gradients in the exchange, spread over their bytes
    """
    ready, compute_s = virtual.ready(run, NETWORK)
    itemsize = np.dtype(WIRE).itemsize
    gradients = [(ready_s, itemsize * elements) for ready_s, elements in ready]
    total = sum(nbytes for _, nbytes in gradients)
    call_s = with_work(ring_line(run.size, run.regime.goodput()), work_s / total)
    groups = lazy(gradients, theta)
    steps = {
        kind: predict(gradients, groups, call_s, kind == "overlapped", compute_s) for kind in KINDS
    }
    on = steps["overlapped"]
    return {
        "theta": theta,
        "hideable_s": min(on.communication_s, compute_s - gradients[0][0]),
        "hidden_s": on.communication_s - on.exposed_s,
    } | {kind: step.step_s + update_s for kind, step in steps.items()}


def with_work(line: Callable, work_s_per_byte: float) -> Callable:
    """T(m) with the processor's work."""
    return lambda nbytes: line(nbytes) + work_s_per_byte * nbytes


def compared(row: dict, alone: kit.Timing, work_s: float, window_s: float) -> dict:
    """What can be hidden, and the share of the processor's own work."""
    calls_s = row["sequential"].median_s - alone.median_s
    return {
        "hideable_s": max(0.0, min(calls_s, window_s)),
        "own_share": {kind: work_s / row[kind].median_s for kind in KINDS},
    }


# ---- the tables ----


def show(run: kit.Run, found: dict) -> None:
    """Two tables in the emulated cluster's time: the steps, and what overlap hides of them."""
    factor = run.regime.dilation
    alone = found["alone"]
    table = [["no exchange", alone.divided(factor), "", kit.seconds(alone.median_s), ""]]
    for row in found["rows"]:
        for kind in KINDS:
            share = row["own_share"][kind]
            table.append(
                [
                    name_of(row, kind),
                    row[kind].divided(factor),
                    kit.seconds(row["predicted"][kind] / factor),
                    kit.seconds(row[kind].median_s),
                    f"{'processor, ' * is_own(share)}{100 * share:.0f} %",
                ]
            )
    run.table(["", "step on the cluster", "predicted", "here", "own work"], table)
    run.say(found["errors"])
    run.say("here: on this machine, in its own time.")
    run.say(f"own work: casts and sums of this processor; above {MOST_OWN:.0%} they decide the row")
    run.say("\nWhat can be hidden, and what is hidden, in the cluster's time:")
    run.table(
        ["", "communication", "backward left", "can be hidden", "hidden", "share", "predicted"],
        [hidden_cells(row, alone, found["window_s"], factor) for row in found["rows"]],
    )


def hidden_cells(row: dict, alone: kit.Timing, window_s: float, factor: float) -> list[str]:
    off, on, ours = row["sequential"], row["overlapped"], row["predicted"]
    hidden_s = off.median_s - on.median_s
    times_s = off.median_s - alone.median_s, window_s, row["hideable_s"], hidden_s
    return [
        number_of_calls(row),
        *(signed(t / factor) for t in times_s),
        percent(hidden_s, row["hideable_s"]),
        percent(ours["hidden_s"], ours["hideable_s"]),
    ]


def signed(t: float) -> str:
    return kit.seconds(t) if t >= 0 else f"-{kit.seconds(-t)}"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "-"


def number_of_calls(row: dict) -> str:
    """'26 calls'; with the theta where --theta gave it: '120,000,000 B: 2 calls'."""
    calls, theta = count(row["calls"], "call"), float(row["theta"])
    return calls if theta in (EAGER, ONE_CALL) else f"{theta:,.0f} B: {calls}"


def name_of(row: dict, kind: str) -> str:
    """'26 calls, overlap'."""
    return f"{number_of_calls(row)}, {KINDS[kind]}"
