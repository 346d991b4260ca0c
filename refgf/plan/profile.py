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
Times in the file are microseconds (Kineto's `ts` and `dur`). If gradients accumulate over several
backward passes of a step, those of the last one are taken: they are sent.

All of a ProfilerStep counts, waiting for data too. What of it runs nothing is printed. On a GPU the
step ends with its last kernel, if that is later than the mark. A step with an exchange is refused:
waiting for other ranks could not be told from waiting for data. With active=3 or more the interval
of pace holds all steps of the trace but the first, which may hold start-up.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise
from math import isfinite, prod
from pathlib import Path
from typing import Any

from refgf.plan import sizes
from refgf.plan.parameters import ON_GPU, OPTIMIZER, Events, end_of, of_parameters
from refgf.plan.step_times import StepTimes

US = 1e-6
READY = "torch::autograd::AccumulateGrad"
STEP = "ProfilerStep#"
LAUNCHES = ("cuda_runtime", "cuda_driver")
OLD_KINDS = {"Operator": "cpu_op", "Kernel": "kernel", "Runtime": "cuda_runtime"}  # torch 1.8
OLD_KINDS |= {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
ENGINE = "autograd::engine::evaluate_function"
EXCHANGES = ("nccl", "c10d::", "gloo:", "ncclkernel", "horovod")
HALVES = ("c10::BFloat16", "c10::Half")
LOADER = "enumerate(DataLoader)"
QUEUED_US = 100.0  # a kernel that begins later after its launch waited for the one before (chosen)


def from_trace(data: dict[str, Any], path: str, step: int | None = None) -> StepTimes:
    """The step with this number, or the last one in the trace."""
    events = timed(data["traceEvents"], path)
    marks = marked(events, path)
    found, seconds = one_step(events, marks, path, step), []
    doubts = (
        *first_step(marks, found, path),
        *sizes.long_or_short(found.compute_s, "microseconds"),
    )
    found = replace(found, notes=(*found.notes, *doubts))
    for mark in marks[1:]:
        with suppress(ValueError):  # a step without backward, or cut off
            other = one_step(events, marks, path, int(mark["name"].removeprefix(STEP)))
            if [n for _, n in other.ready] == [n for _, n in found.ready]:
                seconds.append(other.compute_s)
    if len(seconds) < 2 or not min(seconds):
        return found
    least, most = min(seconds), max(seconds)
    said = f"{len(seconds)} complete steps after the first in the trace, {1e3 * least:.1f} to "
    said += f"{1e3 * most:.1f} ms: the interval of pace holds them."
    scatter = min(1.0, least / found.compute_s), max(1.0, most / found.compute_s)
    return replace(found, scatter=scatter, notes=(*found.notes, said))


def one_step(events: Events, marks: Events, path: str, step: int | None) -> StepTimes:
    start, end, name = window(events, marks, path, step)
    grads = [event for event in events if event["name"] == READY]
    if not grads:
        got = f"no backward: none of its {len(events)} events is {READY}"
        whole = "profile the whole step, with schedule(..., repeat=1)"
        refuse(path, got, "a training step with loss.backward()", whole)
    inside = [event for event in grads if start <= event["ts"] and end_of(event) <= end]
    outside = [event for event in grads if not any(within(mark)(event) for mark in marks)]
    if marks:
        require_one_unit(outside, start, end, path)
    if not inside:
        whole = [m["name"].removeprefix(STEP) for m in marks if any(map(within(m), grads))]
        try_next = f"--step {' or '.join(whole)}" if whole else "profile a whole step"
        refuse(path, f"no backward in {name}", "a step with loss.backward()", try_next)
    everything, events = events, [e for e in events if start <= e["ts"] <= end]
    require_one_step(events, inside, path, name)
    exchanges = [event for event in events if event["name"].lower().startswith(EXCHANGES)]
    if exchanges:
        got = f"{len(exchanges)} events of an exchange, such as {exchanges[0]['name'][:40]}"
        refuse(path, got, "a step without exchange", "profile one rank, or in model.no_sync()")
    inside.sort(key=end_of)
    for grad in inside:
        size_of(grad, path)
    inside, accumulated = last_pass(inside, events, path)
    inside, inputs = of_parameters(inside, events)
    kernels = launched(events, everything)
    if not kernels:
        require_cpu(everything, path, name)
    began, over = span(kernels, everything, start, end)
    times = ready_times(kernels, [end_of(event) for event in inside])
    ready = tuple((max(0.0, US * (t - began)), size_of(e, path)) for t, e in zip(times, inside))
    after_s = max(0.0, US * (over - times[-1]))
    counted = waiting(everything, bool(kernels), (began, over), name)
    notes = (*counted, *accumulated, *inputs, *half_notes(inside))
    return StepTimes(f"{Path(path).name}, {name}", "trace", ready, after_s, notes=notes)


def span(
    kernels: Sequence[tuple[float, dict[str, Any]]], everything: Events, start: float, end: float
) -> tuple[float, float]:
    """(start, end) of the step on the processor that computes: on a CPU those of the mark.

    A GPU may lag behind: its step goes from the last kernel of the step before to its own last, and
    includes what it waits for the CPU. Of the first step in a trace the one before is not known. If
    its first kernel was queued, on the stream that computes most, the step begins with that.
    """
    if not kernels:
        return start, end
    later = {correlation(e) for e in everything if e.get("cat") in LAUNCHES and e["ts"] >= start}
    before = [e for e in everything if e.get("cat") in KERNELS and correlation(e) not in later]
    began = max([start, *map(end_of, before)])
    if not before:
        streams = {}
        for launch, kernel in kernels:
            streams.setdefault((str(kernel.get("pid")), str(kernel.get("tid"))), []).append(
                (kernel["ts"], launch, kernel["dur"])
            )
        busiest = max(streams.values(), key=lambda stream: sum(dur for *_, dur in stream))
        first, launch, _ = min(busiest)
        began = first if first > launch + QUEUED_US else start
    return began, max(end, *(end_of(kernel) for _, kernel in kernels))


def waiting(events: Events, gpu: bool, times: tuple[float, float], name: str) -> tuple[str, ...]:
    """What of the step runs nothing: waiting for data, Python, or a profiler's own time."""
    began, over = times
    computing = [event for event in events if event.get("cat") in (KERNELS if gpu else ("cpu_op",))]
    busy = sorted((max(began, e["ts"]), min(over, end_of(e))) for e in computing)
    busy = [(low, high) for low, high in busy if low < high]
    if not busy:
        return ()
    last, idle = began, 0.0
    for low, high in busy:
        idle += max(0.0, low - last)
        last = max(last, high)
    after = over - last
    total, idle, before, after = (
        f"{1e3 * US * t:.1f}" for t in (over - began, idle + after, busy[0][0] - began, after)
    )
    what = "kernel" if gpu else "operator"
    said = f"All {total} ms of {name} count. No {what} runs in {idle} of them: {before} before the "
    said += f"first {what}, {after} after the last."
    loads = [e for e in events if e["name"].startswith(LOADER) and e.get("cat") != ON_GPU]
    loading = sum(event["dur"] for event in loads if began <= event["ts"] <= over)
    return (said + (f" A DataLoader takes {1e3 * US * loading:.1f}." if loading else ""),)


def first_step(marks: Events, found: StepTimes, path: str) -> tuple[str, ...]:
    """What is doubtful about a step that is not marked, or the first of a run."""
    if not marks:
        return (
            "WARNING: no ProfilerStep in the trace: it may hold start-up, and waits before its "
            "first event are left out. Call profiler.step() after each step.",
        )
    if marks[0]["name"] == f"{STEP}0" and found.name == f"{Path(path).name}, {STEP}0":
        return ("WARNING: ProfilerStep#0 is the first of the run and holds start-up: warmup=2.",)
    return ()


def within(mark: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    """Does an event begin in this step?"""
    return lambda event: mark["ts"] <= event["ts"] <= end_of(mark)


def half_notes(grads: Events) -> tuple[str, ...]:
    types = "".join(str(event["args"].get("Input type")) for event in grads)
    return sizes.wire_notes("trace", [each for each in HALVES if each in types])


def timed(events: Any, path: str) -> Events:
    """Complete events with a name, finite times and args."""
    if not isinstance(events, list):
        refuse(path, "traceEvents that is no list", "a trace of torch.profiler", "export it again")
    found = []
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        times = [event.get("ts"), event.get("dur")]
        if not all(isinstance(t, int | float) and isfinite(t) for t in times) or times[1] < 0:
            got = f"event {str(event.get('name'))[:40]!r} with ts, dur = {times}"
            refuse(path, got, "microseconds", "export the trace again")
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        name, kind = str(event.get("name")), event.get("cat")
        kind = "user_annotation" if name.startswith(STEP) and kind == "Operator" else kind
        kind = OLD_KINDS.get(str(kind), kind)
        found.append(event | {"name": name, "args": args, "cat": kind})
    return found


def marked(events: Events, path: str) -> Events:
    """The marks of the steps, in order of time. ValueError for steps that overlap."""
    # Kineto repeats the annotation on the GPU's rows, where steps may be in flight together.
    marks = [e for e in events if e["name"].startswith(STEP) and e.get("cat") == "user_annotation"]
    marks = sorted(marks, key=lambda event: event["ts"])
    for one, other in pairwise(marks):
        if other["ts"] < end_of(one):
            got = f"{one['name']} and {other['name']}, which overlap in time"
            refuse(
                path, got, "one step after the other", "trace one rank; call profiler.step() once"
            )
    return marks


def window(events: Events, marks: Events, path: str, step: int | None) -> tuple[float, float, str]:
    """(start, end, name) of the step; of the whole trace if no steps are marked."""
    if not marks:
        if step is not None or not events:
            refuse(path, "no ProfilerStep", "marked steps", "call profiler.step() after each step")
        run = [event for event in events if event.get("cat") != "Trace"] or events
        return min(e["ts"] for e in run), max(map(end_of, run)), "the whole trace"
    numbers = {event["name"].removeprefix(STEP): event for event in marks}
    if step is not None and str(step) not in numbers:
        refuse(path, f"no step {step}", f"one of {', '.join(numbers)}", "--step N")
    mark = marks[-1] if step is None else numbers[str(step)]
    return mark["ts"], end_of(mark), mark["name"]


def require_one_unit(outside: Events, start: float, end: float, path: str) -> None:
    """Gradients of no step, which fit this one after a multiplication, are in another unit."""
    for factor in (1e3, 1e-3, 1e6, 1e-6):
        if any(start <= factor * event["ts"] <= end for event in outside):
            got = f"mixed units: backward fits the step only if its times are {factor:g} times ours"
            refuse(path, got, "microseconds in every event", "export the trace again")


def require_one_step(events: Events, grads: Events, path: str, name: str) -> None:
    """Two optimiser steps, or a gradient before the end of another step's optimiser: refused."""
    # A GPU lags behind: its rows repeat the annotation, and that of the step before may be here.
    launched_here = [event for event in events if event.get("cat") != ON_GPU]
    optimizers = [event for event in launched_here if event["name"].startswith(OPTIMIZER)]
    ends = sorted(end_of(event) for event in optimizers)
    after = [event for event in grads if ends and event["ts"] > ends[0]]
    if after:
        got = f"two steps overlapping in {name}: {len(after)} gradients after its optimiser's step"
        refuse(
            path, got, "one backward, then the optimiser", "call profiler.step() after each step"
        )


def require_cpu(everything: Events, path: str, name: str) -> None:
    """Without its launch a kernel does not say whose gradient it computes: refused."""
    number = sum(event.get("cat") in KERNELS for event in everything)
    if number:
        got = f"{number} GPU events, none with the correlation number of a launch in {name}"
        wanted = "kernels and their launches, which say when a gradient is final"
        again = "export the trace again, profiled with activities=[CPU, CUDA]"
        refuse(path, got, wanted, again)


def last_pass(grads: Events, events: Events, path: str) -> tuple[Events, tuple[str, ...]]:
    """(gradients of the last backward, notes). Forward work between two gradients divides passes.

    Passes with other sizes are not the same gradients again: then all are kept.
    """
    starts = forward_starts(events)
    passes = [[grads[0]]]
    for before, grad in pairwise(grads):
        if bisect_right(starts, end_of(before)) < bisect_right(starts, grad["ts"]):
            passes.append([])
        passes[-1].append(grad)
    sizes = [[size_of(grad, path) for grad in each] for each in passes]
    if len(passes) == 1 or any(each != sizes[0] for each in sizes):
        return grads, ()
    said = f"{len(passes)} backward passes in the step: gradients accumulate, the last sends them."
    return passes[-1], (said,)


def forward_starts(events: Events) -> list[float]:
    """Starts of forward operators, in order. Those that backward recomputes are not among them."""
    engine = sorted((e["ts"], end_of(e)) for e in events if e["name"].startswith(ENGINE))
    begins, latest = [low for low, _ in engine], list(accumulate((high for _, high in engine), max))
    found = []
    for event in events:
        args = event["args"]
        if "Sequence number" in args and args.get("Fwd thread id") == 0:
            at = bisect_right(begins, event["ts"])
            if not at or latest[at - 1] < end_of(event):
                found.append(event["ts"])
    return sorted(found)


def launched(events: Events, everything: Events) -> list[tuple[float, dict[str, Any]]]:
    """[(end of the launch, kernel)] of the launches in `events`, in their order.

    A GPU lags behind: a kernel may run after its step's end on the CPU.
    """
    launches = {correlation(e): end_of(e) for e in events if e.get("cat") in LAUNCHES}
    kernels = [e for e in everything if e.get("cat") in KERNELS and correlation(e) in launches]
    pairs = [(launches[correlation(kernel)], kernel) for kernel in kernels]
    return sorted(pairs, key=lambda pair: pair[0])


def ready_times(
    kernels: Sequence[tuple[float, dict[str, Any]]], announced: Sequence[float]
) -> list[float]:
    """When each gradient is final on the processor that computes."""
    if not kernels:
        return list(announced)
    launches = [launch for launch, _ in kernels]
    latest = list(accumulate((end_of(kernel) for _, kernel in kernels), max))
    return [latest[max(0, bisect_right(launches, t) - 1)] for t in announced]


def correlation(event: dict[str, Any]) -> str:
    return str(event["args"].get("correlation"))


def size_of(event: dict[str, Any], path: str) -> int:
    """Elements of the gradient, from the shape of AccumulateGrad's input."""
    shapes = event["args"].get("Input Dims")
    shape = shapes[0] if isinstance(shapes, list) and shapes else None
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        got = "no sizes: a gradient without Input Dims"
        refuse(path, got, "the shape of each gradient", "profile(record_shapes=True)")
    return prod(shape)


def refuse(path: str, got: str, wanted: str, try_next: str) -> None:
    raise ValueError(f"plan --model {path}: got {got}; wanted {wanted}; next: {try_next}")
