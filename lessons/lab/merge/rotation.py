"""Lesson 09: steps with several exchanges, in turn, and the seconds that they spend in their calls.

    found = rotation.measure(run, steps, exchanges, rounds)   {name: {"timing", "messages", "bytes",
                                                                      "calls_s"}}

Each round begins with another exchange, so that none is always last. A step that is longer than
predicted has longer calls, or calls that begin late: `calls_s` tells which.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import kit
from kit.experiment import in_turn


class Clocked:
    """An Allreduce that adds up the seconds of its calls. late_s: of sleep before each call."""

    def __init__(self, allreduce, late_s: float = 0.0) -> None:
        self.allreduce, self.late_s, self.spent_s = allreduce, late_s, 0.0

    def __call__(self, x) -> None:
        start_s = time.perf_counter()
        if self.late_s > 0:
            time.sleep(self.late_s)
        self.allreduce(x)
        self.spent_s += time.perf_counter() - start_s


def measure(
    run: kit.Run, steps: dict[str, Callable], exchanges: dict, rounds: int, late_s: float = 0.0
) -> dict:
    """steps[name]() is a step with exchanges[name], whose `allreduce` is clocked. Collective.

    late_s: seconds by which each call's latency is longer than this link's.
    """
    clocks, spent_s = {}, {name: [] for name in exchanges}
    for name, exchange in exchanges.items():
        exchange.allreduce = clocks[name] = Clocked(exchange.allreduce, late_s)

    def step(name: str) -> None:
        clocks[name].spent_s = 0.0
        steps[name]()
        spent_s[name].append(clocks[name].spent_s)

    found = in_rotation(run, {name: partial(step, name) for name in steps}, rounds)
    for name, seconds in spent_s.items():
        found[name]["calls_s"] = run.slowest(seconds).median_s
    return found


def in_rotation(run: kit.Run, functions: dict[str, Callable], rounds: int) -> dict:
    """As `in_turn`, but each round begins with another function."""
    names, times_s = list(functions), {name: [] for name in functions}
    for number in range(rounds):
        first = number * len(names) // rounds
        order = names[first:] + names[:first]
        found = in_turn(run, {name: functions[name] for name in order}, 1)
        for name in names:
            times_s[name].append(found[name]["timing"].median_s)
    timings = {
        name: kit.Timing(statistics.median(seconds), min(seconds), max(seconds), rounds)
        for name, seconds in times_s.items()
    }
    return {name: found[name] | {"timing": timings[name]} for name in names}
