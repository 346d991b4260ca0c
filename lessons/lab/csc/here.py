"""Lesson 06 on this machine as it is: real links, no virtual accelerator, ranks that share cores.

    here = measure(run, train)

In the papers' regime a GPU computes, and the processor's own work costs little next to a slow link.
Here the link is this machine's memory or its loopback, and the same work decides: norms, choosing
and packing take longer than the saved bytes would.
"""

import math

import numpy as np

import kit
from kit import call_times, flow, images
from kit.replay import sizes_of
from lab.csc import exchange_times
from refgf.comm.ring import ring_allreduce
from refgf.exchange.lazy import Theta
from refgf.machine.accelerator import InstantComm
from refgf.papers.scaling import systems
from refgf.papers.scaling.workloads import alexnet
from refgf.predict.cost import Line


def measure(run: kit.Run, train) -> dict:
    """Exchanges by themselves, for the small network and a share of AlexNet; training steps."""
    share = run.quick(256, 8, 1)
    small, large = images.network(run, train).tensors, sizes_of(alexnet(), share)
    result = {}
    for name, tensors in {"small": small, "large": large}.items():
        n = sum(math.prod(tensor.shape) for tensor in tensors)
        run.section(f"The exchange of {n:,} gradients on this machine")
        sizes = [256, max(1, n // 64), max(2, n // 8), n]
        line = messages(run, sizes)
        chunk = flow.chunk_elements(n) if name == "small" else systems.CHUNK // share
        kinds = exchange_times.kinds_of(n, run.options.density, [chunk])
        rows = exchange_times.compare(run, tensors, kinds, line, run.quick(2, 5))
        exchange_times.show(run, rows)
        result[name] = {"rows": rows, "elements": n}
    return result | {"steps": steps(run, train)}


def messages(run: kit.Run, sizes: list[int]) -> Line:
    """T(bytes) of a float16 ring without its own work, casts and sums: they are counted apart."""
    lines = []
    for comm in (run.comm, InstantComm(run.rank, run.size)):
        ring = ring_allreduce(comm, wire=np.float16)
        times = call_times.measure(run, ring, sizes, run.quick(2, 5))
        lines.append(call_times.fit(run, times, 2).line)
    whole, own = lines
    a_s, b_s = whole.a_s - own.a_s, whole.b_s_per_byte - own.b_s_per_byte
    return Line(max(0.0, a_s), max(0.0, b_s))


def steps(run: kit.Run, train) -> dict:
    """Training steps that really compute, dense and sparse."""
    run.section("A training step in which the ranks compute, too")
    run.say(images.in_words(run))
    timings = {}
    for name, csc in {"dense": None, "sparse": flow.csc(run, train, run.options.density)}.items():
        with flow.new(run, train, csc=csc, wire=np.float16, grouping=Theta(2**17)) as stack:
            timings[name] = flow.time_steps(run, stack, images.steps(run, train, run.quick(4, 8)))
    run.table(["", "step"], [[name, timing] for name, timing in timings.items()])
    return timings
