"""The ranks' side of daso_speed.py, on the emulated cluster: python daso_side.py MODE OUT [ALONE_S]

    alone     a step of the network without any exchange, all ranks computing; the rate at which a
              node's bytes take as long
    compute   epochs of each system, all ranks computing
    wait      the same with a network that waits ALONE_S instead of computing

Images are random numbers: what is timed does not depend on them.
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import functools
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI
from tests.speed.waiting import WaitingNetwork

from refgf.papers.jia import hierarchical
from refgf.engine.sleeping import sleeping
from refgf.comm.schedule import collective
from refgf.comm.topology import nodes as nodes_of
from refgf.exchange.lazy import Theta
from refgf.exchange.result import StepResult
from refgf.nn.alexnet import AlexNet
from refgf.papers.daso.daso import DASO
from refgf.papers.daso.phases import BLOCKING, Constant, Phase
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica, train_step

WIDTH, IMAGE_SIZE, BATCH = 1 / 16, 67, 32
BATCHES, REPEATS = 24, 3  # of an epoch; epochs of each that are timed
PHASES = {"blocking": BLOCKING, "B=4, W=1": Phase(4), "B=8, W=2": Phase(8, 1, 2)}
ROOM = 1.05  # headers and latencies


class Alone:
    """A step without any exchange."""

    def __init__(self, model) -> None:
        self.model = model

    def ready(self, i: int) -> None:
        pass

    def finish(self) -> StepResult:
        return StepResult()

    def step(self, *batch) -> None:
        train_step(self.model, self, *batch)

    def close(self) -> None:
        pass


class Waiting(WaitingNetwork):
    """Begins each step with the same gradients, because summed ones would grow."""

    def loss(self, images, labels, global_batch) -> float:
        self.initialize(0)
        return super().loss(images, labels, global_batch)


def network(alone_s: float | None):
    """The real one, or one that waits: a third of the time in forward, the rest in backward."""
    net = AlexNet(10, IMAGE_SIZE, WIDTH)
    if alone_s is None:
        return net
    each = 2 / 3 * alone_s / len(net.tensors)
    pace = {"forward_s": alone_s / 3, "steps_s": [each] * len(net.tensors), "rest_s": 0.0}
    return Waiting(net.tensors, pace)


def new_model(alone_s: float | None):
    return replica(network(alone_s), functools.partial(MomentumSGD, weight_decay=5e-4))


def stacks(comm, alone_s: float | None) -> dict:
    """Each on a network of its own. All sleep while they wait, as DASO does."""
    nodes = nodes_of(comm)
    two_level = functools.partial(collective, algorithm=hierarchical.two_level_ring(nodes))

    def flow(**parts) -> GradientFlow:
        return GradientFlow(sleeping(comm), new_model(alone_s), allreduce=two_level, **parts)

    found = {
        "no exchange": Alone(flow().model),
        "synchronous": flow(),
        "synchronous, overlapped": flow(overlap=True, grouping=Theta(2**18)),
    }
    for name, phase in PHASES.items():
        found[name] = DASO(comm, new_model(alone_s), nodes, Constant(phase), BATCHES)
    return found


def time_epochs(comm, some: dict, repeats: int) -> dict:
    """Seconds of a batch on the slowest rank, averaged over an epoch; one epoch of each in turn."""
    rng = np.random.default_rng(comm.rank)
    images = rng.standard_normal((BATCH, IMAGE_SIZE, IMAGE_SIZE, 3), np.float32)
    batch = images, np.arange(BATCH) % 10, BATCH * comm.size, 0.0
    found = {name: [] for name in some}
    for repeat in range(1 + repeats):
        for name, stack in some.items():
            comm.Barrier()
            start_s = time.perf_counter()
            for _ in range(BATCHES):
                stack.step(*batch)
            if repeat:
                found[name].append((time.perf_counter() - start_s) / BATCHES)
    for stack in some.values():
        stack.close()
    return {
        name: [max(each) for each in zip(*comm.allgather(seconds))]
        for name, seconds in found.items()
    }


def alone(comm) -> dict:
    """Its time, and the rate of links (bit/s) at which sending a step's bytes takes as long."""
    flow = GradientFlow(comm, new_model(None))
    seconds = time_epochs(comm, {"alone": Alone(flow.model)}, REPEATS)["alone"]
    flow.close()
    m = len(nodes_of(comm))
    # two-level ring: a node's link transfers each slice once
    sent = 2 * (m - 1) / m * flow.model.parameters.flat.nbytes
    return {"alone": seconds, "bytes": sent, "rate": ROOM * 8 * sent / statistics.median(seconds)}


if __name__ == "__main__":
    mode, out, *more = sys.argv[1:]
    world, alone_s = MPI.COMM_WORLD, float(more[0]) if more else None
    result = (
        alone(world) if mode == "alone" else time_epochs(world, stacks(world, alone_s), REPEATS)
    )
    if world.rank == 0:
        Path(out).write_text(json.dumps(result))
