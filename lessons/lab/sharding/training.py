"""Lesson 16: a training in which every rank holds all, and the same with ZeRO-1 and ZeRO-3.

Bits, losses, messages and bytes, and the bytes of the arrays that a rank holds, counted.
"""

import math
from functools import partial

import numpy as np

import kit
from kit import images
from refgf.comm.ring import ring_allreduce
from refgf.device import to_host
from refgf.exchange.result import StepResult
from refgf.nn.layers import ReLU
from refgf.oracle.definitions import zero3_calls, zero_traffic
from refgf.oracle.spec.zero.lesson_16 import held
from refgf.papers.zero.zero3 import ZeRO3
from refgf.plan.sharding import in_a_row
from refgf.training.sgd import MomentumSGD
from refgf.training.step import train_step

ALL, ZERO, ZERO2, ZERO3 = "all hold all", "ZeRO-1", "ZeRO-2", "ZeRO-3"
PARTS = "weights", "gradients", "state"
STAGES = {ALL: 0, ZERO: 1, ZERO2: 2, ZERO3: 3}


class OneRing:
    """An exchange: one ring allreduce of all gradients, after backward."""

    def __init__(self, comm, gradients) -> None:
        self.allreduce, self.gradients = ring_allreduce(comm), gradients

    def ready(self, index: int) -> None:
        pass

    def finish(self) -> StepResult:
        self.allreduce(self.gradients)
        return StepResult()


def sharded_network(run: kit.Run, train, calls=None) -> ZeRO3:
    """ZeRO-3 of the network that is trained, with its optimiser's settings."""
    model = images.model(run, train)
    sgd = partial(MomentumSGD, **model.optimizer.settings)
    return ZeRO3(run.comm, model.network, model.parameters, sgd, calls)


def compare(run: kit.Run, train, shard, zero_step) -> dict:
    """The trainings, from the same weights, with the same batches."""
    run.section(f"Training: {images.in_words(run)}")
    rows, ends, losses, count = [], [], [], run.quick(3, 30)
    for name in (ALL, ZERO, ZERO3):
        if name == ZERO3:
            layered = sharded_network(run, train)
            step, optimizer = layered.step, layered.optimizer
            pools = layered.parameters.nbytes, layered.gradients.nbytes
        else:
            model = images.model(run, train)
            pools = model.parameters.flat.nbytes, model.gradients.flat.nbytes
        if name == ZERO:
            zero = shard(run.comm, model)
            step, optimizer = partial(zero_step, model, zero), zero.optimizer
        elif name == ALL:
            exchange = OneRing(run.comm, model.gradients.flat)
            step, optimizer = partial(train_step, model, exchange), model.optimizer
        mine, most = [], 0
        for batch in images.steps(run, train, count):
            run.comm.reset()
            most = max(most, len(batch[0]))
            mine.append(step(*batch, rate=run.options.rate))
        sent = run.comm.messages, run.comm.bytes
        states = sum(array.nbytes for array in optimizer.state.values())
        rows.append({"name": name, **most_of(run, (*pools, states), sent)})
        if name != ZERO3:  # its sums are in the ring's order layer by layer: other bits
            ends.append(to_host(model.parameters.flat).copy())
        losses.append(np.sum(run.plain.allgather(mine), axis=0).tolist())
    found = {"rows": rows, "elements": ends[0].size, "losses": losses}
    found["whole_layers"] = layered.whole_bytes
    found["outputs"] = outputs(layered.network, most)
    found["layers"] = [unit.part.stop - unit.part.start for unit in layered.units]
    return report(run, found | differing(run, ends))


def most_of(run: kit.Run, nbytes: tuple, sent: tuple) -> dict:
    """What the rank that holds or sends most has; and its own formulas say the same."""
    held_bytes, sent_most = (
        np.max(run.plain.allgather(each), axis=0).tolist() for each in (nbytes, sent)
    )
    return {"held": dict(zip(PARTS, held_bytes))} | dict(zip(("messages", "bytes"), sent_most))


def differing(run: kit.Run, ends: list[np.ndarray]) -> dict:
    """Weights whose bits differ: between both trainings, and between ranks. On the worst rank."""
    bits = [end.view(np.uint32) for end in ends]
    first = run.plain.bcast(bits[1])
    counts = [np.count_nonzero(bits[1] != other) for other in (bits[0], first)]
    found = np.max(run.plain.allgather(counts), axis=0).tolist()
    return dict(zip(("from_the_ring", "between_ranks"), found))


def outputs(network, count: int) -> dict:
    """Bytes of the outputs of so many images that layers keep for backward: the activations.

    ReLU writes over its input. Max pooling and dropout also have a byte each, left out by formula.
    """
    every = {layer for each in network.layers for layer in (each, *each.sublayers())}
    kept = sum(x.nbytes for layer in every for x in layer._memory.values())
    own = sum(math.prod(layer.output_shape) for layer in every if not isinstance(layer, ReLU))
    return {"counted": kept, "formula": network.dtype.itemsize * count * own}


def formula(n: int, p: int, stage: int, states: int = 1) -> dict:
    """Bytes of float32 that the rank with the longest slice holds, {part: bytes}."""
    rank = p - 1  # it owns slice 0
    return dict(zip(PARTS, (4 * k for k in held(n, p, rank, stage, states))))


def of_own_size(found: dict) -> int:
    """Bytes of whole units if each had buffers of its own size: two neighbours, at most."""
    return 4 * 2 * in_a_row(found["layers"], 2)


def report(run: kit.Run, found: dict) -> dict:
    n, p = found["elements"], run.size
    for row in found["rows"]:
        row["formula"] = formula(n, p, STAGES[row["name"]])
    by_rank = {ZERO: [zero_traffic(n, p, rank)[1] for rank in range(p)]}
    calls = (zero3_calls(found["layers"], p, rank) for rank in range(p))
    by_rank[ZERO3] = [4 * sum(elements for *_, elements in each) for each in calls]
    found["sent_formula"] = {name: max(nbytes) for name, nbytes in by_rank.items()}
    found["stages"] = {name: formula(n, p, stage) for name, stage in STAGES.items()}
    table = []
    for name, nbytes in found["stages"].items():
        counted = next((row["held"] for row in found["rows"] if row["name"] == name), None)
        shown = counted or nbytes
        whole = found["whole_layers"] if name == ZERO3 else 0
        together = whole + sum(shown.values())
        table.append(
            [
                name,
                *(kit.number_of_bytes(shown[part]) for part in PARTS),
                "not counted" if name == ZERO2 else kit.number_of_bytes(whole),
                kit.number_of_bytes(together)
                + f", {together / sum(found['stages'][ALL].values()):.0%}",
                "counted" if counted else "by formula",
            ]
        )
    run.say("What the rank with the longest slice holds, with momentum:")
    run.table(["", *PARTS, "whole units", "at its peak", ""], table)
    largest = max(found["layers"]) / n
    own = kit.number_of_bytes(of_own_size(found))
    run.say("Whole units: two buffers for weights and two for gradients, each as large as the")
    run.say(f"largest layer, which has {largest:.0%} of all weights. Of each layer's size: {own}.")
    run.say("ZeRO-2, not run, also has whole gradients of a unit.")
    kept, wanted = map(kit.number_of_bytes, found["outputs"].values())
    run.say(f"On top, in every stage: layers' outputs (activations), {kept}; by formula {wanted}.")
    sends = [
        [row["name"], f"{row['messages']:g}", kit.number_of_bytes(row["bytes"])]
        for row in found["rows"]
    ]
    run.say("\nWhat a rank sends in a step, at most:")
    run.table(["", "messages", "bytes"], sends)
    run.say(
        f"After {len(found['losses'][0])} steps of ZeRO-1 {found['from_the_ring']} of {n:,} "
        f"weights have other bits than with the ring;\nbetween ranks {found['between_ranks']}."
    )
    run.say("ZeRO-3 adds in the ring's order layer by layer: other bits, and right ones.")
    return found
