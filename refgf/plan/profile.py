"""Reads a trace of torch.profiler (Kineto; Chrome's JSON): gradients with sizes and ready times.

    once = schedule(wait=1, warmup=2, active=1, repeat=1)  # without repeat a new cycle clears it
    with profile(record_shapes=True, schedule=once) as profiler:
        for batch in batches:
            train_step(batch)          # on one rank, without DDP or inside model.no_sync()
            profiler.step()            # ends a step: ProfilerStep#3 in the trace
    profiler.export_chrome_trace("trace.json")

Autograd runs one `torch::autograd::AccumulateGrad` for each parameter, whose input is the finished
gradient. On a CPU the gradient is ready when that ends. On a GPU it is ready when the last kernel
that was launched until then has ended; a kernel and its launch have the same correlation number.
Times in the file are microseconds (Kineto's `ts` and `dur`). If gradients accumulate over several
backward passes of a step, those of the last one are taken: they are sent.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise
from math import isfinite, prod
from pathlib import Path
from typing import Any

from refgf.plan.step_times import StepTimes

US = 1e-6
READY = "torch::autograd::AccumulateGrad"
STEP = "ProfilerStep#"
OPTIMIZER = "Optimizer.step#"
LAUNCHES = ("cuda_runtime", "cuda_driver")
ON_GPU = "gpu_user_annotation"
KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
ENGINE = "autograd::engine::evaluate_function"
EXCHANGES = ("nccl", "c10d::", "gloo:", "ncclkernel", "horovod")
Events = list[dict[str, Any]]


def from_trace(data: dict[str, Any], path: str, step: int | None = None) -> StepTimes:
    """The step with this number, or the last one in the trace."""
    events = timed(data["traceEvents"], path)
    marks = marked(events, path)
    found, seconds = one_step(events, marks, path, step), []
    for mark in marks:
        with suppress(ValueError):  # a step without backward, or cut off
            other = one_step(events, marks, path, int(mark["name"].removeprefix(STEP)))
            if [n for _, n in other.ready] == [n for _, n in found.ready]:
                seconds.append(other.compute_s)
    if len(seconds) < 2 or not min(seconds):
        return found
    least, most = min(seconds), max(seconds)
    said = f"{len(seconds)} complete steps in the trace, {1e3 * least:.1f} to {1e3 * most:.1f} ms: "
    said += "the interval of pace holds them."
    scatter = least / found.compute_s, most / found.compute_s
    return replace(found, scatter=scatter, notes=(*found.notes, said))


def one_step(events: Events, marks: Events, path: str, step: int | None) -> StepTimes:
    start, end, name = window(events, marks, path, step)
    grads = [event for event in events if event["name"] == READY]
    if not grads:
        got = f"no backward: none of its {len(events)} events is {READY}"
        whole = "profile the whole step, with schedule(..., repeat=1)"
        refuse(path, got, "a training step with loss.backward()", whole)
    inside = [event for event in grads if start <= event["ts"] and end_of(event) <= end]
    steps = [(mark["ts"], end_of(mark)) for mark in marks]
    outside = [e for e in grads if not any(low <= e["ts"] <= high for low, high in steps)]
    if marks:
        require_one_unit(outside, start, end, path)
    if not inside:
        refuse(path, f"no backward in {name}", "a step with loss.backward()", "--step N of another")
    everything, events = events, [e for e in events if start <= e["ts"] <= end]
    require_one_step(events, inside, path, name)
    exchanges = [event for event in events if event["name"].lower().startswith(EXCHANGES)]
    if exchanges:
        got = f"{len(exchanges)} events of an exchange, such as {exchanges[0]['name'][:40]}"
        refuse(path, got, "a step without exchange", "profile one rank, or in model.no_sync()")
    inside.sort(key=end_of)
    inside, accumulated = last_pass(inside, events, path)
    kernels = launched(events, everything)
    began, times = ready_times(kernels, [end_of(event) for event in inside], start)
    ready = tuple((US * (t - began), size_of(e, path)) for t, e in zip(times, inside))
    ends = [end_of(event) for event in events if event.get("cat") == "cpu_op"]
    ends += [end_of(kernel) for _, kernel in kernels]
    after_s = max(0.0, US * (max(ends, default=times[-1]) - times[-1]))
    notes = (*accumulated, *half_notes(inside))
    return StepTimes(f"{Path(path).name}, {name}", "trace", ready, after_s, notes=notes)


def half_notes(grads: Events) -> tuple[str, ...]:
    """Gradients of 2 bytes: the formulas send 4 but in the rows that halve them."""
    types = {kind for event in grads for kind in (event.get("args") or {}).get("Input type") or []}
    found = sorted(types & {"c10::Half", "c10::BFloat16"})
    if not found:
        return ()
    return (
        f"The trace has gradients of {' and '.join(found)}. All rows but half, CSC and hierarchy16 "
        "are for float32 on the wire: if these gradients are sent as they are, see half.",
    )


def timed(events: Any, path: str) -> Events:
    """Complete events with finite times."""
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
        found.append(event | {"name": str(event.get("name"))})
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
        return min(e["ts"] for e in events), max(map(end_of, events)), "the whole trace"
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
        args = event.get("args") or {}
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
    kernels: Sequence[tuple[float, dict[str, Any]]], announced: Sequence[float], start: float
) -> tuple[float, list[float]]:
    """(start of the step, when each gradient is final), both on the processor that computes."""
    if not kernels:
        return start, list(announced)
    launches = [launch for launch, _ in kernels]
    latest = list(accumulate((end_of(kernel) for _, kernel in kernels), max))
    began = min(kernel["ts"] for _, kernel in kernels)
    return began, [latest[max(0, bisect_right(launches, t) - 1)] for t in announced]


def correlation(event: dict[str, Any]) -> Any:
    return (event.get("args") or {}).get("correlation")


def size_of(event: dict[str, Any], path: str) -> int:
    """Elements of the gradient, from the shape of AccumulateGrad's input."""
    shapes = (event.get("args") or {}).get("Input Dims")
    shape = shapes[0] if isinstance(shapes, list) and shapes else None
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        got = "no sizes: a gradient without Input Dims"
        refuse(path, got, "the shape of each gradient", "profile(record_shapes=True)")
    return prod(shape)


def end_of(event: dict[str, Any]) -> float:
    return event["ts"] + event["dur"]


def refuse(path: str, got: str, wanted: str, try_next: str) -> None:
    raise ValueError(f"plan --model {path}: got {got}; wanted {wanted}; next: {try_next}")
