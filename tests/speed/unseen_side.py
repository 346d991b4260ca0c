"""The ranks' side of unseen.py, on emulated nodes. Computing is slept: cores carry messages only.

python unseen_side.py calibrate FOLDER       2 nodes: machine.json, NETWORK.json, record.json
python unseen_side.py refgf JOBS.json OUT    4 nodes: seconds of each job's steps, slowest rank
python unseen_side.py ddp JOBS.json OUT      the same of PyTorch's DDP over gloo

A network has the tensors of a published one, each DIVISORS times smaller, so that slow links, which
leave the processor idle, carry a step in less than a second.
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import argparse
import datetime
import json
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from mpi4py import MPI

sys.path.append(str(Path(__file__).resolve().parents[2] / "lessons"))

from kit import record
from refgf.comm.ring import ring_allreduce
from refgf.engine.residual import FusedResidual
from refgf.engine.sleeping import sleeping
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import CSCSettings
from refgf.exchange.precision import LossScale
from refgf.exchange.result import StepResult
from refgf.machine.accelerator import Pace, VirtualNetwork
from refgf.nn.layers import TensorSpec
from refgf.papers.mgwfbp.merged import Groups
from refgf.papers.scaling.workloads import WORKLOADS
from refgf.plan import measure
from refgf.plan.systems import CSC_PERCENT
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica, train_step

DIVISORS = {"ResNet-50": 16, "AlexNet": 38, "GoogLeNet": 8, "VGG-16": 84, "BERT-Large": 200}
FORWARD_S, BACKWARD_S = 0.06, 0.12
STEPS, WARMUP, DDP_WARMUP = 3, 1, 2  # DDP forms its buckets anew after the first step
HALF = {"wire": np.float16}
SYSTEMS = {"half": HALF, "CSC": HALF | {"csc": CSCSettings(CSC_PERCENT, residual=FusedResidual)}}
NOTHING = np.empty((0, 1), np.float32), np.empty(0, np.int64), 1


class Announced:
    """An exchange that sends nothing and notes when each gradient was ready."""

    def __init__(self) -> None:
        self.times_s = []

    def ready(self, index: int) -> None:
        self.times_s.append(time.perf_counter())

    def finish(self) -> StepResult:
        return StepResult()


def sizes(name: str) -> list[int]:
    return [max(1, tensor.elements // DIVISORS[name]) for tensor in WORKLOADS[name]().tensors]


def pace(name: str) -> Pace:
    gradients = WORKLOADS[name]().gradients(BACKWARD_S, FORWARD_S)
    return Pace(FORWARD_S, tuple(ready_s for ready_s, _ in gradients), FORWARD_S + BACKWARD_S)


def model(name: str, **more):
    specs = [TensorSpec(f"{i}.weight", (n,), True) for i, n in enumerate(sizes(name))]
    optimizer = partial(MomentumSGD, momentum=0.9)
    return replica(VirtualNetwork(specs, pace(name)), optimizer, **more)


def calibrate(comm, folder: Path) -> None:
    """What `plan` reads: the machine file of a link, and the list of each network's gradients."""
    measure.write(sleeping(comm.Dup()), str(folder / "machine.json"))
    for name in DIVISORS:
        found = gradients_of(model(name))
        if comm.rank == 0:
            (folder / f"{name}.json").write_text(json.dumps(found))
    if comm.rank == 0:
        (folder / "record.json").write_text(json.dumps(recorded()))


def recorded() -> dict:
    found = {"date": datetime.date.today().isoformat()}
    found["machine"] = record.machine(argparse.Namespace(threads=None))
    return found | {"measured_with": record.code_hash(Path(__file__).resolve())}


def gradients_of(one) -> dict:
    """Medians over the steps of one rank without exchange."""
    rows = []
    for _ in range(WARMUP + STEPS):
        start_s, announced = time.perf_counter(), Announced()
        train_step(one, announced, *NOTHING, rate=0.0)
        rows.append([t - start_s for t in (*announced.times_s, time.perf_counter())])
    *ready, end_s = (statistics.median(column) for column in zip(*rows[WARMUP:]))
    counts = [spec.shape[0] for spec in one.network.tensors]
    listed = [{"elements": n, "ready_s": t} for n, t in zip(counts, ready)]
    return {"gradients": listed, "after_s": end_s - ready[-1]}


def refgf(comm, job: dict) -> list[float]:
    settings = SYSTEMS.get(job["system"], {})
    scale = {"loss_scale": LossScale(1024.0)} if settings else {}
    one, theta = model(job["network"], **scale), job.get("theta")
    grouping = Theta(theta) if theta is not None else Groups(tuple(ranges(job["groups"])))
    stack = {"allreduce": ring_allreduce, "overlap": True, "grouping": grouping}
    with GradientFlow(sleeping(comm), one, **stack, **settings) as flow:
        return times(comm, partial(flow.step, *NOTHING, rate=0.0), WARMUP + bool(flow.csc))


def ranges(counts: list[int]) -> list[range]:
    ends = np.cumsum(counts).tolist()
    return [range(end - count, end) for count, end in zip(counts, ends)]


def times(comm, step, warmup: int) -> list[float]:
    """Seconds of each step of the slowest rank; the first ones are left out."""
    mine = []
    for _ in range(warmup + STEPS):
        comm.Barrier()
        start_s = time.perf_counter()
        step()
        mine.append(time.perf_counter() - start_s)
    return [max(ranks) for ranks in zip(*comm.allgather(mine[warmup:]))]


def ddp(comm, job: dict) -> list[float]:
    from collections import namedtuple

    import torch
    from tests.speed.ddp import WaitingModel
    from torch.nn.parallel import DistributedDataParallel

    when, tensor = pace(job["network"]), namedtuple("tensor", "shape")
    steps_s = np.diff([when.forward_s, *when.ready_s]).tolist()
    waits = {"forward_s": when.forward_s, "steps_s": steps_s}
    waiting = WaitingModel([tensor((n,)) for n in sizes(job["network"])], waits)
    wrapped, x = DistributedDataParallel(waiting, bucket_cap_mb=job["cap_mib"]), torch.zeros(1)
    x.requires_grad_()
    return times(comm, lambda: wrapped(x).sum().backward(), DDP_WARMUP)


def main(mode: str, given: str, *out: str) -> None:
    comm = MPI.COMM_WORLD
    if mode == "calibrate":
        return calibrate(comm, Path(given))
    if mode == "ddp":
        from tests.speed.ddp import start

        start(comm)
    side = {"refgf": refgf, "ddp": ddp}[mode]
    found = [side(comm, job) for job in json.loads(Path(given).read_text())]
    if comm.rank == 0:
        Path(out[0]).write_text(json.dumps(found))
    if mode == "ddp":
        import torch.distributed

        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
