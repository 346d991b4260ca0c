"""Lesson 09: a real training with merged groups, next to the same training with eager calls.

found = training.compare(run)        the step and the accuracy of each; the same bits after all

The network is small and computes for real: AlexNet at an eighth of its width, on the bundled digits
(ResNet-50's 161 eager calls would take ten times as long). All trainings see the same batches, and
take their steps in turn. With the direct allreduce the sum of an element does not depend on the
group that holds it, so all groupings give the same parameters. A ring gives other last bits.
"""

import contextlib
from functools import partial

import kit
from kit import call_times, images, step_times
from lab.merge.steps import EAGER, EXACT, GREEDY
from refgf import ops
from refgf.comm.direct import direct_allreduce
from refgf.machine.digits import digits
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.mgwfbp.merge import exact_merge, greedy_merge
from refgf.papers.mgwfbp.merged import Groups
from refgf.predict.timeline import eager
from refgf.training.data import batches
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import Replica, replica

BATCH, RATE = 8, 0.02  # images a rank
PIXELS, WIDTH = images.SIZES["alexnet"].values()
GROUPINGS = {EAGER: lambda gradients, line: eager(gradients)}
GROUPINGS |= {GREEDY: greedy_merge, EXACT: exact_merge}
SKIP = 1  # steps: the first one allocates


def compare(run: kit.Run) -> dict:
    """{"title", "steps", "rows": {grouping: calls, timing, loss, accuracy}}. Collective.

    AssertionError unless all groupings end with the same parameters, bit for bit.
    """
    run.section("Training with merged groups")
    train, held_out = digits(PIXELS)
    count = run.quick(3, 8)
    steps = list(batches(train, BATCH * run.size, 0, images.SEED, run.rank, run.size))[:count]
    profiled = model(run, train)
    _, ready_s = step_times.without_exchange(run, profiled, steps[: SKIP + run.quick(1, 3)], SKIP)
    gradients = [(t, view.nbytes) for t, view in zip(ready_s, profiled.gradients.views)]
    line = line_of(run, profiled.gradients.flat.size)
    groups = {name: form(gradients, line) for name, form in GROUPINGS.items()}
    with contextlib.ExitStack() as stack:
        flows = {name: stack.enter_context(flow(run, train, groups[name])) for name in groups}
        found = in_turn(run, flows, steps)
        hashes = {name: each.require_same_parameters() for name, each in flows.items()}
        if len(set(hashes.values())) > 1:
            raise AssertionError(f"training: got parameters {hashes}; wanted the same bits")
        for name, each in flows.items():
            right, samples = each.evaluate(held_out)
            found[name] |= {"calls": len(each.calls), "accuracy": right / samples}
    report(run, found, count)
    title = f"AlexNet, width {WIDTH:g}, {BATCH} images a rank"
    return {"title": title, "steps": count, "rows": found, "fit": vars(line)}


def model(run: kit.Run, data) -> Replica:
    """A replica of the small network: the same parameters on every rank."""
    shape = data.num_classes, data.image_size, WIDTH
    space = Workspace(run.xp)
    network = AlexNet(*shape, dropout=0, channels=data.channels, workspace=space)
    return replica(network, partial(MomentumSGD, momentum=0.9), seed=images.SEED)


def flow(run: kit.Run, data, groups: list[range]) -> GradientFlow:
    """A stack of its own for each grouping: overlapped, with the direct allreduce."""
    arguments = {"allreduce": direct_allreduce, "grouping": Groups(tuple(groups))}
    return GradientFlow(run.comm, model(run, data), overlap=True, **arguments)


def line_of(run: kit.Run, elements: int):
    """T(m) = a + b m of a direct allreduce, queued in a thread as in a step."""
    allreduce = direct_allreduce(ops.background(run.comm.Dup()))
    curve = call_times.queued(run, [256, elements // 4], allreduce, repeats=run.quick(2, 3))
    return call_times.line_of(run, curve)


def in_turn(run: kit.Run, flows: dict, steps: list) -> dict:
    """{grouping: {"timing", "loss"}}. In turn: a slow moment of the machine hits all of them."""
    seconds, losses = {name: [] for name in flows}, {}

    def step(name: str, each: GradientFlow, batch) -> None:
        losses[name] = each.step(*batch, rate=RATE)

    for batch in steps:
        for name, each in flows.items():
            seconds[name].append(run.timed(step, name, each, batch))
    return {
        name: {
            "timing": run.slowest(seconds[name][SKIP:]),
            "loss": sum(run.plain.allgather(losses[name])),
        }
        for name in flows
    }


def report(run: kit.Run, found: dict, count: int) -> None:
    """Print the rows; times are this machine's, because it computes for real."""
    table = [
        [name, row["calls"], row["timing"], f"{row['loss']:.4f}", f"{100 * row['accuracy']:.1f} %"]
        for name, row in found.items()
    ]
    run.table(["exchange", "calls", "step of this machine", "last loss", "accuracy"], table)
    run.say(f"after {count} steps: the same parameters with all groups, bit for bit")
