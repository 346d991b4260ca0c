"""One data-parallel step, and the proof at the end of a run that all ranks hold the same parameters.

    every rank    loss of its own samples / global batch -> backward -> gradients into the pool
    exchange      sums each gradient over the ranks, as soon as it is announced or later
    every rank    the same update with the same sums, so the parameters stay the same without being sent

The loss is divided by the *global* batch before backward, so the exchange only sums: right for uneven shards too.
Communication per rank: what the exchange costs.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from refgf.comm.agreement import agree
from refgf.device import to_host
from refgf.exchange.pool import Pool
from refgf.training.sgd import MomentumSGD


@dataclass
class Replica:
    """A rank's copy of the model: network, the two pools that its tensors live in, and the optimiser."""

    network: object
    parameters: Pool
    gradients: Pool
    optimizer: MomentumSGD


def replica(network, seed: int = 0, momentum: float = 0.9, weight_decay: float = 0.0) -> Replica:
    """Put the network's tensors into pools and initialise them: the same values on every rank for the same seed."""
    parameters = Pool(network.tensors, network.dtype, network.xp)
    gradients = Pool(network.tensors, network.dtype, network.xp)
    network.bind(parameters.views, gradients.views)
    network.initialize(seed)
    optimizer = MomentumSGD(network.tensors, parameters.flat, momentum, weight_decay)
    return Replica(network, parameters, gradients, optimizer)


def train_step(model: Replica, exchange, images, labels, global_batch: int, rate: float) -> float:
    """One step; returns this rank's share of the loss (the shares of all ranks sum to the mean over the batch).

    exchange has `ready(i)`, called for each gradient in order of generation, and `finish()`, after which the gradient
    pool holds the sums over all ranks. images (N, H, W, C) and labels (N,), N = 0 included.
    """
    loss = model.network.loss(images, labels, global_batch)
    model.network.backward(exchange.ready)
    exchange.finish()
    model.optimizer.step(model.gradients.flat, rate)
    model.network.accept()
    return loss


def parameter_hash(parameters) -> str:
    """SHA-256 of the bits of a flat array."""
    return hashlib.sha256(np.ascontiguousarray(to_host(parameters))).hexdigest()


def require_same_parameters(comm, parameters) -> str:
    """The hash of the parameters; ValueError on every rank if they differ. Cost: see `comm.agreement`."""
    got = parameter_hash(parameters)
    agree(comm, "hash of the parameters", got)
    return got


def evaluate(network, dataset, rank: int, size: int, batch: int = 64) -> tuple[int, int]:
    """(right answers, samples) of this rank's share of a data set: every size-th sample from `rank`."""
    mine = np.arange(rank, dataset.size, size)
    right = 0
    for start in range(0, len(mine), batch):
        images, labels = dataset.load(mine[start : start + batch])
        right += int((to_host(network.predict(images)).argmax(axis=1) == labels).sum())
    return right, len(mine)
