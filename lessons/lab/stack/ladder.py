"""Lesson 07's bars on the emulated cluster: steps of a full-size network on virtual accelerators.

    here = ladder.measure(run, "alexnet", stacks, norms)

Prediction of a step. The link is described, not measured; what this machine adds to it is measured
in calls of three sizes, apart from the steps and up to an eighth of all gradients:

    T(m) = 2(p-1) alpha + 2(p-1)/p m / B        the link
         + own(m)                               the processor: messages, casts, additions, memory
    step = timeline(when gradients are ready, T) + update

CSC: a thread accumulates and packs during backward. What is left after the last gradient, choosing
and the update of the chosen chunks, is measured without a network.

B is what TCP carries of the link's rate. MPI's own call is predicted as Rabenseifner's algorithm
(MPICH's for long messages): as many bytes as the ring sends. Its messages wait for no latency.
"""

from functools import partial

import numpy as np

import kit
from kit import call_times, calls, virtual
from kit.calls import Kind
from lab.stack.bars import DENSITY, SCALE, kind_of
from refgf import ops
from refgf.comm.topology import nodes
from refgf.papers.scaling.systems import CHUNK, System
from refgf.papers.scaling.systems import step as predicted_step
from refgf.predict.cost import Line, Link, ring_line
from refgf.predict.fit import Curve
from refgf.training.step import Replica

STEADY, MOST = 0.05, 5  # repeat steps until their range is below this part of them, or so often
SHORT, PARTS = 256, (64, 8)  # elements of a short call; others have such a part of all gradients
NATIVE_PARTS = (
    64,
    4,
)  # of MPI's, whose buffer is then new memory in each call (malloc: above 32 MiB)


def measure(run: kit.Run, network: str, stacks: dict, norms) -> dict:
    """{"rows", "alone", "elements"}: one row for each stack (bars.py), all times this machine's.

    stacks: {name: arguments of GradientFlow and of the model}; norms (C,): see accelerator.py
    """
    run.section(f"{virtual.workload(run, network).name} like {run.regime.like.name}")
    model = virtual.model(run, network, norms)
    off = partial(virtual.seconds_without_exchange, run, model, run.quick(1, 2, 3))
    alone = off()  # and again after the stacks, so that what drifts meanwhile is in its range
    fill_s, update_s = virtual.idle_work(run, model)
    ready, compute_s = virtual.ready(run, network)
    n = sum(elements for _, elements in ready)
    rows, lines = [], {}
    for name, arguments in stacks.items():
        kind = kind_of(arguments)
        run.opaque = run.opaque or kind.make is kit.mpi_allreduce
        step, number = time_steps(run, network, model, **arguments)
        run.say(f"measured: {name}, {step} on this machine")
        if kind not in lines:
            lines[kind] = link_and_own(run, kind, n)
        link, own = lines[kind]
        csc_s, after_s = 0.0, 0.0
        if "csc" in arguments:  # its update is of chosen chunks only, so it is part of these
            csc_s, after_s = virtual.own_work_of_csc(run, network, shared=model, **arguments)
            csc_s = max(after_s, csc_s - fill_s)
        system = system_of(name, arguments, after_s)
        predicted = predicted_step(ready, system, partial(sum_of, link, own), compute_s)
        own_s = sum(own(call.bytes) for call in predicted.calls) + max(csc_s, update_s)
        rows.append(
            {
                "name": name,
                "step": step,
                "predicted_s": predicted.step_s + (0.0 if system.percent else update_s),
                "calls": number,
                "own_share": own_s / step.median_s,
            }
        )
    return {"rows": rows, "alone": run.slowest(alone + off()), "elements": n}


def time_steps(run: kit.Run, network: str, model: Replica, **arguments):
    """(Timing of steps of this stack, number of its calls): of more steps where the first differ.

    All stacks share the pools of one model, because new ones take seconds. Only a first step in
    float16 allocates, because float32 sums are made in the pools. CSC's first step is dense.
    """
    with virtual.flow(run, network, shared=model, **arguments) as stack:
        warmup, count = int(bool(arguments.get("wire"))), run.quick(2, 3, 5)
        mine = virtual.seconds_of_steps(run, stack, count, warmup=warmup)
        while True:
            timing = run.slowest(mine)  # the same on all ranks
            steady = timing.high_s - timing.low_s <= STEADY * timing.median_s
            if steady or run.options.quick or len(mine) >= MOST:
                return timing, len(stack.calls)
            step = partial(stack.step, *virtual.NOTHING, rate=0.0)
            mine += virtual.timed(run, stack.model.network, step, 0, 1)


def link_and_own(run: kit.Run, kind: Kind, n: int) -> tuple[Line, Curve]:
    """T(m) as the link's part and this machine's own, for n gradients. Collective.

    Own: what calls take longer than by the link's formula.
    """
    is_native = kind.make is kit.mpi_allreduce
    link = ring_line(run.size, link_between_nodes(run))
    if is_native:
        link = Line(0.0, link.b_s_per_byte)
    parts = NATIVE_PARTS if is_native else PARTS
    sizes = sorted({SHORT, *(max(2 * SHORT, n // part) for part in parts)})
    itemsize = np.dtype(kind.wire or np.float32).itemsize
    found = [(itemsize * n, t) for n, t in zip(sizes, call_s(run, kind, sizes), strict=True)]
    return link, Curve(tuple((m, max(0.0, t - link(m))) for m, t in found))


def sum_of(link: Line, own: Curve, nbytes: float) -> float:
    return link(nbytes) + own(nbytes)


def link_between_nodes(run: kit.Run) -> Link:
    """The link of the ring's slowest message; none on a single node, whose memory is shared."""
    if run.regime.links_are_waited_for or len(nodes(run.plain)) > 1:
        return run.regime.goodput()
    return Link(0.0, 0.0)


def call_s(run: kit.Run, kind: Kind, sizes) -> list[float]:
    """Median seconds of calls of these sizes in elements, made as the stack makes them."""
    comm = run.native if kind.make is kit.mpi_allreduce else run.comm
    comm = ops.background(comm.Dup()) if kind.overlap else comm.Dup()
    allreduce = calls.unscaled(kind.make(comm, wire=kind.wire), SCALE if kind.wire else 1.0)
    drawn = np.random.default_rng(run.rank).standard_normal(max(sizes), np.float32)
    allreduce = call_times.of_gradients(allreduce, drawn)
    if kind.overlap:
        curve = call_times.queued(run, sizes, allreduce, repeats=run.quick(2, 3))
        found = [seconds for _, seconds in curve.points]
    else:
        times = call_times.measure(run, allreduce, sizes, 2)
        found = [timing.median_s for timing in times.values()]
    comm.Free()
    return found


def system_of(name: str, arguments: dict, after_s: float) -> System:
    """The settings of the predicted step. after_s: CSC's work after the last gradient."""
    csc = arguments.get("csc")
    return System(
        name,
        itemsize=np.dtype(arguments.get("wire") or np.float32).itemsize,
        threshold_bytes=arguments["grouping"].threshold_bytes,
        percent=DENSITY if csc else None,
        chunk=csc.chunk if csc else CHUNK,
        overlap=bool(arguments.get("overlap")),
        selection_s=after_s,
    )
