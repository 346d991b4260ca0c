"""One data-parallel step, and the proof that all ranks hold the same parameters after a run.

    every rank    loss of its own samples / global batch -> backward -> gradients into the pool
    exchange      sums each gradient over the ranks, as soon as it is announced or later
    every rank    the same update with the same sums, so the parameters stay the same, unsent

The loss is divided by the *global* batch before backward, so the exchange only sums: right for
uneven shards too. Communication per rank: the exchange's cost.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from refgf.comm.agreement import agree
from refgf.comm.arguments import Comm, require_number
from refgf.device import Array, to_host
from refgf.exchange.interfaces import Exchange, Optimizer, Zeros
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale, WorkingCopy
from refgf.exchange.result import UNOBSERVED, StepResult, Unobserved
from refgf.nn.network import Network
from refgf.training.sgd import MomentumSGD


@dataclass
class Replica:
    """A rank's copy of the model: network, the pools that its tensors lie in, and the optimiser.

    working         mixed precision: the rounded `parameters` that the network computes with
    half_gradients  of a float16 network, each upcast into `gradients` as it becomes ready
    """

    network: Network
    parameters: Pool
    gradients: Pool
    optimizer: Optimizer
    loss_scale: LossScale = field(default_factory=LossScale)
    working: WorkingCopy | None = None
    half_gradients: Pool | None = None
    seen: int = 0  # hash of the global batches of its steps

    def announcing(self, ready: Callable[[int], None]) -> Callable[[int], None]:
        """What backward calls for each gradient: the pool holds it when `ready` is called."""
        if (half_gradients := self.half_gradients) is None:
            return ready

        def upcast(index: int) -> None:
            self.gradients.views[index][...] = half_gradients.views[index]
            ready(index)

        return upcast

    def layout(self) -> str:
        """What must be alike on all ranks: order, shapes and types of the tensors."""
        return ("float16 network, " if self.half_gradients else "") + self.gradients.layout()

    def update(self, rate: float, result: StepResult) -> None:
        """One step of the optimiser with the sums that `result` says are in the gradient pool."""
        self.optimizer.step(self.gradients.flat, rate, result.sent, result.waited)
        if self.working:
            self.working.refresh(result.sent)


def replica(
    network: Network,
    optimizer: Callable[..., Optimizer] = MomentumSGD,
    *,
    seed: int = 0,
    half_weights: bool = False,
    loss_scale: LossScale | None = None,
    zeros: Zeros | None = None,
) -> Replica:
    """Put the network's tensors into pools and initialise them: the same on every rank for a seed.

    optimizer     called with (specs, parameters (n,), workspace=...)
    half_weights  compute with weights rounded to float16, update the unrounded ones. A network of
                  float16 always does; its pools are float32, its first weights the rounded ones
    zeros         allocates the gradient pool, see `Pool`; default: the network's array library
    """
    half = network.dtype == np.float16
    kind = np.dtype(np.float32) if half else network.dtype
    allocate = network.xp.zeros
    parameters = Pool(network.tensors, kind, allocate)
    gradients = Pool(network.tensors, kind, zeros or allocate)
    half_gradients = Pool(network.tensors, network.dtype, allocate) if half else None
    weights = Pool(network.tensors, network.dtype, allocate) if half or half_weights else parameters
    network.bind(weights.views, (half_gradients or gradients).views)
    network.initialize(seed)
    model = Replica(
        network,
        parameters,
        gradients,
        optimizer(network.tensors, parameters.flat, workspace=network.workspace),
        loss_scale or LossScale(),
        half_gradients=half_gradients,
    )
    if weights is not parameters:
        parameters.flat[...] = weights.flat
        model.working = WorkingCopy(parameters.flat, weights.flat)
        model.working.refresh()
    return model


def train_step(
    model: Replica,
    exchange: Exchange,
    images: Array,
    labels: Array,
    global_batch: int,
    rate: float,
    observe: Unobserved = UNOBSERVED,
) -> float:
    """One step; returns this rank's share of the loss: all shares sum to the batch's mean loss.

    images (N, H, W, C) and labels (N,), N = 0 included. exchange: see `exchange/result.py`.
    """
    require_number("train_step: global_batch", global_batch, 1, "the samples of all ranks")
    require_number("train_step: rate", rate, 0, "0.01")
    network = model.network
    with observe.span("compute", "FORWARD"):
        loss = network.loss(images, labels, global_batch)
    with observe.span("compute", "BACKWARD"):
        if model.loss_scale.scale != 1:  # backward is linear: all gradients are multiplied
            network.logits_gradient *= model.loss_scale.scale
        network.backward(model.announcing(exchange.ready))
    result, model.seen = exchange.finish(), hash((model.seen, global_batch))
    if result.accepted:
        with observe.span("compute", "UPDATE"):
            model.update(rate, result)
            network.accept()
    return float(loss)  # on a GPU the host waits here, with the whole step queued


def parameter_hash(parameters: Array) -> str:
    """SHA-256 of the bits of a flat array."""
    return hashlib.sha256(np.ascontiguousarray(to_host(parameters)).data).hexdigest()


def require_same_parameters(comm: Comm, parameters: Array, seen: int = 0) -> str:
    """The hash of the parameters; ValueError on every rank if they, or a `Replica.seen`, differ."""
    got = parameter_hash(parameters)
    agree(comm, "hash of the parameters", f"{got}, steps {seen:x}")
    return got
