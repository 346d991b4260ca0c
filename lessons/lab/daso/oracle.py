"""Lesson 13's oracle: the same training by DASO's definition, all ranks in one process."""

import numpy as np

import kit
from kit import images
from kit.oracle import require_sent
from kit.rejected import reject
from lab.daso import learning
from refgf.device import to_host
from refgf.oracle.definitions import (
    DASOSettings,
    daso_start,
    daso_step,
    daso_traffic,
    direct_traffic,
)
from refgf.papers.daso.phases import BLOCKING, Constant, Phase
from refgf.training.data import batches
from refgf.training.step import parameter_hash


def check(run: kit.Run, data, nodes) -> None:
    """An epoch of each kind of phase. Raises AssertionError at the first difference."""
    run.section("The oracle")
    per_epoch = run.quick(4, 6)
    for phase in [Phase(3, 1, 2), *run.quick([], [Phase(5, 2, 1), BLOCKING])]:
        check_epoch(run, data, nodes, phase, per_epoch)


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
    if run.rank == 0 and everybody != replayed(run, data, nodes, phase, per_epoch):
        reject(f"DASO, {phase}: got other parameters than the definition")
    require_counts(run, nodes, phase, per_epoch, n, sent)
    run.say(
        f"{phase}:\n    the definition's bits on all ranks after each of {per_epoch} batches, "
        "its messages and bytes"
    )


def replayed(run: kit.Run, data, nodes, phase, per_epoch: int) -> list[list[str]]:
    """The hash of each rank's parameters after each batch, by the definition.

    Ranks are renumbered node by node.
    """
    order = [rank for node in nodes for rank in node]
    models = [model_of(run, data, rank) for rank in order]
    streams = [
        batches(data, run.options.batch * run.size, 0, images.SEED, rank, run.size)
        for rank in order
    ]
    decayed = np.repeat(
        [spec.decay for spec in models[0].network.tensors],
        [spec.size for spec in models[0].network.tensors],
    )
    settings = DASOSettings(
        len(nodes), per_epoch, run.options.rate, 0.9, images.WEIGHT_DECAY, decayed
    )
    state, hashes = daso_start(to_host(models[0].parameters.flat), run.size), [[] for _ in order]
    for _ in range(per_epoch):
        gradients = [
            gradient(run, model, w, next(stream))
            for model, w, stream in zip(models, state["w"], streams)
        ]
        state = daso_step(
            state, gradients, (phase.global_skip, phase.local_skip, phase.wait), settings
        )
        for rank, w in zip(order, state["w"]):
            hashes[rank].append(parameter_hash(w))
    return hashes


def model_of(run: kit.Run, data, rank: int):
    """The model with this rank's dropout masks."""
    model = images.model(run, data)
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
