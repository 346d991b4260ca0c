"""Reads a trace of torch.profiler (Kineto; Chrome's JSON): gradients with sizes and ready times.

    once = schedule(wait=1, warmup=2, active=1, repeat=1)  # without repeat a new cycle clears it
    with profile(record_shapes=True, schedule=once) as profiler:
        for batch in batches:
            train_step(batch)          # on one rank, without DDP or inside model.no_sync()
            profiler.step()            # ends a step: ProfilerStep#3 in the trace
    profiler.export_chrome_trace("trace.json")

Autograd runs a `torch::autograd::AccumulateGrad` for each leaf; its input is the finished gradient.
Leaves are the parameters, inputs with requires_grad=True, and the inputs of each segment of
reentrant checkpointing. Only what the optimiser updates is taken: trace its step too. Compare the
number of tensors that is printed with len(list(model.parameters())).

On a CPU a gradient is ready when its AccumulateGrad ends. On a GPU it is ready when the last kernel
that was launched until then has ended; a kernel and its launch have the same correlation number.
Only the streams on which backward has kernels count: a copy on another one delays no
gradient, unless backward waits for it, and then its own kernels begin later.
Times in the file are microseconds (Kineto's `ts` and `dur`). If gradients accumulate over several
backward passes of a step, those of the last one are taken: they are sent.

All of a ProfilerStep counts, waiting for data too. What of it runs nothing is printed. On a GPU the
step ends with its last kernel, if that is later than the mark. With active=3 or more the step of
median length is taken, and the interval of pace holds all others but the first, which may hold
start-up, and more if they are few. On a CPU the profiler's own cost counts as computing: the
interval reaches down by it.

Of a step of DistributedDataParallel the exchange is taken out (ddp.py), with a warning. Traces of
several ranks of a job, --model rank*.json, count as one step: a sum waits for the last rank. In a
trace without marks a step ends with its last optimiser's step.
"""

from bisect import bisect_right
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from refgf.plan import ddp, sizes, streams
from refgf.plan.parameters import of_parameters
from refgf.plan.question import PACE
from refgf.plan.sizes import refuse
from refgf.plan.step_times import StepTimes
from refgf.plan.trace import BY_OPTIMIZER, READY, STEP, Events, ProfiledEvent, Trace

US = 1e-6
OTHERS = ("c10::BFloat16", "c10::Half", "double")  # types that have not 4 bytes
UNEQUAL = 1.2  # times the shortest step of a trace: a stall, not scatter (chosen)
EVENT_US = 1.7  # at most, of the profiler itself, on a CPU (measured: 0.9 to 1.7, docs/predict.md)
LEAST_SCALED = 0.01  # relative, of a step to the median (chosen)
LEAST_PACE = 0.2  # of a step, without the profiler's cost (chosen)
QUEUED_US = 100.0  # a kernel that begins later after its launch waited for the one before (chosen)


def from_trace(
    data: dict[str, Any], path: str, step: int | None = None, last: bool = False
) -> StepTimes:
    """The step with this number; without one that of median length, or the last in the trace."""
    trace = streams.computing(Trace.read(data["traceEvents"], path))
    found, others = one_step(trace, step), all_steps(trace)
    first = trace["marks"][0].name if trace["marks"] else ""
    sent = [elements for _, elements in found.ready]
    alike = [
        other
        for name, other in others.items()
        if name != first and [elements for _, elements in other.ready] == sent
    ]
    alike.sort(key=lambda each: each.compute_s)
    if step is None and not last and len(alike) > 1:
        found = median_step(alike)
    doubts = (
        *cut_short(found, others),
        *first_step(trace, found),
        *micro_batches(trace, others),
        *unseen_gpu(trace, data),
        *sizes.long_or_short(found.compute_s, "microseconds"),
    )
    said = scattered(found, alike) if len(alike) > 1 else another(first, found, others)
    (low, high), notes = found.scatter, (*found.notes, *doubts, *said)
    if len(alike) > 1:
        least_s, most_s = steps_held(alike)
        low, high = min(low, least_s / found.compute_s), max(high, most_s / found.compute_s)
    return own_cost(trace, replace(found, scatter=(low, high), notes=notes))


def median_step(alike: list[StepTimes]) -> StepTimes:
    """Of these, in order. Of an even number the shorter middle one, scaled to the mean of both."""
    found, median_s = alike[(len(alike) - 1) // 2], median(each.compute_s for each in alike)
    if median_s <= (1 + LEAST_SCALED) * found.compute_s:
        return found
    said = f"Scaled to {1e3 * median_s:.1f} ms, the mean of this step and the next longer one."
    return replace(found.scaled(median_s / found.compute_s), notes=(*found.notes, said))


def steps_held(alike: list[StepTimes]) -> tuple[float, float]:
    """The shortest and the longest step that the interval of pace holds, of n in order of length.

    Few steps may all be longer than the mean of many: of normal ones that happens to 3 in 1 of 8
    traces. So the ends are 1 / (n - 1) of their range farther out, unless one of them stalled.
    """
    least, most = alike[0].compute_s, alike[-1].compute_s
    more = (most - least) / (len(alike) - 1) if most <= UNEQUAL * least else 0.0
    return least - more, most + more


def scattered(found: StepTimes, alike: list[StepTimes]) -> tuple[str, ...]:
    """What the other steps took, of which the interval of pace knows the lengths only."""
    least, most = alike[0].compute_s, alike[-1].compute_s
    said = f"{len(alike)} complete steps after the first in the trace, {1e3 * least:.1f} to "
    said += f"{1e3 * most:.1f} ms: the interval of pace holds "
    if most <= UNEQUAL * least:
        more_s = least - steps_held(alike)[0]
        few = f", and {1e3 * more_s:.1f} ms more at each end, because few steps are no mean"
        return (f"{said}them{few * (more_s > (1 - PACE[True][0]) * found.compute_s)}.",)
    own = found.name.rpartition(", ")[2]
    said += f"their lengths, as multiples of {own}, but not a stall in one part of a step. Profile "
    return (f"WARNING: {said}more steps, and leave out what stalls.",)


def micro_batches(trace: Trace, others: dict[str, StepTimes]) -> tuple[str, ...]:
    """A warning where the optimiser steps in some of the marked steps only."""
    marks = [mark for mark in trace["marks"] if mark.name in others]
    without = [mark for mark in marks if not any(map(mark.begins, trace["optimizers"]))]
    if not without or len(without) == len(marks):
        return ()
    said = f"WARNING: {len(without)} of {len(marks)} steps with a backward have no Optimizer.step. "
    said += "Are they micro-batches? Then a step is several of them, and too short here: call "
    return (said + "profiler.step() after Optimizer.step only. (--sharded: --accumulate N, too.)",)


def unseen_gpu(trace: Trace, data: dict[str, Any]) -> tuple[str, ...]:
    """A warning where a GPU may have computed the step, and the trace has none of its kernels."""
    signs = [each.name for each in trace["launches"] if "Launch" in each.name]
    if data.get("deviceProperties"):  # Kineto lists the GPUs of the machine, whatever is profiled
        signs.append("a GPU in deviceProperties")
    if trace["kernels"] or not signs:
        return ()
    said = (
        f"WARNING: {signs[-1][:40]}, but no kernel in the trace. If a GPU computed the step, its "
    )
    said += "times are those of launches, and wrong: profile with activities=[CPU, CUDA]."
    return (said,)


def own_cost(trace: Trace, found: StepTimes) -> StepTimes:
    """The step with an interval of pace that reaches down to a step without the profiler's cost.

    On a GPU kernels are timed by the GPU itself.
    """
    mark = next((m for m in trace["marks"] if found.name.endswith(f", {m.name}")), None)
    count = sum(map(mark.begins, trace["events"])) if mark else len(trace["events"])
    share = max(LEAST_PACE, 1 - EVENT_US * US * count / found.compute_s)
    if trace["kernels"] or share >= PACE[True][0]:
        return found
    low, high = found.scatter
    said = f"WARNING: the profiler's own cost counts as computing: {count:,} events in the step, "
    said += f"up to {EVENT_US:g} us each. Without it a step may take {share:.2f} times as long: "
    said += "the interval of pace holds that. Time steps without the profiler (and without "
    said += "with_stack), and pass a list of gradients whose times are scaled to theirs."
    return replace(found, scatter=(share * low, high), notes=(*found.notes, said))


def all_steps(trace: Trace) -> dict[str, StepTimes]:
    """{a mark: its step}, without steps that have no backward."""
    found = {}
    for mark in trace["marks"]:
        with suppress(ValueError):
            found[mark.name] = one_step(trace, int(mark.name.removeprefix(STEP)))
    return found


def cut_short(found: StepTimes, others: dict[str, StepTimes]) -> tuple[str, ...]:
    """A warning where another step of the trace has more gradients."""
    name = max(others, key=lambda each: len(others[each].ready), default="")
    count, most = len(found.ready), len(others[name].ready) if name else 0
    if most <= count:
        return ()
    own, number = found.name.rpartition(", ")[2], name.removeprefix(STEP)
    said = (
        f"WARNING: {own} has {count} gradients, and {name} has {most}. Do the trace's events end "
    )
    return (said + f"early? Then its step is too short: --step {number}.",)


def another(first: str, found: StepTimes, others: dict[str, StepTimes]) -> tuple[str, ...]:
    """A warning where the first step of two took another time than the second."""
    if first not in others:
        return ()
    share = others[first].compute_s / found.compute_s
    (low, high), (least, most) = PACE[True], found.scatter
    if min(low, least) <= share <= max(high, most):
        return ()
    said = f"WARNING: {first} took {share:.3g} times as long, and pace does not "
    return (said + "hold it. It may hold start-up: profile with active=3.",)


def one_step(trace: Trace, number: int | None) -> StepTimes:
    mark = window(trace, number)
    step = trace.within(mark)
    grads, notes = gradients(trace, step, mark)
    kernels = streams.launched(step, trace["kernels"])
    if trace["kernels"] and not kernels:
        count = len(trace["kernels"])
        got = f"{count} GPU events, none with the correlation number of a launch in {mark.name}"
        wanted = "kernels and their launches, which say when a gradient is final"
        again = "export the trace again, profiled with activities=[CPU, CUDA]"
        refuse(trace.path, got, wanted, again)
    began, over, cut_us = span(kernels, trace, mark)
    alone = ddp.removed(trace, began, over)
    announced = [grad.end for grad in grads]
    times = [alone(t) for t in streams.ready_times(kernels, announced)]
    ready = tuple((max(0.0, US * (t - began)), prod(e.shape)) for t, e in zip(times, grads))
    after_s = max(0.0, US * (alone(over) - times[-1]))
    if not ready[-1][0] + after_s:
        got = f"{mark.name}, which takes no time"
        refuse(trace.path, got, "a step that computes", "--step N, another one")
    doubt = streams.doubts(step, trace, announced, over - began)
    elements = sum(elements for _, elements in ready)
    exchange = ddp.notes(step, alone, elements, over - began)
    notes = (*waiting(trace, began, over, mark.name), *exchange, *doubt, *notes, *type_notes(grads))
    low, high = alone.scatter(alone(over) - began)
    if cut_us:
        said = f"WARNING: {1e3 * US * cut_us:.1f} ms before its first kernel are left out, because "
        said += "the step before, which is not in the trace, may have run in them. The interval of "
        notes = (*notes, said + "pace holds them. Better: profile with active=3.")
        high = max(high, (over - began + cut_us) / (over - began))
    name = f"{Path(trace.path).name}, {mark.name}"
    return StepTimes(name, "trace", ready, after_s, notes=notes, scatter=(low, high))


def window(trace: Trace, number: int | None) -> ProfiledEvent:
    """The mark of the step; one of the whole trace if no steps are marked."""
    if not trace["marks"]:
        if number is not None or not trace["events"]:
            again = "call profiler.step() after each step"
            refuse(trace.path, "no ProfilerStep", "marked steps", again)
        run = [event for event in trace["events"] if event.kind != "Trace"] or trace["events"]
        ends = min(event.start for event in run), max(event.end for event in run)
        return ProfiledEvent("the whole trace", "", *ends, {})
    marks = {mark.name.removeprefix(STEP): mark for mark in trace["marks"]}
    if number is not None and str(number) not in marks:
        refuse(trace.path, f"no step {number}", f"one of {', '.join(marks)}", "--step N")
    if number is not None:
        return marks[str(number)]
    full = [mark for mark in trace["marks"] if any(map(mark.begins, trace["grads"]))]
    return (full or trace["marks"])[-1]


def gradients(trace: Trace, step: Trace, mark: ProfiledEvent) -> tuple[Events, tuple[str, ...]]:
    """(the parameters' gradients of the last backward of the step, notes). ValueError for none."""
    if not trace["grads"]:
        got = f"no backward: none of its {len(trace['events'])} events is {READY}"
        whole = "profile the whole step, with schedule(..., repeat=1)"
        if count := sum(each.name.endswith(READY) for each in trace["engine"]):
            got = f"{count} events of autograd's engine, and none of {READY} in them"
            refuse(trace.path, got, "all events: these have the shapes", "do not filter the trace")
        refuse(trace.path, got, "a training step with loss.backward()", whole)
    require_one_unit(trace, mark)
    grads = sorted((e for e in step["grads"] if e.end <= mark.end), key=lambda grad: grad.end)
    if not grads:
        full = [each for each in trace["marks"] if any(map(each.begins, trace["grads"]))]
        names = " or ".join(each.name.removeprefix(STEP) for each in full)
        try_next = f"--step {names}" if full else "profile a whole step"
        refuse(trace.path, f"no backward in {mark.name}", "a step with loss.backward()", try_next)
    updated = min((optimizer.end for optimizer in step["optimizers"]), default=mark.end)
    if late := [grad for grad in grads if grad.start > updated]:
        got = f"two steps overlapping in {mark.name}: {len(late)} gradients after its optimiser's"
        again = "call profiler.step() after each step; of a GAN, trace each network's own"
        refuse(trace.path, f"{got} step", "one backward, then the optimiser", again)
    ddp.require_data_parallel(step, mark.name)
    if any(grad.shape is None for grad in grads):
        got = "no sizes: a gradient without Input Dims"
        refuse(trace.path, got, "the shape of each gradient", "profile(record_shapes=True)")
    grads, accumulated = last_pass(grads, step)
    grads, inputs = of_parameters(grads, step)
    return grads, accumulated + inputs


def require_one_unit(trace: Trace, mark: ProfiledEvent) -> None:
    """Gradients of no step, which fit this one after a multiplication, are in another unit."""
    marks = trace["marks"] or [mark]
    outside = [e for e in trace["grads"] if not any(each.begins(e) for each in marks)]
    for factor in (1e3, 1e-3, 1e6, 1e-6):
        if any(mark.start <= factor * grad.start <= mark.end for grad in outside):
            got = f"mixed units: backward fits the step only if its times are {factor:g} times ours"
            refuse(trace.path, got, "microseconds in every event", "export the trace again")


def last_pass(grads: Events, step: Trace) -> tuple[Events, tuple[str, ...]]:
    """(gradients of the last backward, notes). Forward work between two gradients divides passes.

    Passes with other sizes are not the same gradients again: then all are kept.
    """
    starts = forward_starts(step)
    passes = [[grads[0]]]
    for before, grad in pairwise(grads):
        if bisect_right(starts, before.end) < bisect_right(starts, grad.start):
            passes.append([])
        passes[-1].append(grad)
    sent = [[prod(grad.shape) for grad in each] for each in passes]
    if len(passes) == 1 or any(each != sent[0] for each in sent):
        return grads, ()
    said = f"{len(passes)} backward passes in the step"
    between = passes[0][0].start, passes[-1][0].start
    apart = [e for e in step["events"] if e.name.startswith("Optimizer.zero_grad#")]
    apart = [e for e in apart if between[0] < e.start < between[1]]
    if apart:
        said = (
            f"WARNING: {said}, and zero_grad between them, as in LBFGS or SAM. If each sends its "
        )
        return passes[-1], (said + "gradients, their exchange is too short here.",)
    return passes[-1], (f"{said}: gradients accumulate, the last sends them.",)


def forward_starts(step: Trace) -> list[float]:
    """Starts of forward operators, in order. Those that backward recomputes are not among them."""
    engine = sorted((event.start, event.end) for event in step["engine"])
    begins, latest = [low for low, _ in engine], list(accumulate((high for _, high in engine), max))
    found = []
    for forward in step["forwards"]:
        at = bisect_right(begins, forward.start)
        if not at or latest[at - 1] < forward.end:
            found.append(forward.start)
    return sorted(found)


def span(
    kernels: streams.Launched, trace: Trace, mark: ProfiledEvent
) -> tuple[float, float, float]:
    """(start, end) of the step on the processor that computes: on a CPU those of the mark.

    And what was left out before its start without knowing that it is not of this step.

    A GPU may lag behind: its step goes from the last kernel of the step before to its own last, and
    includes what it waits for the CPU. Of the first step in a trace the one before is not known. If
    its first kernel was queued, on the stream that computes most, the step begins with that.
    """
    if not kernels:
        return mark.start, mark.end, 0.0
    later = {launch.correlation for launch in trace["launches"] if launch.start >= mark.start}
    before = [kernel.end for kernel in trace["kernels"] if kernel.correlation not in later]
    began = max([mark.start, *before])
    if not before:
        launch, first = min(streams.busiest(kernels), key=lambda pair: pair[1].start)
        began = first.start if first.start > launch + QUEUED_US else mark.start
    cut = 0.0 if before else began - mark.start
    return began, max(mark.end, *(kernel.end for _, kernel in kernels)), cut


def waiting(trace: Trace, began: float, over: float, name: str) -> tuple[str, ...]:
    """What of the step runs nothing: waiting for data, Python, or a profiler's own time."""
    what, computing = (
        ("kernel", trace["kernels"]) if trace["kernels"] else ("operator", trace["operators"])
    )
    busy = ddp.spans(computing, began, over)
    if not busy:
        return ()
    idle = over - began - ddp.length(busy)
    after = over - busy[-1][1]
    total, idle, before, after = (
        f"{1e3 * US * t:.1f}" for t in (over - began, idle, busy[0][0] - began, after)
    )
    but = ", but for its exchange," if trace["sums"] else ""
    said = (
        f"All {total} ms of {name}{but} count. No {what} runs in {idle} of them: {before} before "
    )
    said += f"the first {what}, {after} after the last."
    loading = sum(load.end - load.start for load in trace["loads"] if began <= load.start <= over)
    return (said + (f" A DataLoader takes {1e3 * US * loading:.1f}." if loading else ""),)


def first_step(trace: Trace, found: StepTimes) -> tuple[str, ...]:
    """What is doubtful about a step that is not marked, or the first of a run."""
    if not trace["marks"]:
        return (
            "WARNING: no ProfilerStep in the trace: it may hold start-up, and waits before its "
            "first event are left out. Call profiler.step() after each step.",
        )
    first = trace["marks"][0].name
    if trace["marks"][0].kind == BY_OPTIMIZER:
        said = (
            "WARNING: no ProfilerStep in the trace: a step goes from the end of one Optimizer.step "
        )
        return (f"{said}to the end of the next.",)
    if first == f"{STEP}0" and found.name.endswith(f", {first}"):
        return ("WARNING: ProfilerStep#0 is the first of the run and holds start-up: warmup=2.",)
    return ()


def type_notes(grads: Events) -> tuple[str, ...]:
    types = "".join(str(grad.args.get("Input type")) for grad in grads)
    return sizes.wire_notes("trace", [each for each in OTHERS if each in types])
