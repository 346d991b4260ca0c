"""One rank of dilation_speed.py: what a step takes on the emulated nodes.

python dilation_side.py ladder out.json     steps of three stacks on virtual accelerators
python dilation_side.py real out.json       a real AlexNet, then the same slept at its pace
"""

import refgf.launch  # noqa: F401  before MPI starts

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

import kit
from kit import record, virtual
from refgf.exchange.lazy import Theta
from refgf.exchange.precision import LossScale
from refgf.machine.accelerator import Pace, VirtualNetwork
from refgf.nn.alexnet import AlexNet
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica, train_step

BATCH, STEPS = 8, 3
HALF = {"wire": np.float16, "grouping": Theta(0)}
STACKS = {"float32": {"grouping": Theta(0)}, "float16": HALF, "overlap": HALF | {"overlap": True}}


def ladder(run: kit.Run) -> dict:
    """{stack: seconds of each step after one, in the cluster's time, of the slowest rank}"""
    found = {"off": timed(run, [virtual.model(run, "alexnet")])}
    for name, arguments in STACKS.items():
        more = {"loss_scale": LossScale(1024.0)} if arguments.get("wire") else {}
        with virtual.flow(run, "alexnet", **arguments, **more) as stack:
            found[name] = slowest(run, virtual.seconds_of_steps(run, stack, STEPS))
    factor = run.regime.dilation
    return {"dilation": factor, "cluster_s": {k: [t / factor for t in v] for k, v in found.items()}}


def timed(run: kit.Run, models: list) -> list[float]:
    mine = []
    for _ in range(STEPS + 1):
        run.plain.Barrier()
        start_s = time.perf_counter()
        train_step(models[0], virtual.NoExchange(), *virtual.NOTHING, rate=0.0)
        mine.append(time.perf_counter() - start_s)
    return slowest(run, mine[1:])


def slowest(run: kit.Run, mine: list[float]) -> list[float]:
    return [max(step) for step in zip(*run.plain.allgather(mine))]


def real(run: kit.Run) -> dict:
    """{"real" and "slept": {"off" and "on": seconds of each step after one}}, in turns.

    On: float16 and overlap.
    """
    net = AlexNet(1000, 227)
    computed = replica(net, partial(MomentumSGD, momentum=0.9), loss_scale=LossScale(1024.0))
    rng = np.random.default_rng(run.rank)
    images = rng.standard_normal((BATCH, 227, 227, 3), np.float32)
    batch = images, rng.integers(0, 1000, BATCH), BATCH * run.size
    pace = measured_pace(run, computed, batch)
    optimizer = partial(MomentumSGD, momentum=0.9)
    slept = replica(VirtualNetwork(net.tensors, pace), optimizer, loss_scale=LossScale(1024.0))
    sides = {"real": (computed, batch), "slept": (slept, virtual.NOTHING)}
    found = {name: {"off": [], "on": []} for name in sides}
    for step in range(STEPS + 1):
        for name, (model, samples) in sides.items():
            seconds = step_s(run, model, virtual.NoExchange(), samples)
            found[name]["off"] += [seconds] * (step > 0)
    for name, (model, samples) in sides.items():
        with GradientFlow(run.comm, model, **STACKS["overlap"]) as flow:
            step_s(run, model, flow, samples)
            found[name]["on"] = [step_s(run, model, flow, samples) for _ in range(STEPS)]
    return found


def step_s(run: kit.Run, model, exchange, batch) -> float:
    run.plain.Barrier()
    start_s = time.perf_counter()
    train_step(model, exchange, *batch, rate=0.0)
    return max(run.plain.allgather(time.perf_counter() - start_s))


def measured_pace(run: kit.Run, model, batch) -> Pace:
    """The Pace of a real network: medians of STEPS passes after one, of this rank."""

    def one_pass() -> list[float]:
        times_s = [time.perf_counter()]
        model.network.loss(*batch)
        times_s.append(time.perf_counter())
        model.network.backward(lambda i: times_s.append(time.perf_counter()))
        times_s.append(time.perf_counter())
        return [t - times_s[0] for t in times_s[1:]]

    passes = []
    for _ in range(STEPS + 1):
        run.plain.Barrier()
        passes.append(one_pass())
    forward_s, *ready_s, end_s = map(statistics.median, zip(*passes[1:]))
    ready_s = np.maximum.accumulate([forward_s, *ready_s])[1:].tolist()
    return Pace(forward_s, tuple(ready_s), max(end_s, ready_s[-1]))


def main(mode: str, out: str) -> None:
    options = argparse.Namespace(link=None, threads=None, like=None, quick=False, full=False)
    run = kit.Run(MPI.COMM_WORLD, options)
    found = {"ladder": ladder, "real": real}[mode](run)
    if run.rank == 0:
        found["machine"] = record.machine(options)
        found["date"] = datetime.date.today().isoformat()
        found["measured_with"] = record.code_hash(Path(__file__).resolve())
        Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
