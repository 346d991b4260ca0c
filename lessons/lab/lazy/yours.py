"""Lesson 03 with --mine: your calls in a real step, in a training, and your prediction."""

from dataclasses import asdict
from functools import partial

import numpy as np

import kit
from kit import gathered, images, virtual
from kit.experiment import in_turn
from kit.mine import CLUSTER_S, Yours, on
from kit.rows import scaled
from lab.lazy import grouped_steps
from lab.lazy.picture import place
from lab.lazy.steps import FINE
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.exchange.lazy import Call
from refgf.exchange.result import StepResult

THETA = 2**16  # bytes, of the training


class YourCalls:
    """In the place of `LazyAllreduce`: these calls, each when its last gradient is ready.

    wait: for calls that `allreduce` has only queued
    """

    def __init__(self, pool, allreduce, calls: list[tuple[int, int]], wait=lambda: None) -> None:
        self.pool, self.allreduce, self.wait = pool, allreduce, wait
        self.calls = [Call(*map(int, call)) for call in calls]
        self.next = 0

    def ready(self, index: int) -> None:
        ready = self.pool.offsets[index + 1]
        while self.next < len(self.calls) and self.calls[self.next].stop <= ready:
            call, self.next = self.calls[self.next], self.next + 1
            self.allreduce(self.pool.flat[call.start : call.stop])

    def finish(self) -> StepResult:
        self.next = 0
        self.wait()
        return StepResult()


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series = run.mine, []
    emulated = run.regime.like is not None
    bench = grouped_steps.bench(run, run.options.network) if emulated else small(run)
    sizes = [view.size for view in bench.pool.views]
    exactly = 4 * sizes[0]  # the bytes of the first gradient: not more than theta, so it waits
    thetas = run.options.theta or [0, exactly, *run.quick([], [2**20, 2**24]), float("inf")]
    lazy_calls = mine.ours("lazy_calls")
    at = "theta", [kit.threshold(theta) for theta in thetas]
    if "lazy_calls" in mine:
        calls = [[make(sizes, t) for t in thetas] for make in (lazy_calls, mine["lazy_calls"])]
        counts = ([len(each) for each in made] for made in calls)
        series.append(mine.series("lazy_calls", "Calls in a step", at, *counts))
        ours, yours = timed(run, bench, calls)
        title, more = "Step without overlap", {"unit": CLUSTER_S}
        if emulated:
            shown = [scaled(asdict(timing), 1e3 / run.regime.dilation) for timing in yours]
            more["on"] = on(0, [place(theta, FINE) for theta in thetas], shown)
        series.append(mine.series("lazy_calls", title, at, ours, yours, **more))
    if "step_seconds" in mine:
        line, calls = grouped_steps.costs(run, bench).call, [lazy_calls(sizes, t) for t in thetas]
        both = (
            [make(each, bench.compute_s, line.a_s, line.b_s_per_byte) for each in calls]
            for make in mine.pair("step_seconds")
        )
        more = {"unit": CLUSTER_S, "measured": timed(run, bench, [calls])[0]}
        series.append(mine.series("step_seconds", "Predicted step", at, *both, **more))
    if "lazy_calls" in mine or "sum_calls" in mine:
        series.append(training(run))
    return series


def small(run: kit.Run) -> grouped_steps.Bench:
    """This machine as it is: ResNet-50's tensors, each a 64th of its size, nothing computed."""
    return grouped_steps.replayed(run, virtual.FULL["resnet50"](), 0.05, share=64)


def timed(run: kit.Run, bench, calls: list[list]) -> list[list[kit.Timing]]:
    """A Timing for each of these lists of calls, measured in turn."""
    allreduce, steps = collective(grouped_steps.sleeping_comm(run), ring.allreduce), {}
    for whose, made in enumerate(calls):
        for i, each in enumerate(made):
            steps[whose, i] = partial(bench.step, YourCalls(bench.pool, allreduce, each))
    found = in_turn(run, steps, run.quick(2, 3, 7))
    return [[found[k, i]["timing"] for i in range(len(made))] for k, made in enumerate(calls)]


def training(run: kit.Run) -> dict:
    """Losses: what no call sums stays the rank's own, and the ranks' parameters drift apart."""
    mine, (train, _) = run.mine, images.load(run)
    names = [name for name in ("lazy_calls", "sum_calls") if name in mine]

    found = [
        losses(run, train, *(pick(name) for name in ("lazy_calls", "sum_calls")))
        for pick in (mine.ours, mine.either)
    ]
    at = "step", range(1, 1 + len(found[0]))
    return mine.series(" ".join(names), f"Loss, theta {kit.threshold(THETA)}", at, *found)


def losses(run: kit.Run, train, lazy_calls, sum_calls) -> list[float]:
    sizes: list[int] = []

    def sums(gradients, rank) -> np.ndarray:
        cuts = np.cumsum(sizes)[:-1]
        each = [np.split(flat, cuts) for flat in gradients]
        return np.concatenate(sum_calls(each, lazy_calls(sizes, THETA), rank))

    sizes += [spec.size for spec in images.network(run, train).tensors]
    return gathered.losses(run, train, sums, run.quick(gathered.QUICK_STEPS, 30))


YOURS = Yours(
    {
        "lazy_calls": "which calls a step makes",
        "sum_calls": "what they sum in a training",
        "step_seconds": "the prediction without overlap",
    },
    measure,
)
