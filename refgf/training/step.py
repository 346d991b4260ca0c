"""One data-parallel step, and the proof at the end of a run that all ranks hold the same parameters.

    every rank    loss of its own samples / global batch -> backward -> gradients into the pool
    exchange      sums each gradient over the ranks, as soon as it is announced or later
    every rank    the same update with the same sums, so the parameters stay the same without being sent

The loss is divided by the *global* batch before backward, so the exchange only sums: right for uneven shards too.
Communication per rank: what the exchange costs.
"""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refgf.comm.agreement import agree
from refgf.device import to_host
from refgf.exchange.pool import Pool
from refgf.exchange.precision import WorkingCopy
from refgf.training.sgd import MomentumSGD


@dataclass
class Replica:
    """A rank's copy of the model: network, the two pools that its tensors live in, and the optimiser.

    working: with mixed precision the network computes with a rounded copy of `parameters`, the master weights.
    narrow: the float16 gradients of a float16 network, which are widened into `gradients` one by one.
    """

    network: object
    parameters: Pool
    gradients: Pool
    optimizer: object
    working: WorkingCopy | None = None
    narrow: Pool | None = None

    def announcing(self, ready: Callable[[int], None]) -> Callable[[int], None]:
        """What backward is to call for each gradient, so that the pool holds it when `ready` is called."""
        if self.narrow is None:
            return ready

        def widened(index: int) -> None:
            self.gradients.views[index][...] = self.narrow.views[index]
            ready(index)

        return widened

    def layout(self) -> str:
        """What must be alike on all ranks, and in a checkpoint: order, shapes and types of the tensors."""
        return ("" if self.narrow is None else "float16 network, ") + self.gradients.layout()

    def update(self, rate: float, sent: list[slice] | None = None, waited: list[int] | None = None) -> None:
        """One step of the optimiser with the sums in the gradient pool; `sent` restricts it to parts of the pool.

        waited: after how many steps each of these parts was sent again, for an optimiser that asks for it (LARS).
        """
        self.optimizer.step(self.gradients.flat, rate, sent, *([] if waited is None else [waited]))
        if self.working:
            self.working.refresh(sent)


def replica(
    network, seed: int = 0, momentum: float = 0.9, weight_decay: float = 0.0, half_weights: bool = False
) -> Replica:
    """Put the network's tensors into pools and initialise them: the same values on every rank for the same seed.

    half_weights: forward and backward use weights rounded to float16, the update is to the unrounded ones. So it is always
    for a network of float16, whose pools are of float32, and whose unrounded weights begin as the rounded ones.
    """
    half = network.dtype == np.float16
    kind = np.dtype(np.float32) if half else network.dtype
    parameters, gradients = (Pool(network.tensors, kind, network.xp) for _ in range(2))
    narrow = Pool(network.tensors, network.dtype, network.xp) if half else None
    weights = Pool(network.tensors, network.dtype, network.xp) if half or half_weights else parameters

    def bind() -> None:
        network.bind(weights.views, (narrow or gradients).views)

    bind()
    network.initialize(seed)
    workspace = getattr(network, "workspace", None)
    optimizer = MomentumSGD(network.tensors, parameters.flat, momentum, weight_decay, workspace)
    model = Replica(network, parameters, gradients, optimizer, narrow=narrow)
    if weights is not parameters:
        parameters.flat[...] = weights.flat
        model.working = WorkingCopy(parameters.flat, weights.flat)
        model.working.refresh()
    gradients.moved = bind
    return model


def train_step(model: Replica, exchange, images, labels, global_batch: int, rate: float) -> float:
    """One step; returns this rank's share of the loss (the shares of all ranks sum to the mean over the batch).

    images (N, H, W, C) and labels (N,), N = 0 included. exchange is what the gradients pass through:

        ready(i)    called for each gradient in order of generation
        finish()    afterwards the gradient pool holds the sums over all ranks; False: the step is not accepted, nothing
                    may change
        scale       optional: the loss scale, 1 where there is none; `finish` divides by it
        sent        optional: which slices of the pool hold sums, None for all; waited: see `Replica.update`
        span        optional: with span(name): ... records when it happened
    """
    network, span = model.network, getattr(exchange, "span", contextlib.nullcontext)
    with span("FORWARD"):
        loss = network.loss(images, labels, global_batch)
    with span("BACKWARD"):
        if (scale := getattr(exchange, "scale", 1.0)) != 1:
            network.logits_gradient *= scale  # backward is linear: all gradients are multiplied
        network.backward(model.announcing(exchange.ready))
    if exchange.finish() is not False:
        with span("UPDATE"):
            model.update(rate, getattr(exchange, "sent", None), getattr(exchange, "waited", None))
            network.accept()
    return float(loss)  # here a GPU is waited for, with the whole step queued


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


@contextlib.contextmanager
def averaged_statistics(network, allreduce, size: int):
    """While this lasts, running mean and variance are the averages over all ranks; then each rank's own again.

    Evaluation must not depend on the rank, and training not on how often somebody evaluates. Collective.
    """
    own = [array.copy() for array in network.running]
    for array in network.running:
        allreduce(array)
        array /= size
    try:
        yield
    finally:
        for array, saved in zip(network.running, own):
            array[...] = saved
