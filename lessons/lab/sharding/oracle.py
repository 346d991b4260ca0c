"""Lesson 16's oracle: a step of ZeRO-1 against Z1 to Z3, on as many ranks as there are."""

from functools import partial
from types import SimpleNamespace

import numpy as np

import kit
from kit.oracle import agreed, require_bits, require_sent, vectors
from refgf.device import to_host
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import zero_run, zero_slice, zero_traffic
from refgf.training.sgd import MomentumSGD

RATE, MOMENTUM, DECAY, STEPS = 0.1, 0.9, 0.01, 3


class GivenGradients:
    """A network whose gradient is its image."""

    def __init__(self, gradients, workspace) -> None:
        self.flat, self.workspace = gradients, workspace

    def loss(self, image, labels, global_batch: int) -> float:
        self.flat[:] = image
        return 0.0

    def backward(self, on_ready) -> None:
        pass

    def accept(self) -> None:
        pass


def check(run: kit.Run, shard, zero_step) -> None:
    """Bits, state and messages; n = 0, fewer elements than ranks, slices of unequal length."""
    run.section("The oracle")
    for n in (0, 1, run.size + 1, 1000):
        one(run, n, shard, zero_step)
    agreed(
        run,
        "ZeRO-1 has the bits of ring allreduce and momentum SGD on every rank, holds the velocity "
        "of its\nown slice alone, and sends what the ring sends: n = 0, 1, p + 1 and 1000.",
    )


def one(run: kit.Run, n: int, shard, zero_step) -> None:
    """Three tensors, of which the second has no decay."""
    cut = n // 3
    sizes = [cut, cut, n - 2 * cut]
    specs = [SimpleNamespace(name=f"t{i}", shape=(k,), decay=i != 1) for i, k in enumerate(sizes)]
    parameters, gradients = (Pool(specs, np.float32, run.xp.zeros) for _ in range(2))
    (start_w,) = vectors(run, n, 16)[:1]
    parameters.flat[:] = run.array(start_w)
    network = GivenGradients(gradients.flat, None)
    optimizer = MomentumSGD(specs, parameters.flat, MOMENTUM, DECAY)
    model = SimpleNamespace(
        network=network, parameters=parameters, gradients=gradients, optimizer=optimizer
    )
    zero, gs = shard(run.comm, model), [vectors(run, n, 16, step) for step in range(STEPS)]
    decayed = np.repeat([spec.decay for spec in specs], sizes)
    wanted = zero_run(start_w, gs, RATE, MOMENTUM, DECAY, decayed)
    own = slice(*zero_slice(n, run.size, run.rank))
    where = partial("n = {}, rank {}, step {}: {}".format, n, run.rank)
    for step, (given, state) in enumerate(zip(gs, wanted)):
        run.comm.reset()
        zero_step(model, zero, run.array(given[run.rank]), None, 1, RATE)
        sent = run.comm.messages, run.comm.bytes
        require_sent(where(step, "sent"), sent, zero_traffic(n, run.size, run.rank))
        require_bits(where(step, "weights"), parameters.flat, state["w"][run.rank])
        velocity = to_host(zero.optimizer.state["velocity"])
        require_bits(where(step, "velocity"), velocity, state["v"][run.rank][own])
