"""Lesson 07's ladder: steps of a full-size network on virtual accelerators, stack by stack.

    here = ladder.measure(run, "alexnet", stacks, norms)

Prediction of a step, from the cluster's description and from work measured without a network:

    T(m) = 2(p-1) alpha + 2(p-1)/p m / B + work per byte * m         one call, m bytes on the wire
    step = timeline(when gradients are ready, T) + choice of chunks + update

B is what TCP carries of the link's rate. MPI's own algorithm is not ours: its T(m) is a line
through calls of three sizes, measured apart from the steps.
"""

import numpy as np

import kit
from kit import call_times, virtual
from refgf.papers.scaling.systems import CHUNK, System
from refgf.papers.scaling.systems import step as predicted_step
from refgf.predict.cost import Line, ring_line

DENSITY = 10.0  # percent of the chunks
MPI_SIZES = (256, 1 << 18, 1 << 21)  # elements of MPI's calls
TOO_MUCH = 0.25  # of a step: above, the row is the processor's


def measure(run: kit.Run, network: str, stacks: dict, norms) -> dict:
    """{"rows", "alone", "elements", "network"}: one row for each stack, all times this machine's.

    stacks: {name: arguments of GradientFlow and of the model}; norms (C,): see accelerator.py
    """
    count = run.quick(2, 3, 7)
    alone = virtual.without_exchange(run, network, count)
    fill_s, update_s = virtual.idle_work(run, network)
    ready, compute_s = virtual.ready(run, network)
    n = sum(elements for _, elements in ready)
    link, rows = run.regime.goodput(), []
    for name, arguments in stacks.items():
        own = arguments["allreduce"] is kit.mpi_allreduce
        run.opaque = run.opaque or own
        with virtual.flow(run, network, norms=norms, **arguments) as stack:
            step = virtual.time_steps(run, stack, count)
            calls = len(stack.calls)
        run.say(f"measured: {name}, {step} on this machine")
        work_s = max(0.0, virtual.own_work(run, network, norms=norms, **arguments) - fill_s)
        system = system_of(name, arguments, work_s)
        exchange_s = 0.0 if system.percent else max(0.0, work_s - update_s)
        line = mpi_line(run) if own else with_work(ring_line(run.size, link), exchange_s, system, n)
        predicted = predicted_step(ready, system, line, compute_s)
        rows.append(
            {
                "name": name,
                "step": step,
                "predicted_s": predicted.step_s + (0.0 if system.percent else update_s),
                "calls": calls,
                "own_share": work_s / step.median_s,
            }
        )
    return {"rows": rows, "alone": alone, "elements": n, "network": network}


def with_work(line: Line, work_s: float, system: System, n: int) -> Line:
    """T(m) with the processor's work on all n gradients spread over their bytes."""
    return Line(line.a_s, line.b_s_per_byte + work_s / (system.itemsize * n))


def mpi_line(run: kit.Run) -> Line:
    """T(m) of MPI's own call."""
    times = call_times.measure(run, run.mpi_allreduce(), MPI_SIZES, run.quick(1, 2))
    return call_times.fit(run, times).line


def system_of(name: str, arguments: dict, work_s: float) -> System:
    """The settings of the predicted step. CSC's work is done after the last gradient."""
    csc = arguments.get("csc")
    return System(
        name,
        itemsize=np.dtype(arguments.get("wire") or np.float32).itemsize,
        threshold_bytes=arguments["grouping"].threshold_bytes,
        percent=DENSITY if csc else None,
        chunk=csc.chunk if csc else CHUNK,
        overlap=bool(arguments.get("overlap")),
        selection_s=work_s if csc else 0.0,
    )


def show(run: kit.Run, here: dict) -> None:
    """The table: times in the emulated cluster's time, and this machine's."""
    factor, alone_s, before_s, table = run.regime.dilation, here["alone"].median_s, None, []
    for row in here["rows"]:
        step_s = row["step"].median_s
        table.append(
            [
                row["name"] + (" *" if (row["own_share"] or 0) > TOO_MUCH else ""),
                row["calls"],
                row["step"].divided(factor),
                kit.seconds(row["predicted_s"] / factor),
                "" if before_s is None else f"{100 * (1 - step_s / before_s):+.0f} %",
                f"{100 * alone_s / step_s:.0f} %",
                kit.seconds(step_s),
            ]
        )
        before_s = step_s
    run.say(f"a step without any exchange, update included: {here['alone'].divided(factor)}")
    head = ["", "calls", "step", "predicted", "gained", "efficiency", "on this machine"]
    run.table(head, table)
    if any(row[0].endswith("*") for row in table):
        run.say(f"* more than {TOO_MUCH:.0%} of this step is the processor's own work")
    pairs = [(row["predicted_s"], row["step"].median_s) for row in here["rows"]]
    run.say(kit.errors_in_words(pairs))
