"""Lesson 16: time of a step, all hold all next to ZeRO-1 and ZeRO-3, on the emulated cluster.

The full-size AlexNet on a virtual accelerator; with --like this-machine the small one, for real.
Times are this machine's; tables and figures divide by the dilation.
"""

from contextlib import closing
from functools import partial

import kit
from kit import flow, images, virtual
from kit.experiment import in_turn, is_own, say_star, star
from lab.lazy import grouped_steps
from lab.sharding.slept import SleptLayers, units
from lab.sharding.training import ALL, ZERO, ZERO3, OneRing, sharded_network
from refgf.exchange.lazy import Theta
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.result import StepResult
from refgf.papers.zero.zero3 import ZeRO3
from refgf.plan.sharding import GATHER, REDUCE, Queue, fsdp_s
from refgf.predict.timeline import lazy, predict
from refgf.training.step import train_step

NETWORK, NOTHING_SENT, OVERLAPPED = "alexnet", "nothing sent", "all hold all, overlapped"
AHEAD = f"{ZERO3}, gathered ahead"
MIB = 2**20
THETA = {True: 16 * MIB, False: MIB // 8}  # bytes of a call: emulated, this machine


def measure(run: kit.Run, train, shard, zero_step) -> dict:
    """{"rows", "update": {name: Timing}, "off"}"""
    emulated = run.regime.like is not None
    run.section(f"Time of a step: {'AlexNet' if emulated else images.in_words(run)}")
    if emulated:
        model, batch = virtual.model(run, NETWORK), virtual.NOTHING
        stack = virtual.flow(run, NETWORK, shared=model, overlap=True, grouping=Theta(THETA[True]))
    else:
        model, (batch,) = images.model(run, train), images.steps(run, train, 1)
        stack = flow.new(run, train, overlap=True, grouping=Theta(THETA[False]))
    zero, ring = shard(run.comm, model), OneRing(run.comm, model.gradients.flat)
    thread = CommunicationThread()
    layered = {
        name: layers(run, train, calls) for name, calls in ((ZERO3, AtOnce()), (AHEAD, thread))
    }
    tries = {
        NOTHING_SENT: partial(train_step, model, virtual.NoExchange(), *batch, rate=0.0),
        ALL: partial(train_step, model, ring, *batch, rate=0.0),
        ZERO: partial(zero_step, model, zero, *batch, rate=0.0),
        OVERLAPPED: partial(stack.step, *batch, rate=0.0),
        **{name: partial(each.step, *batch, rate=0.0) for name, each in layered.items()},
    }
    with stack, closing(thread):
        found = in_turn(run, tries, run.quick(1, 3, 7), warmup=1)
    own = zero.own
    update = {
        ALL: run.time(partial(model.update, 0.0, StepResult()), run.quick(1, 5)),
        ZERO: run.time(
            lambda: zero.optimizer.step(model.gradients.flat[own], 0.0), run.quick(1, 5)
        ),
    }
    off = found.pop(NOTHING_SENT)["timing"]
    predicted, own_s = predictions(run, model, layered[ZERO3], off.median_s, update)
    rows = [
        {"name": name, **row, "predicted_s": predicted.get(name)}
        | {"own_share": own_s[name] / row["timing"].median_s}
        for name, row in found.items()
    ]
    report(run, rows, update, off)
    return {"rows": rows, "update": update, "off": off}


def layers(run: kit.Run, train, calls) -> ZeRO3:
    """ZeRO-3 of a network of its own, slept layer by layer or for real."""
    if run.regime.like is None:
        return sharded_network(run, train, calls)
    model = virtual.model(run, NETWORK)
    return ZeRO3(run.comm, SleptLayers(model.network), model.parameters, calls=calls)


def predictions(
    run: kit.Run, model, layered: ZeRO3, off_s: float, update: dict
) -> tuple[dict, dict]:
    """({name: seconds}, {name: own work}); none where only a link is stated.

    A step with nothing sent has the update of all elements in it.
    """
    pool, k = model.gradients, {name: timing.median_s for name, timing in update.items()}
    bench = grouped_steps.Bench("", pool, lambda exchange: None, [], 0.0)
    costs = grouped_steps.costs(run, bench)
    nbytes = pool.flat.nbytes
    copied_s = costs.own.b_s_per_byte * nbytes
    own_s = {ALL: k[ALL] + copied_s, ZERO: k[ZERO] + copied_s, OVERLAPPED: k[ALL] + copied_s}
    own_s |= {name: k[ZERO] + 1.5 * copied_s for name in (ZERO3, AHEAD)}
    if run.options.link:
        return {}, own_s
    ring_s = costs.call(nbytes)
    found = {ALL: off_s + ring_s, ZERO: off_s - k[ALL] + k[ZERO] + ring_s}
    if run.regime.like:
        ready, compute_s = virtual.ready(run, NETWORK)
        gradients = [(t, 4 * elements) for t, elements in ready]
        groups = lazy(gradients, THETA[True])
        found[OVERLAPPED] = predict(gradients, groups, costs.call, True, compute_s).step_s
        found[OVERLAPPED] += k[ALL]
        for name, prefetch in ((ZERO3, False), (AHEAD, True)):
            half = {kind: lambda nbytes: costs.call(nbytes) / 2 for kind in (GATHER, REDUCE)}
            each = units(layered.network.layers)
            found[name] = fsdp_s(each, Queue(half, 4), prefetch=prefetch) + k[ZERO]
    return found, own_s


def report(run: kit.Run, rows: list[dict], update: dict, off: kit.Timing) -> None:
    k = run.regime.dilation
    table = [
        [
            row["name"] + star(row["own_share"]),
            row["messages"],
            kit.number_of_bytes(row["bytes"]),
            row["timing"].divided(k),
            kit.seconds(row["predicted_s"] / k) if row["predicted_s"] else "",
        ]
        for row in rows
    ]
    run.table(["", "messages", "bytes", "step", "predicted"], table)
    if any(is_own(row["own_share"]) for row in rows):
        say_star(run, rows, "this step is the processor's own work, which is not slowed down")
    run.say(f"A step in which nothing is sent takes {off.divided(k)}.")
    run.say(
        f"The update takes {update[ALL].divided(k)} of all elements, {update[ZERO].divided(k)} of "
        "a slice:\nthis processor's work, which is not slowed down, divided by the dilation like "
        "the steps."
    )
