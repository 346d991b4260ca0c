"""This project's side of gradientflow_speed.py, on the emulated cluster: python gradientflow_side.py MODE OUT [PACE]

    compute   full AlexNet: a step alone, dense float16 (lazy, overlapped) and CSC at 10 %, each with the processor's seconds;
              the pace of a step; CSC's arithmetic without a network
    wait      the same exchanges, and dense float32, behind a network that waits at that pace
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import json
import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI
from waiting import WaitingNetwork

from refgf.comm.patient import patient
from refgf.exchange.overlap import CommunicationThread
from refgf.exchange.precision import LossScale
from refgf.nn.alexnet import AlexNet
from refgf.predict.fit import fit_line
from refgf.predict.timeline import kept_share
from refgf.training.gradientflow import GradientFlow, pipelined_ring_allreduce
from refgf.training.step import train_step

BATCH, STEPS, WARMUP = 16, 5, 2
THETA = 2**22  # bytes
STACK = {"allreduce": pipelined_ring_allreduce, "overlap": True}
CONFIGURATIONS = {
    "float32": STACK | {"theta_bytes": THETA},
    "float16": STACK | {"theta_bytes": THETA, "wire": np.float16},
    "CSC": STACK | {"theta_bytes": THETA // 4, "wire": np.float16, "density": 10},
}


NO_PACE = {"forward_s": 0, "steps_s": [0] * len(AlexNet(1000).tensors), "rest_s": 0}


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


def times(comm, step, count=STEPS, warmup=WARMUP) -> list[float]:
    """Seconds of each step, of the slowest rank; the first ones are left out."""
    mine = []
    for _ in range(warmup + count):
        comm.Barrier()
        start_s = time.perf_counter()
        step()
        mine.append(time.perf_counter() - start_s)
    return slowest(comm, mine[warmup:])


def processor(comm, step) -> dict:
    """Times of the steps, and processor seconds a step of all ranks together: computing thread, other threads, kernel.

    The kernel's are part of both; sending and receiving is most of them. The computing thread also waits for the slower
    ranks, inside MPI and asking all the time.
    """
    times(comm, step, 0)
    before = spent_s()
    seconds = times(comm, step, warmup=0)
    spent = [(after_s - before_s) / STEPS for before_s, after_s in zip(before, spent_s())]
    main_s, process_s, kernel_s = (sum(some) for some in zip(*comm.allgather(spent)))
    return {"step_s": seconds, "computing_s": main_s, "communicating_s": process_s - main_s, "kernel_s": kernel_s}


def spent_s() -> list[float]:
    process = resource.getrusage(resource.RUSAGE_SELF)
    return [time.thread_time(), process.ru_utime + process.ru_stime, process.ru_stime]


def compute(comm) -> dict:
    rng = np.random.default_rng(comm.rank)
    images = rng.standard_normal((BATCH, 227, 227, 3), np.float32)
    batch = images, np.arange(BATCH), BATCH * comm.size
    found = {}
    with GradientFlow(comm, AlexNet(1000), weight_decay=5e-4) as flow:
        alone, paces = Alone(flow.model), []
        spent = {"alone": processor(comm, lambda: (alone.step(*batch, 0.0), paces.append(pace_of(alone))))}
        found["pace"] = median_pace(comm, paces[WARMUP:])
    for name in ("float16", "CSC"):
        with GradientFlow(comm, AlexNet(1000), weight_decay=5e-4, loss_scale=LossScale(1024.0), **CONFIGURATIONS[name]) as flow:
            spent[name] = processor(comm, lambda flow=flow: flow.step(*batch, 0.0))
            found[f"{name} calls"] = [2 * (call.stop - call.start) for call in flow.calls]
    nobody = {"allreduce": lambda comm, wire: lambda x: None, "loss_scale": LossScale(1024.0)}
    found["CSC arithmetic"] = waited(comm, AlexNet(1000).tensors, NO_PACE, CONFIGURATIONS["CSC"] | nobody)
    found["line"], found["kept"], found["spent"] = measure_line(comm), measure_kept(comm), spent
    return found | {name: row["step_s"] for name, row in spent.items()}


def pace_of(alone) -> list[float]:
    """Seconds between events of a step: forward and first gradient, ..., last gradient, end of backward, end of update."""
    return np.diff([alone.start_s, *alone.times]).tolist()


def median_pace(comm, paces) -> dict:
    pieces = np.mean(comm.allgather(np.median(paces, axis=0)), axis=0).tolist()
    first = pieces[0] / 2  # forward and the first gradient are not told apart: half of it is forward
    return {"forward_s": first, "steps_s": [first, *pieces[1:-2]], "rest_s": pieces[-2], "update_s": pieces[-1]}


def measure_line(comm):
    """a and b of a float16 ring on this cluster, while nothing else happens."""
    allreduce, points = pipelined_ring_allreduce(patient(comm), wire=np.float16), []
    for n in (1 << 10, 1 << 18, 1 << 20, 1 << 22):
        x = np.zeros(n, np.float32)
        points.append((2 * n, statistics.median(times(comm, lambda x=x: allreduce(x), 3))))
    fit = fit_line(points)
    return [fit.a_s, fit.b_s_per_byte]


def measure_kept(comm) -> float:
    """The share of its speed that a computation on all ranks keeps beside a call; matrix products, not the network."""
    thread = CommunicationThread(pipelined_ring_allreduce(patient(comm), wire=np.float16))
    x, (a, b, c) = np.full(1 << 24, 1e-3, np.float32), np.ones((3, 512, 512), np.float32)

    def load(products: int, beside: bool) -> None:
        if beside:
            thread(x)
        for _ in range(products):
            np.matmul(a, b, out=c)
        thread.wait()

    call_s, product_s = (statistics.median(times(comm, lambda some=some: load(*some), 3)) for some in ((0, True), (100, False)))
    products = round(150 * call_s / product_s)  # half as long again as the call
    alone_s, both_s = (statistics.median(times(comm, lambda some=some: load(products, some), 3)) for some in (False, True))
    thread.close()
    return kept_share(max(call_s, alone_s), call_s, both_s)


def wait(comm, pace) -> dict:
    found = {}
    tensors = AlexNet(1000).tensors
    for name, parts in CONFIGURATIONS.items():
        if name == "CSC":
            found["CSC alone"] = waited(comm, tensors, NO_PACE, parts)
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
