"""The streams of a GPU in a trace: for which kernels a gradient waits, and for which it does not.

Kernels of one stream run one after the other, those of two streams at once. A copy of weights to
the host or a prefetch has a stream of its own and delays no gradient, unless backward waits for it,
and then the kernels of backward begin later themselves. So only streams count on which backward has
kernels: autograd runs the backward of an operator on the stream of its forward. An optimiser on a
stream of its own delays the forward that waits for it.

Times are microseconds.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import inf

from refgf.plan import ddp
from refgf.plan.question import PACE
from refgf.plan.trace import Events, ProfiledEvent, Trace

Launched = list[tuple[float, ProfiledEvent]]  # (end of the launch, kernel)


def computing(trace: Trace) -> Trace:
    """The trace, whose "kernels" are those of the streams that compute; "aside": all others.

    If no kernel was launched in a backward, all streams compute.
    """
    within = ddp.spans([*trace["engine"], *trace["backwards"]], -inf, inf)
    starts = [low for low, _ in within]
    ours = set()
    for launch in trace["launches"]:
        at = bisect_right(starts, launch.start) - 1
        if at >= 0 and launch.start <= within[at][1]:
            ours.add(launch.correlation)
    streams = {k.stream for k in trace["kernels"] if is_kernel(k) and k.correlation in ours}
    found = {True: trace["kernels"], False: []}
    if streams:
        found = {own: [k for k in found[True] if (k.stream in streams) == own] for own in found}
    trace["kernels"], trace["aside"] = found[True], found[False]
    return trace


def is_kernel(event: ProfiledEvent) -> bool:
    """Not a copy, which a stream of its own may do at any time."""
    return event.kind == "kernel"


def doubts(
    step: Trace, trace: Trace, announced: Sequence[float], step_us: float
) -> tuple[str, ...]:
    """A warning where it matters for which streams a gradient waits."""
    ours, aside = (launched(step, trace[name]) for name in ("kernels", "aside"))
    aside = [pair for pair in aside if is_kernel(pair[1])]
    if not ours:
        return ()
    times = ready_times(ours, announced)
    variants = busiest(ours), sorted(ours + aside, key=lambda pair: pair[0])
    shift_us = max(
        abs(a - b) for each in variants for a, b in zip(times, ready_times(each, announced))
    )
    if shift_us <= (PACE[True][1] - 1) * max(0.0, step_us):
        return ()
    names = max(aside or ours, key=lambda pair: pair[1].end - pair[1].start)[1].name
    said = f"WARNING: kernels run on several streams, such as {names[:40]}. A gradient is taken to "
    said += "wait for all streams of backward, and for no other. If that is wrong, its ready time "
    said += f"is, by up to {1e-3 * shift_us:.3g} ms: profile without such kernels."
    return (said,)


def busiest(kernels: Launched) -> Launched:
    """Those on the stream that computes most."""
    streams: dict[tuple[str, str], Launched] = {}
    for pair in kernels:
        streams.setdefault(pair[1].stream, []).append(pair)
    return max(streams.values(), key=lambda own: sum(k.end - k.start for _, k in own))


def launched(step: Trace, kernels: Events) -> Launched:
    """The kernels of the launches in the step, in the order of launches.

    A GPU lags behind: a kernel may run after its step's end on the CPU.
    """
    launches = {launch.correlation: launch.end for launch in step["launches"]}
    ours = [kernel for kernel in kernels if kernel.correlation in launches]
    pairs = [(launches[kernel.correlation], kernel) for kernel in ours]
    return sorted(pairs, key=lambda pair: pair[0])


def ready_times(kernels: Launched, announced: Sequence[float]) -> list[float]:
    """When each gradient is final on the processor that computes."""
    if not kernels:
        return list(announced)
    launches = [launch for launch, _ in kernels]
    latest = list(accumulate((kernel.end for _, kernel in kernels), max))
    return [latest[max(0, bisect_right(launches, t) - 1)] for t in announced]
