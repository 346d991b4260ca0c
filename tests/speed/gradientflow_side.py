"""This project's side of gradientflow_speed.py, on the emulated cluster.

python gradientflow_side.py MODE OUT [PACE]

alone     full AlexNet, steps without communication: their times, the processor's seconds, the
          pace of a step
CSC       the same, in turns with steps of the whole stack; CSC's arithmetic without messages
float16   the same, in turns with dense float16, lazy and overlapped; the line of its ring; the
          share of its speed that computing keeps concurrently with it
wait      dense float32, dense float16 and CSC, of a network that waits at the given pace
hidden    CSC in the same way: overlapped, sequential, and with nothing to wait for
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import contextlib
import json
import resource
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI
from tests.speed.waiting import WaitingNetwork

from refgf.engine.pipelined import pipelined_ring_allreduce
from refgf.engine.residual import FusedResidual
from refgf.engine.sleeping import sleeping
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import CSCSettings
from refgf.exchange.overlap import CommunicationThread
from refgf.exchange.precision import LossScale
from refgf.exchange.result import StepResult
from refgf.nn.alexnet import AlexNet
from refgf.predict.fit import fit_line
from refgf.predict.fit import kept_share
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica, train_step

BATCH, STEPS, WARMUP = 16, 9, 2
WAITED_STEPS = 3  # one run of many
THETA = 2**22  # bytes
SPARSE = CSCSettings(10, residual=FusedResidual)
STACK = {"allreduce": pipelined_ring_allreduce, "overlap": True}
CONFIGURATIONS = {
    "float32": STACK | {"grouping": Theta(THETA)},
    "float16": STACK | {"grouping": Theta(THETA), "wire": np.float16},
    "CSC": STACK | {"grouping": Theta(THETA // 2), "wire": np.float16, "csc": SPARSE},
}
NO_PACE = {"forward_s": 0, "steps_s": [0] * len(AlexNet(1000).tensors), "rest_s": 0}


def new_flow(comm, network, loss_scale=None, **parts) -> GradientFlow:
    model = replica(network, partial(MomentumSGD, weight_decay=5e-4), loss_scale=loss_scale)
    return GradientFlow(comm, model, **parts)


class Alone:
    """No exchange; notes when each gradient is ready."""

    def __init__(self, model) -> None:
        self.model, self.times = model, []

    def ready(self, i) -> None:
        self.times.append(time.perf_counter())

    def finish(self) -> StepResult:
        self.times.append(time.perf_counter())
        return StepResult()

    def step(self, images, labels, global_batch, rate) -> None:
        self.start_s, self.times = time.perf_counter(), []
        train_step(self.model, self, images, labels, global_batch, rate)
        self.times.append(time.perf_counter())


def slowest(comm, seconds: list[float]) -> list[float]:
    return [max(some) for some in zip(*comm.allgather(seconds))]


def times(comm, step, count=STEPS, warmup=WARMUP) -> list[float]:
    """Seconds of each step, of the slowest rank; the first ones are left out."""
    mine = []
    for _ in range(warmup + count):
        comm.Barrier()
        start_s = time.perf_counter()
        step()
        mine.append(time.perf_counter() - start_s)
    return slowest(comm, mine[warmup:])


def processor(comm, steps: dict) -> dict:
    """Times of each kind of step, taken in turns, and processor seconds of all ranks together.

    computing_s        the computing thread; it also waits for slower ranks, polling inside MPI
    communicating_s    the other threads
    kernel_s           part of both; mostly sending and receiving
    """
    mine = {name: [] for name in steps}
    for _ in range(WARMUP + STEPS):
        for name, step in steps.items():
            comm.Barrier()
            before = np.array([time.perf_counter(), *spent_s()])
            step()
            mine[name].append([time.perf_counter(), *spent_s()] - before)
    found = {}
    for name, rows in mine.items():
        ranks = np.array(comm.allgather(rows[WARMUP:]))  # (ranks, steps, 4)
        main_s, process_s, kernel_s = ranks[:, :, 1:].sum(axis=0).mean(axis=0).tolist()
        found[name] = {
            "step_s": ranks[:, :, 0].max(axis=0).tolist(),
            "computing_s": main_s,
            "communicating_s": process_s - main_s,
            "kernel_s": kernel_s,
        }
    return found


def spent_s() -> list[float]:
    process = resource.getrusage(resource.RUSAGE_SELF)
    return [time.thread_time(), process.ru_utime + process.ru_stime, process.ru_stime]


def compute(comm, name: str) -> dict:
    rng = np.random.default_rng(comm.rank)
    images = rng.standard_normal((BATCH, 227, 227, 3), np.float32)
    batch, found, paces = (images, np.arange(BATCH), BATCH * comm.size), {}, []
    with contextlib.ExitStack() as flows:
        plain = flows.enter_context(new_flow(comm, AlexNet(1000)))
        alone = Alone(plain.model)
        steps = {"alone": lambda: (alone.step(*batch, 0.0), paces.append(pace_of(alone)))}
        if name != "alone":
            parts = {"loss_scale": LossScale(1024.0), **CONFIGURATIONS[name]}
            flow = flows.enter_context(new_flow(comm, AlexNet(1000), **parts))
            steps[name] = lambda: flow.step(*batch, 0.0)
        found["spent"] = processor(comm, steps)
        found["pace"] = median_pace(comm, paces[WARMUP:])
    if name == "CSC":
        silent = {"allreduce": lambda comm, wire: lambda x: None, "loss_scale": LossScale(1024.0)}
        parts = CONFIGURATIONS["CSC"] | silent
        found["CSC arithmetic"] = waited(comm, AlexNet(1000).tensors, NO_PACE, parts)
    if name == "float16":
        found["line"], found["kept"] = measure_line(comm), measure_kept(comm)
    return found | {name: row["step_s"] for name, row in found["spent"].items()}


def pace_of(alone) -> list[float]:
    """Seconds between events: start, first to last gradient, end of backward, end of update."""
    return np.diff([alone.start_s, *alone.times]).tolist()


def median_pace(comm, paces) -> dict:
    mean = np.mean(comm.allgather(np.median(paces, axis=0)), axis=0).tolist()
    first, *steps, rest, update = mean
    first /= 2  # half of the time before the first gradient counts as forward
    return {
        "forward_s": first,
        "steps_s": [first, *steps],
        "rest_s": rest,
        "update_s": update,
    }


def measure_line(comm):
    """a and b of a float16 ring on this cluster, while nothing else happens."""
    allreduce, points = pipelined_ring_allreduce(sleeping(comm), wire=np.float16), []
    for n in (1 << 10, 1 << 18, 1 << 20, 1 << 22):
        x = np.zeros(n, np.float32)
        points.append((2 * n, statistics.median(times(comm, lambda x=x: allreduce(x), 3))))
    fit = fit_line(points)
    return [fit.a_s, fit.b_s_per_byte]


def measure_kept(comm) -> float:
    """The share of its speed that a matrix product on all ranks keeps while a call is in flight."""
    thread = CommunicationThread()
    allreduce = pipelined_ring_allreduce(sleeping(comm), wire=np.float16)
    x, (a, b, c) = np.full(1 << 24, 1e-3, np.float32), np.ones((3, 512, 512), np.float32)

    def load(products: int, calls: bool) -> None:
        if calls:
            thread.run(allreduce, x)
        for _ in range(products):
            np.matmul(a, b, out=c)
        thread.wait()

    def median_s(*arguments) -> float:
        return statistics.median(times(comm, lambda: load(*arguments), 3))

    call_s, product_s = median_s(0, True), median_s(100, False)
    products = round(150 * call_s / product_s)  # half as long again as the call
    alone_s, both_s = median_s(products, False), median_s(products, True)
    thread.close()
    return kept_share(max(call_s, alone_s), call_s, both_s)


def wait(comm, pace) -> dict:
    tensors = AlexNet(1000).tensors
    return {name: waited(comm, tensors, pace, parts) for name, parts in CONFIGURATIONS.items()}


def hidden(comm, pace) -> dict:
    tensors, parts = AlexNet(1000).tensors, CONFIGURATIONS["CSC"]
    return {
        "CSC": waited(comm, tensors, pace, parts),
        "CSC sequential": waited(comm, tensors, pace, parts | {"overlap": False}),
        "CSC alone": waited(comm, tensors, NO_PACE, parts),
    }


def waited(comm, tensors, pace, parts) -> list[float]:
    """Steps without update: forward, backward and exchange."""
    with new_flow(comm, WaitingNetwork(tensors, pace), **parts) as flow:
        network = flow.model.network

        def step():
            network.loss(None, None, 1)
            network.backward(flow.ready)
            flow.finish()

        return times(comm, step, WAITED_STEPS)


if __name__ == "__main__":
    mode, out, *pace = sys.argv[1:]
    paces = [json.loads(Path(name).read_text()) for name in pace]
    paced = {"wait": wait, "hidden": hidden}
    world = MPI.COMM_WORLD
    result = paced[mode](world, *paces) if mode in paced else compute(world, mode)
    if world.rank == 0:
        Path(out).write_text(json.dumps(result))
