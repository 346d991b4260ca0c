"""Lesson 04 on this machine as it is: a small AlexNet that ranks compute for real.

    found, charts = here.measure(run)

Your laptop as a cluster. The processor that computes is also the one that communicates, so the
communication thread takes its time from the computation. A line says what overlap hides, and how
much longer computing takes.
"""

import numpy as np

import kit
from kit import flow, images
from lab.overlap.steps import KINDS, signed, typical_step
from refgf.comm.ring import ring_allreduce
from refgf.exchange.lazy import Theta
from refgf.machine.timeline import Timeline, gather

THETA = 2**17  # bytes: a few calls a step
TITLES = {"alone": "no exchange", **KINDS, "communication": "communication only"}


def measure(run: kit.Run) -> tuple[dict, dict]:
    """({"here": times and the meter's sentence}, {kind: events of all ranks}). Collective."""
    data, count = images.load(run)[0], run.quick(4, 12, 24)
    run.section(f"{images.in_words(run)}, theta {kit.number_of_bytes(THETA)}")
    alone, ready_s = flow.without_exchange(run, data, images.steps(run, data, count))
    times, charts = {"alone": alone}, {}
    for kind in KINDS:
        timeline = Timeline()
        settings = {"grouping": Theta(THETA), "overlap": kind == "overlapped"}
        with flow.new(run, data, observe=timeline, **settings) as stack:
            times[kind] = flow.time_steps(run, stack, images.steps(run, data, count))
            step = typical_step(run, timeline, times[kind].median_s)
            charts[kind], calls = gather(run.plain, step), len(stack.calls)
    waited = [e.stop_s - e.start_s for e in step.lanes["compute"] if e.name == "WAIT_FOR_DATA"]
    times["communication"] = communication(run, stack, calls)
    left_s = max(0.0, alone.median_s - ready_s[0])  # of backward
    off_s, on_s = (times[kind].median_s for kind in KINDS)
    run.table(["", "time"], [[TITLES[kind], timing] for kind, timing in times.items()])
    hideable_s = max(0.0, min(off_s - alone.median_s, left_s))
    run.say(f"hidden: {signed(off_s - on_s)} of {kit.seconds(hideable_s)} that can be hidden;")
    slowdown = (on_s - sum(waited)) / alone.median_s
    run.say(f"with overlap computing takes {slowdown:.2f} times as long")
    calls_s = times["communication"].median_s
    predicted = {  # as if the calls had cores of their own
        "sequential": alone.median_s + calls_s,
        "overlapped": alone.median_s + calls_s - min(calls_s, left_s),
    }
    more = {"theta": THETA, "predicted": predicted}
    return {"here": times | more}, charts


def communication(run: kit.Run, stack, calls: int) -> kit.Timing:
    """The Timing of as many calls of equal length, without computing."""
    x = run.xp.zeros(stack.model.gradients.flat.size // calls, np.float32)
    allreduce = ring_allreduce(run.comm)
    return run.time(lambda: [allreduce(x) for _ in range(calls)], run.quick(2, 5))
