"""This project's side of gradientflow_speed.py, on the emulated cluster: python gradientflow_side.py MODE OUT [PACE]

    compute   full AlexNet: a step alone, dense float16 (lazy, overlapped) and CSC at 10 %; also the pace of a step
    wait      the same exchanges, and dense float32, behind a network that waits at that pace
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI
from waiting import WaitingNetwork

from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.exchange.precision import LossScale
from refgf.nn.alexnet import AlexNet
from refgf.predict.fit import fit_line
from refgf.training.gradientflow import GradientFlow
from refgf.training.step import train_step

BATCH, STEPS, WARMUP = 16, 5, 2
THETA = 2**22  # bytes
CONFIGURATIONS = {
    "float32": {"theta_bytes": THETA, "overlap": True},
    "float16": {"theta_bytes": THETA, "overlap": True, "wire": np.float16},
    "CSC": {"theta_bytes": THETA // 4, "overlap": True, "wire": np.float16, "density": 10},
}


class Alone:
    """No exchange; notes when each gradient is ready."""

    def __init__(self, model) -> None:
        self.model, self.times = model, []

    def ready(self, i) -> None:
        self.times.append(time.perf_counter())

    def finish(self) -> bool:
        self.times.append(time.perf_counter())
        return True

    def step(self, images, labels, global_batch, rate) -> None:
        self.start_s, self.times = time.perf_counter(), []
        train_step(self.model, self, images, labels, global_batch, rate)
        self.times.append(time.perf_counter())


def slowest(comm, seconds: list[float]) -> list[float]:
    return [max(some) for some in zip(*comm.allgather(seconds))]


def times(comm, step, count=STEPS) -> list[float]:
    """Seconds of each step, of the slowest rank; the first ones are left out."""
    mine = []
    for _ in range(WARMUP + count):
        comm.Barrier()
        start_s = time.perf_counter()
        step()
        mine.append(time.perf_counter() - start_s)
    return slowest(comm, mine[WARMUP:])


def compute(comm) -> dict:
    rng = np.random.default_rng(comm.rank)
    images = rng.standard_normal((BATCH, 227, 227, 3), np.float32)
    batch = images, np.arange(BATCH), BATCH * comm.size
    found = {}
    with GradientFlow(comm, AlexNet(1000), weight_decay=5e-4) as flow:
        alone, paces = Alone(flow.model), []
        found["alone"] = times(comm, lambda: (alone.step(*batch, 0.0), paces.append(pace_of(alone))))
        found["pace"] = median_pace(comm, paces[WARMUP:])
    for name in ("float16", "CSC"):
        with GradientFlow(comm, AlexNet(1000), weight_decay=5e-4, loss_scale=LossScale(1024.0), **CONFIGURATIONS[name]) as flow:
            found[name] = times(comm, lambda flow=flow: flow.step(*batch, 0.0))
            found[f"{name} calls"] = [2 * (call.stop - call.start) for call in flow.calls]
    found["line"] = measure_line(comm)
    return found


def pace_of(alone) -> list[float]:
    """Seconds between events of a step: forward and first gradient, ..., last gradient, end of backward, end of update."""
    return np.diff([alone.start_s, *alone.times]).tolist()


def median_pace(comm, paces) -> dict:
    pieces = np.mean(comm.allgather(np.median(paces, axis=0)), axis=0).tolist()
    first = pieces[0] / 2  # forward and the first gradient are not told apart: half of it is forward
    return {"forward_s": first, "steps_s": [first, *pieces[1:-2]], "rest_s": pieces[-2], "update_s": pieces[-1]}


def measure_line(comm):
    """a and b of a float16 ring on this cluster, while nothing else happens."""
    allreduce, points = collective(comm, ring.allreduce, np.float16), []
    for n in (1 << 10, 1 << 18, 1 << 20, 1 << 22):
        x = np.zeros(n, np.float32)
        points.append((2 * n, statistics.median(times(comm, lambda x=x: allreduce(x), 3))))
    fit = fit_line(points)
    return [fit.a_s, fit.b_s_per_byte]


def wait(comm, pace) -> dict:
    found = {}
    tensors = AlexNet(1000).tensors
    for name, parts in CONFIGURATIONS.items():
        if name == "CSC":
            no_pace = {"forward_s": 0, "steps_s": [0] * len(tensors), "rest_s": 0}
            found["CSC alone"] = waited(comm, tensors, no_pace, parts)
            found["CSC sequential"] = waited(comm, tensors, pace, parts | {"overlap": False})
        found[name] = waited(comm, tensors, pace, parts)
    return found


def waited(comm, tensors, pace, parts) -> list[float]:
    """Steps without update: forward, backward and exchange."""
    with GradientFlow(comm, WaitingNetwork(tensors, pace), weight_decay=5e-4, **parts) as flow:
        network = flow.model.network

        def step():
            network.loss(None, None, 1)
            network.backward(flow.ready)
            flow.finish()

        return times(comm, step)


if __name__ == "__main__":
    mode, out, *pace = sys.argv[1:]
    result = compute(MPI.COMM_WORLD) if mode == "compute" else wait(MPI.COMM_WORLD, json.loads(Path(pace[0]).read_text()))
    if MPI.COMM_WORLD.rank == 0:
        Path(out).write_text(json.dumps(result))
