"""Lesson 13's oracle: the same training by definition, all ranks in one process."""

from collections.abc import Callable

import numpy as np

import kit
from kit import images
from kit.oracle import agreed, require_sent
from kit.rejected import reject
from lab.daso import learning
from refgf.device import to_host
from refgf.oracle.definitions import (
    DASOSettings,
    DiLoCoSettings,
    daso_start,
    daso_step,
    daso_traffic,
    diloco_start,
    diloco_step,
    diloco_traffic,
    direct_traffic,
)
from refgf.papers.daso.phases import BLOCKING, Constant, Phase
from refgf.papers.diloco.diloco import DiLoCo
from refgf.training.data import batches
from refgf.training.step import parameter_hash

INNER = 3  # steps of DiLoCo


def check(run: kit.Run, data, nodes) -> None:
    """An epoch of each kind of phase, and of DiLoCo. AssertionError at the first difference."""
    run.section("The oracle")
    per_epoch = run.quick(4, 6)
    for phase in [Phase(3, 1, 2), *run.quick([], [Phase(5, 2, 1), BLOCKING])]:
        check_epoch(run, data, nodes, phase, per_epoch)
    check_diloco(run, data, 2 * INNER)


def check_epoch(run: kit.Run, data, nodes, phase, per_epoch: int) -> None:
    """Compare an epoch with the definition: bits, messages and bytes on all ranks."""
    got = []
    with learning.daso(run, data, nodes, Constant(phase), per_epoch) as stack:
        run.comm.reset()
        for batch in images.steps(run, data, per_epoch):
            stack.step(*batch, rate=run.options.rate)
            got.append(parameter_hash(stack.model.parameters.flat))
        stack.require_same_parameters()
        sent, n = (run.comm.messages, run.comm.bytes), stack.model.parameters.flat.size
    everybody = run.plain.allgather(got)
    if run.rank == 0 and everybody != daso_replayed(run, data, nodes, phase, per_epoch):
        reject(f"DASO, {phase}: got other parameters than the definition")
    require_counts(run, nodes, phase, per_epoch, n, sent)
    agreed(
        run,
        f"{phase}:\n    the definition's bits on all ranks after each of {per_epoch} batches, "
        "its messages and bytes",
    )


def check_diloco(run: kit.Run, data, count: int) -> None:
    """Compare DiLoCo with its definition: bits, messages, bytes. A rank is a worker, no decay."""
    got, model = [], model_of(run, data, run.rank, weight_decay=0.0)
    with DiLoCo(run.comm, model, INNER) as stack:
        run.comm.reset()
        for batch in images.steps(run, data, count):
            stack.step(*batch, rate=run.options.rate)
            got.append(parameter_hash(model.parameters.flat))
        sent, n = (run.comm.messages, run.comm.bytes), model.parameters.flat.size
    everybody = run.plain.allgather(got)
    if run.rank == 0:
        settings = DiLoCoSettings(run.size, INNER, rate=run.options.rate)

        def step(state, gs):
            return diloco_step(state, gs, settings)

        order, decay = list(range(run.size)), {"weight_decay": 0.0}
        if everybody != replayed(run, data, order, count, diloco_start, step, **decay):
            reject("DiLoCo: got other parameters than the definition")
    wanted = diloco_traffic(n, run.size, run.size, count, INNER, run.rank)
    require_sent(f"DiLoCo on rank {run.rank}", sent, wanted)
    agreed(
        run,
        f"DiLoCo, H = {INNER}, a rank a worker:\n    the definition's bits on all ranks after each "
        f"of {count} batches, its messages and bytes",
    )


def daso_replayed(run: kit.Run, data, nodes, phase, per_epoch: int) -> list[list[str]]:
    """The hash of each rank's parameters after each batch. Ranks are renumbered node by node."""
    tensors = model_of(run, data, 0).network.tensors
    decayed = np.repeat([spec.decay for spec in tensors], [spec.size for spec in tensors])
    rates = run.options.rate, 0.9, images.WEIGHT_DECAY, decayed
    settings = DASOSettings(len(nodes), per_epoch, *rates)
    plan = phase.global_skip, phase.local_skip, phase.wait

    def step(state, gs):
        return daso_step(state, gs, plan, settings)

    order = [rank for node in nodes for rank in node]
    return replayed(run, data, order, per_epoch, daso_start, step)


def replayed(
    run: kit.Run, data, order: list[int], count: int, start: Callable, step: Callable, **more
) -> list[list[str]]:
    """The hash of each rank's parameters after each of `count` batches, by the definition.

    start: (w, p) -> state; step: (state, gradients of the ranks in this order) -> state
    """
    models = [model_of(run, data, rank, **more) for rank in order]
    streams = [
        batches(data, run.options.batch * run.size, 0, images.SEED, rank, run.size)
        for rank in order
    ]
    w = to_host(models[0].parameters.flat).copy()  # models compute with other parameters
    state, hashes = start(w, run.size), [[] for _ in order]
    for _ in range(count):
        gradients = [
            gradient(run, model, w, next(stream))
            for model, w, stream in zip(models, state["w"], streams)
        ]
        state = step(state, gradients)
        for rank, w in zip(order, state["w"]):
            hashes[rank].append(parameter_hash(w))
    return hashes


def model_of(run: kit.Run, data, rank: int, **more):
    """The model with this rank's dropout masks."""
    model = images.model(run, data, **more)
    model.network.dropout_rng = np.random.default_rng([images.SEED, rank])
    return model


def gradient(run: kit.Run, model, w, batch):
    model.parameters.flat[:] = run.array(w)
    model.network.loss(*batch)
    model.network.backward(lambda i: None)
    return to_host(model.gradients.flat).copy()


def require_counts(
    run: kit.Run, nodes, phase, per_epoch: int, n: int, sent: tuple[int, int]
) -> None:
    """Check messages and bytes: the definition's, one sum of losses, one comparison of hashes."""
    order = [rank for node in nodes for rank in node]
    plan = (phase.global_skip, phase.local_skip, phase.wait)
    messages, size = daso_traffic(n, run.size, len(nodes), per_epoch, plan)[order.index(run.rank)]
    more = direct_traffic(1, run.size, run.rank)
    hashes = (run.size - 1).bit_length(), 32 * (run.size - 1)
    wanted = messages + more[0] + hashes[0], size + 8 * more[1] + hashes[1]
    require_sent(f"DASO, {phase}, on rank {run.rank}", sent, wanted)
