"""Lesson 08 with --like this-machine: your computer as a cluster, whose ranks compute for real.

    found = here.measure(run, systems)      points, and the formula past them

The ranks share cores. So additions, casts, choosing chunks and a communication thread take time
from computing, and a small network sends short messages. Both are inputs, measured apart from the
steps (kit/step_times.py, call_times.py, calls.py). A rank without a core when its message arrives
is no input: what it costs is the error of the prediction.
"""

from dataclasses import replace

import numpy as np

import kit
from kit import calls, flow, images, step_times
from kit.calls import SCALE, Kind
from lab.scaling import machine_file, rank_subset
from lab.scaling.points import FAR, efficiency, short
from refgf.exchange.lazy import Theta
from refgf.exchange.precision import LossScale
from refgf.papers.scaling.systems import step
from refgf.predict.cost import Link, ring_line
from refgf.predict.fit import fit_line

LATER = "float16, overlap"


def measure(run: kit.Run, systems) -> dict:
    """Points on 1, 2, 4, 8 and all ranks, and efficiencies predicted for more. Collective."""
    run.section(f"This machine as a cluster: {run.options.batch} images per rank")
    data, _ = images.load(run)
    points = []
    for p in sorted({p for p in (1, 2, 4, 8) if p <= run.size} | {run.size}):
        point = rank_subset.first(run, p, lambda part: on_ranks(part, data, systems))
        points.append(run.plain.bcast(point))
    elements = [spec.size for spec in images.network(run, data).tensors]
    for point in points:
        steps_s = predict(point, point["ranks"], systems, elements)
        point["predicted_s"] = steps_s
        off_s = point["off"].median_s
        point["predicted"] = {name: efficiency(off_s, s) for name, s in steps_s.items()}
    report(run, points)
    beyond = [p for p in run.quick((64, 2048), FAR) if p > run.size]
    curves = {system.name: [] for system in systems}
    for p in beyond:
        for name, step_s in predict(points[-1], p, systems, elements).items():
            curves[name].append(efficiency(points[-1]["off"].median_s, step_s))
    run.say("PREDICTED for more ranks, on cores and links like those of the last row, in percent:")
    run.table(
        ["ranks", *map(short, curves)],
        [[p, *(f"{curve[i]:.1f}" for curve in curves.values())] for i, p in enumerate(beyond)],
    )
    machine_file.measured(run, points)
    return {"points": points, "beyond": beyond, "curves": curves}


def on_ranks(run: kit.Run, data, systems) -> dict:
    """Steps of all systems on these ranks, and the rings that the prediction is fitted to."""
    count = run.quick(4, 14, 30)
    off, ready_s = flow.without_exchange(run, data, images.steps(run, data, count))
    kinds = {kind_of(system): make_of(system) for system in systems}
    found, steps, selection_s = calls.measure(run, data, kinds, 21), {}, {}
    for system in systems:
        half = system.itemsize == 2
        arguments = {"wire": np.float16, "loss_scale": LossScale(SCALE)} if half else {}
        arguments["grouping"] = Theta(system.threshold_bytes)
        arguments["csc"] = system.percent and flow.csc(run, data, system.percent)
        with flow.new(run, data, overlap=system.overlap, **arguments) as stack:
            steps[system.name] = flow.time_steps(run, stack, images.steps(run, data, count))
            if system.percent:  # with and without the norms' call
                compute_s = found[kind_of(system)].compute_s
                for norms in (True, False):
                    batches = images.steps(run, data, count)
                    seconds = calls.selection_s(run, stack, batches, compute_s, norms)
                    selection_s[norms] = max(0.0, seconds)
    return {
        "ranks": run.size,
        "off": off,
        "ready_s": ready_s,
        "steps": steps,
        "links": {kind: link_of(each, run.size) for kind, each in found.items()},
        "calls": found,
        "selection_s": selection_s,
        "measured": {n: efficiency(off.median_s, t.median_s) for n, t in steps.items()},
    }


def kind_of(system) -> str:
    """The name of this system's calls."""
    return ("float16" if system.itemsize == 2 else "float32") + ", overlap" * system.overlap


def make_of(system) -> Kind:
    """How this system makes its calls."""
    return Kind(wire=np.float16 if system.itemsize == 2 else None, overlap=bool(system.overlap))


def link_of(each: calls.Calls, size: int) -> Link:
    """The link on which a ring of `size` ranks takes this long: the inverse of `ring_line`."""
    if size == 1:  # one rank sends nothing
        return Link(0.0, 0.0)
    line = fit_line(each.queued.points).line
    alpha_s = max(line.a_s, each.seconds(0)) / (2 * (size - 1))
    return Link(alpha_s, line.b_s_per_byte * size / (2 * (size - 1)))


def predict(point: dict, p: int, systems, elements: list[int]) -> dict[str, float]:
    """{technique: seconds of a step} on p ranks whose cores and links are those of this point.

    For the point's own number of ranks the calls are as measured, else those of the fitted ring.
    """
    found, here = {}, p == point["ranks"]
    for system in systems:
        kind = kind_of(system)
        call = point["calls"][kind]
        ready_s = step_times.rescaled(point["ready_s"], point["off"], call.compute_s)
        allreduce_s = call.seconds if here else ring_line(p, point["links"][kind])
        system = replace(system, overlap=call.kept_share)
        if system.percent:
            system = replace(
                system,
                chunk=flow.chunk_elements(sum(elements)),
                selection_s=point["selection_s"][here],
                norms_s=0.0 if here else None,
            )
        ready = list(zip(ready_s, elements))
        found[system.name] = step(ready, system, allreduce_s, call.compute_s).step_s
    return found


def report(run: kit.Run, points: list[dict]) -> None:
    """What the rings take, and the scaling efficiency of each technique."""
    for point in points[1:]:
        run.say(f"alpha and beta of the rings on {point['ranks']} ranks:")
        for kind, link in point["links"].items():
            beta = f"{1e9 * link.beta_s_per_byte:.3g} ns/byte"
            run.say(f"    {kind}: {kit.seconds(link.alpha_s)}, {beta}")
        share, choice_s = point["calls"][LATER].kept_share, point["selection_s"][True]
        run.say(f"    during a call computing keeps {share:.0%} of its speed")
        run.say(f"    CSC's choice adds {kit.seconds(choice_s)}")
    run.say("scaling efficiency in percent, T(no exchange) / T: measured (predicted)")
    names, rows = list(points[0]["steps"]), []
    for point in points:
        measured, predicted = point["measured"], point["predicted"]
        cells = [f"{measured[name]:.0f} ({predicted[name]:.0f})" for name in names]
        rows.append([point["ranks"], kit.seconds(point["off"].median_s), *cells])
    run.table(["ranks", "no exchange", *map(short, names)], rows)
    compared = [
        (point["predicted_s"][name], point["steps"][name].median_s)
        for point in points
        if point["ranks"] > 1
        for name in names
    ]
    if compared:
        run.say(f"steps on 2 ranks and more: {kit.errors_in_words(compared)}")
