"""Times of training steps on ranks that share cores: counted from the start of the first rank.

    timing, ready_s = step_times.without_exchange(run, model, batches)
    medians_s = step_times.with_exchanges(run, model, batches, exchanges)
    ready_s = step_times.rescaled(ready_s, timing, compute_s)

With more ranks than cores the ranks compute one after another. A rank that has no core yet leaves
the barrier before its step late, and its own clock does not show it. A sum needs all ranks, so what
counts is the time since the *first* rank started:

    rank 0   |= forward == backward =|                         second barrier|
    rank 1   |   waits for a core    |= forward == backward =| second barrier|
             |<------- late -------->|<--------- what rank 1's clock shows -->|

Clocks of several machines differ, but all ranks leave the second barrier together. So a rank that
took less time to reach it started later.
"""

import statistics
from functools import partial

import numpy as np

import kit
from refgf.papers.mgwfbp.merged import Profile
from refgf.training.step import train_step


def without_exchange(run: kit.Run, model, batches, skip: int = 1):
    """(Timing of a step, when each gradient is ready), both for the slowest rank.

    Seconds since the first rank started. The update is included, with rate 0. The first `skip`
    steps are left out. Collective: two barriers a step.
    """
    profile = Profile(model.gradients, accept=True)

    def step(batch):
        start_s = run.clock()
        profile.start()
        train_step(model, profile, *batch, rate=0.0)
        return [start_s + ready_s for ready_s in profile.steps[-1]]

    steps = (partial(step, batch) for batch in batches)
    *ready_s, ends_s = since_first_start(run, steps, skip).T.tolist()
    timing = kit.Timing(statistics.median(ends_s), min(ends_s), max(ends_s), len(ends_s))
    return timing, [statistics.median(each) for each in ready_s]


def with_exchanges(run: kit.Run, model, batches, exchanges: list) -> list[float]:
    """Median seconds of training steps with each exchange, in turn for each batch, with rate 0."""

    def step(batch, exchange):
        train_step(model, exchange, *batch, rate=0.0)

    steps = [partial(step, batch, exchange) for batch in batches for exchange in exchanges]
    times_s = since_first_start(run, steps, skip=len(exchanges))
    times_s = times_s.reshape(-1, len(exchanges))  # (steps * exchanges, 1) -> (steps, exchanges)
    return np.median(times_s, axis=0).tolist()


def rescaled(ready_s: list[float], timing: kit.Timing, compute_s: float) -> list[float]:
    """When gradients are ready in a step that computes for compute_s, not for timing.median_s."""
    return [t * compute_s / timing.median_s for t in ready_s]


def since_first_start(run: kit.Run, functions, skip: int = 1):
    """Seconds since the first rank's start, for the slowest rank: (functions - skip, events + 1).

    Each function returns a list of times of perf_counter, or None. The time of its end is added.
    Collective: two barriers a function.
    """
    mine = []
    for function in functions:
        run.plain.Barrier()
        start_s = run.clock()
        times_s = [*(function() or []), run.clock()]
        run.plain.Barrier()
        mine.append([t - start_s for t in [*times_s, run.clock()]])
    return on_one_clock(np.array(run.plain.allgather(mine[skip:])))


def on_one_clock(own_s):
    """Seconds since the first rank's start, for the slowest rank.

    own_s (ranks, steps, events): seconds since each rank's own start; the last event is that it
    leaves a barrier. -> (steps, events - 1)
    """
    closed_s = own_s[..., -1]
    late_s = closed_s.max(axis=0) - closed_s  # (ranks, steps)
    return (own_s[..., :-1] + late_s[..., None]).max(axis=0)
